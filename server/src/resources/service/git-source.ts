/** Git repositories of services: requests and responses. Pure. */

import Type from 'typebox'
import { Discarded, Flag, Maybe, Nullable, OneOf, Ref, Text, Timestamp } from '../../api/operations/schema.ts'
import { internalUrl, internalUrlOf, isValidBranch, isValidGitUrl } from '../../builds/git/names.ts'
import type { BuildLimits, Source } from '../../deployments/deployments.ts'
import { invalidField } from '../../lib/errors.ts'

export const gitProviders = ['BITBUCKET', 'GITHUB', 'GITLAB']

/** In a create or an edit. */
export const GitRepositoryRequest = () =>
  Type.Object({
    url: Text(2048, {
      minLength: 1,
      description: 'An https or http URL; `slipway:internal` for a repository of the application on this server.',
    }),
    branch: Maybe(Text(255, { minLength: 1 })),
    root_path: Maybe(Text(1024)),
    git_token_id: Maybe(Nullable(Ref('git_token'))),
    provider: Maybe(OneOf(gitProviders)),
  })

/** For a single read; not stored. */
export const GitRepositoryToRead = () =>
  Type.Object({ ...GitRepositoryRequest().properties, provider: Maybe(Discarded(OneOf(gitProviders))) })

/** In responses. */
export const GitRepository = () =>
  Type.Object({
    has_access: Flag(),
    provider: OneOf(gitProviders),
    owner: Text(),
    url: Text(2048),
    name: Text(),
    branch: Text(),
    root_path: Text(),
    deployed_commit_id: Text(),
    deployed_commit_date: Maybe(Timestamp()),
    deployed_commit_contributor: Maybe(Text()),
    deployed_commit_tag: Maybe(Text()),
    git_token_id: Nullable(Text()),
    git_token_name: Maybe(Nullable(Text())),
  })

/** As stored. */
export interface GitRepositorySpec {
  url: string
  branch: string
  root_path: string
  git_token_id: string | null
  provider: string
  /** The owner if the repository is on this server: the application's own id. */
  repository_id?: string
  /** The branch's head when it was last looked up; answered until something is deployed. */
  head_commit_id?: string
  /** Whether the host allowed reading it at the last lookup; unknown if it did not say. */
  has_access?: boolean
}

const hostOf = (url: string): string => (URL.canParse(url) ? new URL(url).hostname : (/@([^:]+):/.exec(url)?.[1] ?? ''))

const providerOf = (url: string): string => {
  const host = hostOf(url)
  if (host.includes('gitlab')) return 'GITLAB'
  return host.includes('bitbucket') ? 'BITBUCKET' : 'GITHUB'
}

/** A path inside the repository, as it was sent: existing clients treat a different answer as an error. */
export const insidePath = (field: string, path: string): string => {
  if (path.split('/').includes('..') || /[\p{Cc}\\]/u.test(path))
    throw invalidField(field, 'must stay inside the repository')
  return path
}

/** The same path without empty parts, `.` and a slash at either end. */
export const plainPath = (path: string): string =>
  path
    .split('/')
    .filter((part) => part !== '' && part !== '.')
    .join('/')

/** The folder of the repository that a service is made of. */
export const rootOf = ({ root_path: path }: Pick<GitRepositorySpec, 'root_path'>): string => `/${plainPath(path)}`

/** Whether the repository is on this server itself. */
export const isInternal = ({ url }: Pick<GitRepositorySpec, 'url'>): boolean => url === internalUrl

export const sourceUrlOf = ({ url, repository_id: id }: Pick<GitRepositorySpec, 'url' | 'repository_id'>): string =>
  id === undefined ? url : internalUrlOf(id)

const checkInternal = (field: string, applicationId: string | undefined, tokenId: string | null): void => {
  if (applicationId === undefined)
    throw invalidField(`${field}/url`, 'only an application can have its repository on this server')
  if (tokenId !== null)
    throw invalidField(`${field}/git_token_id`, 'must be null: the repository is on this server and needs no git token')
}

/**
 * Validates and completes the sent fields; a known head is kept while the branch is the same. Only an application,
 * whose id is given, may have its repository on this server.
 */
export const completeGitRepository = (
  sent: unknown,
  previous?: GitRepositorySpec,
  field = '/git_repository',
  applicationId?: string,
): GitRepositorySpec => {
  const source = sent as Partial<GitRepositorySpec> & { url: string }
  const { url, branch = 'main' } = source
  if (isInternal({ url })) checkInternal(field, applicationId, source.git_token_id ?? null)
  else if (!isValidGitUrl(url))
    throw invalidField(
      `${field}/url`,
      'must be an https or http URL; for a private repository use a git token instead of ssh',
    )
  if (!isValidBranch(branch)) throw invalidField(`${field}/branch`, 'is not a valid branch name')
  const tokenId = source.git_token_id ?? null
  const sameToken = previous?.git_token_id === tokenId
  const same = previous?.url === url && previous.branch === branch && sameToken && previous.head_commit_id !== undefined
  return {
    url,
    branch,
    root_path: insidePath(`${field}/root_path`, source.root_path ?? '/'),
    git_token_id: tokenId,
    provider: source.provider ?? providerOf(url),
    ...(isInternal({ url }) ? { repository_id: applicationId! } : {}),
    ...(same ? { head_commit_id: previous.head_commit_id!, has_access: true } : {}),
  }
}

/** The commit of a release, as stored. */
export interface KeptCommit {
  git_commit_id: string
  author_name?: string
  created_at?: string
  tag?: string
}

/** The form in responses; `commit` is what runs now, if anything does. */
export const viewGitRepository = (spec: GitRepositorySpec, commit: KeptCommit | null, tokenName: string | null) => {
  const { head_commit_id: head = '', repository_id: _, ...kept } = spec
  const path = spec.url.replace(/^[a-z]+:\/\/[^/]+\//i, '').replace(/^[^/]*@[^:]+:/, '')
  const parts = path
    .replace(/\.git\/?$/, '')
    .split('/')
    .filter((part) => part !== '')
  return {
    has_access: true,
    ...kept,
    owner: parts.length > 1 ? parts.slice(0, -1).join('/') : '',
    name: parts.at(-1) ?? '',
    deployed_commit_id: commit?.git_commit_id ?? head,
    ...(commit?.created_at === undefined ? {} : { deployed_commit_date: commit.created_at }),
    ...(commit?.author_name === undefined ? {} : { deployed_commit_contributor: commit.author_name }),
    ...(commit?.tag === undefined ? {} : { deployed_commit_tag: commit.tag }),
    git_token_name: tokenName,
  }
}

/** The source of an image: a repository and a Dockerfile in it. */
export const Build = () => ({
  git_repository: GitRepositoryRequest(),
  dockerfile_path: Maybe(Nullable(Text(1024, { default: 'Dockerfile' }), { default: 'Dockerfile' })),
  docker_target_build_stage: Maybe(Nullable(Text(128, { pattern: '^[A-Za-z0-9][A-Za-z0-9_.-]*$' }))),
})

export type BuildFields = {
  git_repository: GitRepositorySpec
  dockerfile_path: string
  docker_target_build_stage?: string | null
}

/** Validates and completes the fields of `Build`; `field` is its place in the body. */
export const completeBuild = (
  sent: Record<string, unknown>,
  before?: Partial<BuildFields>,
  field = '',
  applicationId?: string,
) => ({
  git_repository: completeGitRepository(
    sent.git_repository,
    before?.git_repository,
    `${field}/git_repository`,
    applicationId,
  ),
  dockerfile_path: insidePath(`${field}/dockerfile_path`, (sent.dockerfile_path as string | null) ?? 'Dockerfile'),
})

/** A build from a repository, for the engine; `limits` come from the service's advanced settings. */
export const gitSourceOf = (
  { git_repository: git, dockerfile_path: dockerfilePath, docker_target_build_stage: targetStage = null }: BuildFields,
  limits: BuildLimits = {},
): Source => ({
  from: 'git',
  git: { url: sourceUrlOf(git), branch: git.branch, gitTokenId: git.git_token_id },
  rootPath: rootOf(git),
  dockerfilePath: plainPath(dockerfilePath),
  targetStage,
  // Left out if nothing is set: a fingerprint would distinguish null from absent.
  ...(Object.keys(limits).length === 0 ? {} : { limits }),
})
