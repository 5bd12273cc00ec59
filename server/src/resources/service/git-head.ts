/** The head of a service's branch, looked up after a write, so that reads can show it before anything is deployed. */
import type { Context } from '../../api/operations/operation.ts'
import { readGitCredentials } from '../../deployments/images/git-credentials.ts'
import type { GitRepositorySpec } from './git-source.ts'

const headTimeoutMs = 10_000

/** The path of the repository in a configuration: `['source', 'docker', 'git_repository']`. */
export type GitPath = readonly string[]

/** SQL for the repository in a row `n`. */
export const repositorySql = (path: GitPath): string => `n.spec #> '{${path.join(',')}}'`

const noteHead = async ({ parts, principal }: Context, id: string, path: GitPath, again: boolean): Promise<void> => {
  const repository = repositorySql(path)
  const [row] = await parts.database.query<{ git: GitRepositorySpec | null }>(
    `select ${repository} as git from node n where n.id = $1`,
    [id],
  )
  if (row === undefined || row.git === null || (row.git.head_commit_id !== undefined && !again)) return
  const { url, branch, git_token_id: tokenId } = row.git
  const { organizationId } = principal
  const credentials =
    tokenId === null
      ? {}
      : { credentials: await readGitCredentials(parts.database, parts.sealer, organizationId, tokenId) }
  const head = await parts.builder.head({ organizationId, url, branch, ...credentials } as never, headTimeoutMs)
  if (head === null) return
  await parts.database.query(
    `update node n set spec = jsonb_set(n.spec, '{${[...path, 'head_commit_id'].join(',')}}', to_jsonb($2::text))
     where n.id = $1 and ${repository} ->> 'url' = $3 and ${repository} ->> 'branch' = $4`,
    [id, head, url, branch],
  )
}

const noteFailure = ({ parts }: Context, error: unknown): void =>
  parts.log.debug({ err: error }, 'the head of a branch could not be read')

/** Looks up the head in the background after a create or an edit: the response does not wait for a git host. */
export const lookUpHead = (context: Context, id: string, path: GitPath): void =>
  void noteHead(context, id, path, false).catch((error: unknown) => noteFailure(context, error))

/** The same after a clone, one by one: what its services have is as old as their sources' heads. */
export const lookUpHeadsAgain = async (
  context: Context,
  copies: readonly { id: string; path: GitPath }[],
): Promise<void> => {
  for (const { id, path } of copies)
    await noteHead(context, id, path, true).catch((error: unknown) => noteFailure(context, error))
}
