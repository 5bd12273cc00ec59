/** The messages between the server and its preparation workers. */
import { DeploymentError, type NextMove } from '../../lib/errors.ts'
import { nameSources } from '../../lib/traces.ts'
import type { ToolBuild } from '../builder.ts'
import { explainLimits } from '../git/errors.ts'
import { GitFailed, type GitSetup } from '../git/process.ts'
import type { SourceTree } from '../git/source-tree.ts'
import { type PreparationLimits, refusePreparation } from '../preparation-limits.ts'
import type { OwnDockerfile } from './context.ts'
import type { Dockerfile } from './dockerfile.ts'

export interface WorkerSetup {
  git: Omit<GitSetup, 'onChild'>
  /** The process groups of its children, 0 for none: they are killed together with the worker. */
  groups: Int32Array<SharedArrayBuffer>
}

export const maxGroups = 16

export interface ReadJob {
  kind: 'read'
  mirror: string
  commitId: string
  rootPath: string
  dockerfilePath: string
  tool: ToolBuild | undefined
  limits: PreparationLimits
}

export interface ContextJob {
  kind: 'context'
  tree: SourceTree
  own: OwnDockerfile
  limits: PreparationLimits
}

export type Job = ReadJob | ContextJob

/**
 * `credit`: how many more chunks may be sent. `cancel`: the job must end; it is also answered by `idle`. `turn` numbers
 * the jobs.
 */
export type ToWorker =
  | { kind: 'job'; turn: number; job: Job }
  | { kind: 'credit'; chunks: number }
  | { kind: 'cancel'; turn: number }

export interface Prepared {
  tree: SourceTree
  dockerfile: Dockerfile
}

/** An error as sent to the server; `code` is null for an internal one. */
interface PlainError {
  code: string | null
  message: string
  next: NextMove
  lines: string[]
}

/** A job ends in `read`, `end` or `failed`; `idle` follows once nothing of it is running. */
export type FromWorker =
  | { kind: 'read'; prepared: Prepared }
  | { kind: 'opened' }
  | { kind: 'chunk'; bytes: Uint8Array<ArrayBuffer> }
  | { kind: 'end' }
  | { kind: 'failed'; error: PlainError }
  | { kind: 'idle'; turn: number }

const firstLine = (text: string): string =>
  text
    .trim()
    .split('\n')[0]!
    .replace(/\p{Cc}/gu, '')
    .slice(0, 200)

/** There is no mirror: nothing was ever fetched for this organization with these credentials. */
const notFetched = new DeploymentError('git_ref_missing', 'The commit was not fetched.')

/** The location of our copies is not revealed. */
const withoutPaths = (text: string): string => text.replace(/'?\/\S*/g, '…')

/** If git fails to read a repository, the repository is at fault: its objects were checked when it was fetched. */
const explain = (error: unknown): unknown => {
  if (!(error instanceof GitFailed)) return error
  if (/not a git repository/i.test(error.stderr)) return notFetched
  const said = withoutPaths(firstLine(error.stderr) || firstLine(error.message))
  return explainLimits(error.stderr) ?? refusePreparation(`git could not read the repository for the build: ${said}`)
}

export const toPlain = (thrown: unknown): PlainError => {
  const error = explain(thrown)
  if (error instanceof DeploymentError) {
    const { code, message, next, lines } = error
    return { code, message, next, lines }
  }
  const message = error instanceof Error ? nameSources(error.stack ?? error.message) : String(error)
  return { code: null, message, next: 'stop', lines: [] }
}

export const fromPlain = ({ code, message, next, lines }: PlainError): Error =>
  code === null
    ? new Error(`a build could not be prepared: ${message}`)
    : new DeploymentError(code, message, { next, lines })
