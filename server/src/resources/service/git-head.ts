/**
 * The head of a service's branch, looked up after a write and stored, so that reads can show it before anything is
 * deployed; and whether the repository can be read.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Context } from '../../api/operations/operation.ts'
import type { Spec } from '../../api/operations/resource.ts'
import type { GitSource } from '../../builds/builder.ts'
import { readGitCredentials } from '../../deployments/credentials/git-credentials.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { isObject } from '../../lib/foreign-text/fields.ts'
import { type GitRepositorySpec, sourceUrlOf } from './git-source.ts'

const headTimeoutMs = 10_000
/** How long an answer waits for a git host; later results are in the next read. */
const patienceMs = 1000

/** The path of the repository in a configuration: `['source', 'docker', 'git_repository']`. */
export type GitPath = readonly string[]

/** SQL for the repository in a row `n`. */
export const repositorySql = (path: GitPath): string => `n.spec #> '{${path.join(',')}}'`

/** The errors of a deployment, or of a read of the repository, when it may not be read. */
const refusals = ['git_denied', 'git_token_missing', 'git_token_expired', 'git_token_elsewhere']

/** SQL: whether the last deployment of the service `n` since it was changed was refused its repository. */
export const isRefusedSql = `coalesce((select w.error ->> 'code' = any('{${refusals.join(',')}}') from deployment_service w
  where w.service_id = n.id and w.finished_at > n.updated_at order by w.created_at desc, w.deployment_id desc limit 1), false)`

/** The fields that a lookup changes; none if the host did not say. */
type Seen = Pick<GitRepositorySpec, 'head_commit_id' | 'has_access'>

const isRefused = (error: unknown): boolean => error instanceof DeploymentError && refusals.includes(error.code)

const look = async ({ parts, principal }: Context, git: GitRepositorySpec): Promise<Seen> => {
  const { branch, git_token_id: tokenId } = git
  const url = sourceUrlOf(git)
  const { organizationId } = principal
  try {
    const { credentials } =
      tokenId === null
        ? { credentials: undefined }
        : await readGitCredentials(parts.database, parts.sealer, { organizationId, gitTokenId: tokenId, url })
    const source: GitSource = { organizationId, url, branch, ...(credentials === undefined ? {} : { credentials }) }
    const head = await parts.builder.head(source, headTimeoutMs)
    if (head !== null) return { head_commit_id: head, has_access: true }
    // Asked once more for the reason: a missing branch does not mean that access was refused.
    await parts.builder.branches(source, AbortSignal.timeout(headTimeoutMs))
    return { has_access: true }
  } catch (error) {
    if (isRefused(error)) return { has_access: false }
    throw error
  }
}

const noteHead = async (context: Context, id: string, path: GitPath, again = false): Promise<Seen> => {
  const { database } = context.parts
  const repository = repositorySql(path)
  const [row] = await database.query<{ git: GitRepositorySpec | null }>(
    `select ${repository} as git from node n where n.id = $1`,
    [id],
  )
  if (row === undefined || row.git === null || (row.git.head_commit_id !== undefined && !again)) return {}
  const seen = await look(context, row.git)
  await database.query(
    `update node n set spec = jsonb_set(n.spec, '{${path.join(',')}}', ${repository} || $2::jsonb)
     where n.id = $1 and ${repository} ->> 'url' = $3 and ${repository} ->> 'branch' = $4`,
    [id, JSON.stringify(seen), row.git.url, row.git.branch],
  )
  return seen
}

const steps = ['source', 'docker', 'git', 'git_repository', 'terraform_files_source']

export const withRepository = (record: Spec, fields: Spec): Spec => {
  if ('deployed_commit_id' in record) return { ...record, ...fields }
  const inner = Object.entries(record).map(([name, value]) =>
    steps.includes(name) && isObject(value) ? [name, withRepository(value, fields)] : [name, value],
  )
  return Object.fromEntries(inner)
}

const noteFailure = ({ parts }: Context, error: unknown): Seen => {
  parts.log.debug({ err: error }, 'the head of a branch could not be read')
  return {}
}

/** A record after a create or an edit, with the data that its git host returns within a moment. */
export const withHead = async (context: Context, record: Spec, path: GitPath): Promise<Spec> => {
  const looked = noteHead(context, String(record.id), path).catch((error: unknown) => noteFailure(context, error))
  const seen = await Promise.race([looked, pause(patienceMs, {} as Seen, { ref: false })])
  const { head_commit_id: head, ...access } = seen
  return withRepository(record, { ...access, ...(head === undefined ? {} : { deployed_commit_id: head }) })
}

/** Looks up heads again after a clone, one by one: its services have the heads stored for their sources. */
export const lookUpHeadsAgain = async (
  context: Context,
  copies: readonly { id: string; path: GitPath }[],
): Promise<void> => {
  for (const { id, path } of copies)
    await noteHead(context, id, path, true).catch((error: unknown) => noteFailure(context, error))
}
