/**
 * The effects of a new head on the services that follow its branch. The repository is trusted, deliveries are not: the
 * message and the changed paths are those of the commits in our mirror.
 */
import type { Builder, Commit, GitSource } from '../../../builds/builder.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import { driverOf } from '../../artifacts/drivers.ts'
import type { ServiceRequest } from '../../deployments.ts'
import { type DeploymentParts, kindOf } from '../../parts.ts'
import type { Follower } from './rows.ts'

/** The words that git hosts and their pipelines use, in any case. */
const skipWords = /\[(?:skip ci|ci skip|no ci|skip deploy|deploy skip)\]/i

/** The words in a commit's message that ask for no deployment; null without. */
export const skipWordIn = (message: string): string | null => skipWords.exec(message)?.[0] ?? null

interface Filters {
  /** The folder that the service is built from, without slashes at its ends; '' for the whole repository. */
  root: string
  /** Beginnings of paths: some changed path must have one of them. */
  match: readonly string[]
  /** Changes below these alone do not count. */
  exclude: readonly string[]
}

interface Kept {
  mode?: unknown
  value?: unknown
}

/** Whether a push concerns a service: words in the message, and the changed paths. Pure. */
export const filtersIn = (spec: Readonly<Record<string, unknown>>, rootPath: string): Filters => {
  const kept = Array.isArray(spec.deployment_restrictions) ? (spec.deployment_restrictions as Kept[]) : []
  const of = (mode: string) => kept.flatMap((each) => (each.mode === mode ? [String(each.value)] : []))
  return { root: rootPath.replace(/^\/+|\/+$/g, ''), match: of('MATCH'), exclude: of('EXCLUDE') }
}

/** Whether the changed paths matter at all. */
export const hasFilters = ({ root, match, exclude }: Filters): boolean =>
  root !== '' || match.length > 0 || exclude.length > 0

const beginsWithAny = (path: string, beginnings: readonly string[]): boolean =>
  beginnings.some((beginning) => path.startsWith(beginning))

/**
 * Why these changes do not concern a service; null if they do, or if they are unknown. A service is built from its
 * root path alone, so that changes elsewhere concern it only if a restriction says so.
 */
export const refusalOf = ({ root, match, exclude }: Filters, changes: readonly string[] | null): string | null => {
  if (changes === null) return null
  const left = changes.filter((path) => !beginsWithAny(path, exclude))
  if (exclude.length > 0 && left.length === 0)
    return 'All changes are below paths that a deployment restriction excludes.'
  if (match.length > 0)
    return left.some((path) => beginsWithAny(path, match)) ? null : 'No changed path matches a deployment restriction.'
  // A commit without changes is a way to ask for a deployment.
  if (root === '' || changes.length === 0) return null
  return left.some((path) => path === root || path.startsWith(`${root}/`))
    ? null
    : `Nothing below /${root} has changed.`
}

/** A service whose branch has a new head. */
export interface News {
  follower: Follower
  head: string
  /** The pusher, as a git host said; '' if it did not. */
  pusher: string
  /** The deployment to request; null if there is none, for the reason. */
  wanted: ServiceRequest | null
  reason: string | null
}

/** Where a judge reads commits. */
interface JudgeParts {
  builder: Pick<Builder, 'fetch' | 'changes'>
}

type Judgement = Pick<News, 'wanted' | 'reason'>

const skipped = (reason: string): Judgement => ({ wanted: null, reason })

/** The request of a push for a service; null: none. */
export const askedOf = (
  parts: Pick<DeploymentParts, 'kinds'>,
  follower: Follower,
  head: string,
): ServiceRequest | null => {
  const asked = kindOf(parts, follower.kind).push?.(follower.spec) ?? null
  return asked === null ? null : { id: follower.id, commitId: head, ...asked }
}

/** The commit of a head; null if it cannot be read, for a reason that its deployment will report. */
const readCommit = async ({ builder }: JudgeParts, source: GitSource, signal: AbortSignal): Promise<Commit | null> => {
  try {
    return await builder.fetch(source, signal)
  } catch (error) {
    if (error instanceof DeploymentError && error.next === 'stop') return null
    throw error
  }
}

/** The judge of one head: fetches the commit, and compares it with earlier ones, once each. */
export const createJudge = (
  parts: JudgeParts & Pick<DeploymentParts, 'kinds'>,
  source: GitSource & { commitId: string },
  signal: AbortSignal,
) => {
  let commit: Promise<Commit | null> | undefined
  const compared = new Map<string, Promise<string[] | null>>()
  const { commitId: head } = source
  const read = (): Promise<Commit | null> => (commit ??= readCommit(parts, source, signal))
  const changesFrom = (from: string | null): Promise<string[] | null> => {
    if (from === null || from === '') return Promise.resolve(null)
    const known = compared.get(from) ?? parts.builder.changes(source, from, signal)
    compared.set(from, known)
    return known
  }
  const filter = async (follower: Follower): Promise<string | null> => {
    const kept = kindOf(parts, follower.kind).source(follower.spec)
    const filters = filtersIn(follower.spec, driverOf(kept).folder?.(kept) ?? '/')
    return hasFilters(filters) ? refusalOf(filters, await changesFrom(follower.seen)) : null
  }
  return async (follower: Follower): Promise<Judgement> => {
    if (follower.isStopped) return skipped('The service is stopped.')
    const wanted = askedOf(parts, follower, head)
    if (wanted === null) return skipped('The configuration of the service asks for nothing after a push.')
    if (follower.deployed === head) return skipped('This commit is already deployed.')
    const found = await read()
    if (found === null) return { wanted, reason: null }
    const word = skipWordIn(found.message)
    if (word !== null) return skipped(`The message of the commit has ${word}.`)
    const refusal = await filter(follower)
    return refusal === null ? { wanted, reason: null } : skipped(refusal)
  }
}
