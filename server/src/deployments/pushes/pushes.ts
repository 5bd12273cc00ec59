/**
 * Deploys services when their repositories have new commits. A repository is looked at when a git host has told of a
 * push, soon after a service begins to follow it, and every so often (SLIPWAY_GIT_POLL_SECONDS). Promises that a head is
 * judged once, by whichever server; that only what the repository itself says is deployed; and that no organization has
 * more than a few looks at once, and one a second at most.
 * When the process dies: the lease of the repository ends, and the next look finds what this one would have found.
 */
import type { GitSource } from '../../builds/builder.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { LeaseHandedOff } from '../../lib/lease-handed-off.ts'
import { pushChannel } from '../../webhooks/inbound/deliveries.ts'
import { heldByLease } from '../../work/lease.ts'
import { createLoop } from '../../work/loop.ts'
import { createWorker } from '../../work/worker.ts'
import type { ServiceRequest } from '../deployments.ts'
import { openGitSource } from '../images/git-source.ts'
import type { DeploymentParts } from '../parts.ts'
import { askedOf, createJudge, type News } from './judge.ts'
import { type Asking, actOn } from './request-push.ts'
import {
  claimDue,
  type Follower,
  finishLook,
  forgetWatched,
  type Hint,
  readFollowers,
  readHints,
  type Watched,
  watchForgotten,
  watchLeases,
} from './rows.ts'

const defaultPollSeconds = 60
const concurrency = 8
const longestPauseMs = 10_000
const shortestPauseMs = 25
const hourMs = 3_600_000

type Heads = ReadonlyMap<string, string>

const openSource = (parts: DeploymentParts, { organizationId, url, gitTokenId }: Watched, branch: string) =>
  openGitSource(parts, organizationId, { url, branch, gitTokenId })

const readHeads = async (
  parts: DeploymentParts,
  watched: Watched,
  followers: readonly Follower[],
  signal: AbortSignal,
): Promise<{ source: GitSource; heads: Heads }> => {
  const branches = [...new Set(followers.map(({ branch }) => branch))]
  const source = await openSource(parts, watched, branches[0]!)
  return { source, heads: await parts.builder.heads(source, branches, signal) }
}

/** A first look takes what it finds as seen, unless a git host has told of a push to the branch. */
const hasNews = ({ branch, seen }: Follower, head: string | undefined, hints: readonly Hint[]): head is string => {
  if (head === undefined || head === seen) return false
  return seen !== null || hints.some((hint) => hint.branch === branch)
}

const findNews = async (
  parts: DeploymentParts,
  source: GitSource,
  heads: Heads,
  followers: readonly Follower[],
  hints: readonly Hint[],
  signal: AbortSignal,
): Promise<News[]> => {
  const news: News[] = []
  for (const [branch, members] of Map.groupBy(followers, (each) => each.branch)) {
    const head = heads.get(branch)
    const pusher = hints.find((hint) => hint.branch === branch)?.pusher ?? ''
    if (head === undefined) continue
    const judge = createJudge(parts, { ...source, branch, commitId: head }, signal)
    for (const follower of members)
      if (hasNews(follower, head, hints)) news.push({ follower, head, pusher, ...(await judge(follower)) })
  }
  return news
}

/** A hint is answered by news of its branch, or by the commit that it named. */
const isAnswered = ({ branch, commitId }: Hint, heads: Heads, news: readonly News[]): boolean =>
  commitId === null || heads.get(branch) === commitId || news.some(({ follower }) => follower.branch === branch)

const currentOf = (parts: DeploymentParts, followers: readonly Follower[], heads: Heads): Map<string, ServiceRequest> =>
  new Map(
    followers.flatMap((follower) => {
      const head = heads.get(follower.branch)
      const asked = head === undefined || follower.isStopped ? null : askedOf(parts, follower, head)
      return asked === null ? [] : [[follower.id, asked] as const]
    }),
  )

const look = async (parts: DeploymentParts, asking: Asking, watched: Watched, signal: AbortSignal): Promise<void> => {
  const { database, gitPollSeconds: pollSeconds = defaultPollSeconds } = parts
  const followers = await readFollowers(database, watched)
  if (followers.length === 0) return forgetWatched(database, watched)
  const hints = await readHints(database, watched)
  const { source, heads } = await readHeads(parts, watched, followers, signal)
  const news = await findNews(parts, source, heads, followers, hints, signal)
  const current = currentOf(parts, followers, heads)
  const isUnfinished = await actOn({ parts, asking, watched, current }, news)
  const answered = hints.filter((hint) => isAnswered(hint, heads, news))
  await finishLook(database, watched, pollSeconds, {
    first: followers.flatMap(({ id, branch, seen }) =>
      seen === null ? [{ id, branch, head: heads.get(branch) ?? '' }] : [],
    ),
    error: null,
    answered,
    open: hints.filter((hint) => !answered.includes(hint)),
    wasUntold: news.length > 0 && hints.length === 0,
    isUnfinished,
  })
}

const unexpected = (cause: unknown): DeploymentError =>
  new DeploymentError('internal', "The repository could not be looked at: see the server's log.", { cause })

/** A look that fails is retried after a pause, and ever longer ones; what it would have found is found then. */
const lookOrNote = async (parts: DeploymentParts, asking: Asking, watched: Watched, signal: AbortSignal) => {
  try {
    await look(parts, asking, watched, signal)
  } catch (error) {
    if (signal.aborted || error instanceof LeaseHandedOff) throw error
    const known = error instanceof DeploymentError ? error : unexpected(error)
    if (known !== error) parts.log.warn({ err: error, repository: watched.id }, 'a repository could not be looked at')
    const hints = await readHints(parts.database, watched)
    const rest = { first: [], answered: [], open: hints, wasUntold: false, isUnfinished: false }
    const { gitPollSeconds = defaultPollSeconds } = parts
    await finishLook(parts.database, watched, gitPollSeconds, { error: known, ...rest })
  }
}

const startLooks = (parts: DeploymentParts, worker: string, asking: Asking) => {
  const { database } = parts
  return createWorker<Watched>(parts, {
    name: 'pushes',
    concurrency,
    periodMs: longestPauseMs,
    idOf: ({ id }) => id,
    about: ({ id }) => ({ repository: id }),
    async claim(room) {
      const { claimed, nextDueMs } = await claimDue(database, worker, room)
      return { claimed, more: false, nextMs: Math.max(nextDueMs ?? longestPauseMs, shortestPauseMs) }
    },
    run: (watched, { signal }) => lookOrNote(parts, asking, watched, signal),
    ...heldByLease(database, watchLeases, worker),
    failed: 'a look at a repository was interrupted and waits for its next claim',
  })
}

export const startPushes = async (
  parts: DeploymentParts,
  worker: string,
  asking: Asking,
): Promise<{ stop(): Promise<void> }> => {
  const looks = startLooks(parts, worker, asking)
  const forgotten = createLoop(parts, {
    name: 'followed repositories',
    periodMs: hourMs,
    failed: 'some repositories may not be watched',
    run: () => watchForgotten(parts.database),
  })
  const leave = await parts.database.listen(pushChannel, looks.wake)
  return {
    async stop() {
      leave()
      await Promise.all([looks.stop(), forgotten.stop()])
    },
  }
}
