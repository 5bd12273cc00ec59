/**
 * Browsing git hosts with the organization's git tokens: repositories, branches, commits, folders. There are no
 * accounts besides the tokens: each token is shown as one.
 */
import Type from 'typebox'
import {
  type Context,
  type Fields,
  type Operation,
  operation,
  organizationInPath,
  ownOrganization,
  reading,
} from '../../api/operations/operation.ts'
import { checkRefs } from '../../api/operations/resource.ts'
import { Flag, Maybe, Name, OneOf, Results, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import type { GitSource } from '../../builds/builder.ts'
import { roomRefusal } from '../../builds/git/mirror-room.ts'
import { readGitCredentials } from '../../deployments/credentials/git-credentials.ts'
import { itemOf, ownerOf, type Self } from '../../facets/facet.ts'
import { isOwn } from '../../kinds.ts'
import { badRequest, DeploymentError } from '../../lib/errors.ts'
import { type GitPath, repositorySql } from '../service/git-head.ts'
import {
  completeGitRepository,
  type GitRepositorySpec,
  GitRepositoryToRead,
  gitProviders,
  isInternal,
  plainPath,
  sourceUrlOf,
} from '../service/git-source.ts'
import type { Service } from '../service/service.ts'
import { administers, refuseTokensElsewhere } from '../service/token-reach.ts'
import {
  expiredToken,
  findRepository,
  listRepositories,
  type ProviderName,
  providers,
  readProviderToken,
} from './git-provider.ts'

const patienceMs = 30_000

const sentences: Record<string, string> = {
  git_ref_missing: 'The branch, commit or folder does not exist in the repository.',
  git_refused: 'The URL of the repository cannot be used.',
  git_unreachable: 'The git host did not answer in time.',
  git_too_large: 'The folder has too many files to read, or one that is too large.',
  git_token_missing: 'The git token has been deleted: choose another one.',
  git_token_expired: expiredToken,
  git_token_elsewhere:
    'The git token is not for the address of this repository: an administrator of the organization can add its origin to repository_origins of the token.',
}

/** Codes whose errors already contain the git host's answer. */
const ofHost: ReadonlySet<string> = new Set(['git_denied', 'git_unreachable'])

export const askingGit = async <T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> => {
  const signal = AbortSignal.timeout(patienceMs)
  try {
    return await work(signal)
  } catch (error) {
    const refusal = roomRefusal(error)
    if (refusal !== null) throw refusal
    const code = signal.aborted ? 'git_unreachable' : error instanceof DeploymentError ? error.code : ''
    const said =
      error instanceof DeploymentError && !signal.aborted && ofHost.has(code) ? error.message : sentences[code]
    if (said === undefined) throw error
    throw badRequest(said, undefined, code)
  }
}

const gitSourceFor = async (
  { parts, principal }: Context,
  git: Pick<GitRepositorySpec, 'url' | 'branch' | 'git_token_id' | 'repository_id'>,
  isApproved = false,
): Promise<GitSource> => {
  const { branch, git_token_id: tokenId } = git
  const url = sourceUrlOf(git)
  const { organizationId } = principal
  if (tokenId === null) return { organizationId, url, branch }
  const use = { organizationId, gitTokenId: tokenId, url, isApproved }
  const { credentials } = await readGitCredentials(parts.database, parts.sealer, use)
  return { organizationId, url, branch, ...(credentials === undefined ? {} : { credentials }) }
}

/** The same for a repository that the caller names. Throws if its git token may not be sent there. */
export const sourceAskedFor = async (context: Context, git: GitRepositorySpec): Promise<GitSource> => {
  await refuseTokensElsewhere(context.db, context.principal, git)
  return gitSourceFor(context, git, administers(context.principal))
}

const Repository = Type.Object(
  {
    id: Text(),
    name: Text(),
    url: Text(2048),
    default_branch: Text(),
    is_private: Flag(),
  },
  { title: 'GitRepository' },
)

/** Defined twice: below the organization, and for the caller's own. */
const places = [
  {
    path: '/organization/{organizationId}/account',
    word: 'Organization',
    owner: organizationInPath,
    tag: 'Organization Account Git Repositories',
  },
  { path: '/account', word: '', owner: ownOrganization, tag: 'Git repositories' },
]
const capital = { GITHUB: 'Github', GITLAB: 'Gitlab', BITBUCKET: 'Bitbucket' }

const browsing = { ...reading, area: 'resources', reads: 'sensitive' } as const

const findBranches = async (
  context: Context<Fields, { name?: string }>,
  name: ProviderName,
): Promise<{ name: string }[]> => {
  const repository = context.query.name ?? ''
  if (!/^[^\s/?#]+(\/[^\s/?#]+)+$/.test(repository))
    throw badRequest('name: must be a repository in the form owner/name')
  const token = await readProviderToken(context, name)
  const { url } = await findRepository(context, name, token, repository)
  const git = { url, branch: 'main', git_token_id: token.id }
  const branches = await askingGit(async (signal) =>
    context.parts.builder.branches(await gitSourceFor(context, git), signal),
  )
  return branches.map((branch) => ({ name: branch }))
}

const ofProvider = (place: (typeof places)[number], name: ProviderName): Operation[] => {
  const { tag, owner, word } = place
  const path = `${place.path}/${name.toLowerCase()}/repository`
  const id = `get${word}${capital[name]}Repositor`
  const gitTokenId = Maybe(Uuid())
  return [
    operation({
      ...browsing,
      id: `${id}ies`,
      path,
      tag,
      owner,
      summary: "List the repositories that a git token can access; without an id, the provider's oldest token is used",
      query: Type.Object({ gitTokenId }),
      answer: Results(Repository),
      run: async (context) => ({ results: await listRepositories(context, name) }),
    }),
    operation({
      ...browsing,
      id: `${id}yBranches`,
      path: `${path}/branch`,
      tag,
      owner,
      summary: 'List the branches of the repository `owner/name`',
      query: Type.Object({ name: Maybe(Text(1024)), gitTokenId }),
      answer: Results(Type.Object({ name: Text() })),
      run: async (context) => ({ results: await findBranches(context, name) }),
    }),
  ]
}

/** A token is not an account: clients list git tokens beside these. */
const accounts = ({ path, tag, owner, word }: (typeof places)[number]): Operation =>
  operation({
    ...browsing,
    id: `get${word}GitProviderAccount`,
    path: `${path}/gitAuthProvider`,
    tag,
    owner,
    summary: 'List the accounts of git providers: always none, as repositories are reached with git tokens',
    answer: Results(Type.Object({ id: Uuid(), name: OneOf(gitProviders), owner: Name(), use_bot: Flag() })),
    run: async () => ({ results: [] }),
  })

const repositoryBody = GitRepositoryToRead()

const listFolders = operation({
  id: 'listDirectoriesFromGitRepository',
  method: 'POST',
  path: '/organization/{organizationId}/listDirectoriesFromGitRepository',
  tag: 'Git repositories',
  summary: 'List the folders in a folder of a repository, as paths from its root',
  scope: 'Write',
  area: 'resources',
  owner: organizationInPath,
  body: repositoryBody,
  status: 200,
  answer: Results(Text(4096)),
  async run(context) {
    await checkRefs(context.db, repositoryBody, context.body, context.principal.organizationId)
    const git = completeGitRepository(context.body)
    const folder = plainPath(git.root_path)
    const names = await askingGit(async (signal) =>
      context.parts.builder.folders(await sourceAskedFor(context, git), folder, signal),
    )
    return { results: names.map((name) => (folder === '' ? name : `${folder}/${name}`)) }
  },
})

const commitPages: Record<string, string> = { GITHUB: '/commit/', GITLAB: '/-/commit/', BITBUCKET: '/commits/' }
const maxCommits = 100

const CommitId = () => Text(64, { pattern: '^(?:[0-9a-f]{40}|[0-9a-f]{64})?$' })

const CommitQuery = Type.Object({ startId: Maybe(CommitId()), gitCommitId: Maybe(CommitId()) })

/** A helm service may have two repositories. */
const HelmCommitQuery = Type.Object({
  ...CommitQuery.properties,
  of: Maybe(
    OneOf(['chart', 'values'], {
      description: 'Commits of the repository of the chart (the default) or of its values.',
    }),
  ),
})

const valuesPath: GitPath = ['values_override', 'file', 'git', 'git_repository']

/** The last 100 commits of a service's branch. */
const listCommits = (self: Self, repository: GitPath): Operation =>
  operation({
    id: `list${self.noun}Commit`,
    ...reading,
    path: `${itemOf(self)}/commit`,
    tag: `${self.noun} Main Calls`,
    summary:
      'List the last 100 commits of the branch, or those up to a given commit; empty for a service without a repository',
    area: 'projects',
    owner: ownerOf(self),
    query: self.kind === 'helm' ? HelmCommitQuery : CommitQuery,
    answer: Results(
      Type.Object({
        git_commit_id: Text(),
        created_at: Timestamp(),
        message: Text(4096),
        author_name: Text(),
        tag: Text(),
        commit_page_url: Text(2048),
      }),
    ),
    async run(context) {
      const { db, node, query, parts } = context
      const [row] = await db.query<{ git: GitRepositorySpec | null }>(
        `select ${repositorySql('of' in query && query.of === 'values' ? valuesPath : repository)} as git
         from node n where n.id = $1`,
        [node.id],
      )
      const git = row?.git ?? null
      if (git === null) return { results: [] }
      const { startId: after, gitCommitId: from = after } = query as Type.Static<typeof CommitQuery>
      const commits = await askingGit(async (signal) => {
        const source = await gitSourceFor(context, git)
        return parts.builder.commits(
          { ...source, ...(from === undefined ? {} : { commitId: from }) },
          maxCommits,
          signal,
        )
      })
      const page = git.url.replace(/(\.git)?\/?$/, '') + (commitPages[git.provider] ?? commitPages.GITHUB)
      const pageOf = (id: string): string => (isInternal(git) ? '' : page + id)
      const shown = commits.filter(({ git_commit_id: id }) => id !== after)
      return { results: shown.map((each) => ({ ...each, commit_page_url: pageOf(each.git_commit_id) })) }
    },
  })

const names = Object.keys(providers) as ProviderName[]

/** The public API has no commits of Argo CD apps. */
const isRead = ({ definition: { kind, git } }: Service): boolean => git !== undefined && isOwn(kind)

export const gitBrowsing = (services: readonly Service[]): Operation[] => [
  ...places.flatMap((place) => [accounts(place), ...names.flatMap((name) => ofProvider(place, name))]),
  listFolders,
  ...services.filter(isRead).map(({ definition }) => listCommits(definition, definition.git!)),
]
