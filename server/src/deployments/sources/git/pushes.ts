/**
 * Deploys services when their repositories have new commits. A repository is polled after a delivery from its git
 * host, soon after a service begins to follow it, and periodically (SLIPWAY_GIT_POLL_SECONDS). Promises that a head is
 * judged once, by whichever server; that only the content of the repository itself is deployed; and that no
 * organization has more than a few polls at once, and one a second at most. When the process dies: the lease of the
 * repository ends, and the next poll finds the same.
 */
import type { GitSource } from '../../../builds/builder.ts'
import type { DeploymentError } from '../../../lib/errors.ts'
import { pushChannel } from '../../../webhooks/inbound/deliveries.ts'
import { openGitSource } from '../../credentials/git-source.ts'
import type { ServiceRequest } from '../../deployments.ts'
import type { DeploymentParts } from '../../parts.ts'
import { startPolls } from '../polls.ts'
import { askedOf, createJudge, type News } from './judge.ts'
import { type Asking, actOn } from './request-push.ts'
import {
  type Follower,
  finishPoll,
  type Hint,
  readFollowers,
  readHints,
  type Watched,
  watchedRepositories,
  watchForgotten,
} from './rows.ts'

const defaultPollSeconds = 60
const longestPauseMs = 10_000

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

/** A first poll only stores the head, unless a git host has reported a push to the branch. */
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

/** A hint is answered by a new head of its branch, or by the commit that it named. */
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

const poll = async (parts: DeploymentParts, asking: Asking, watched: Watched, signal: AbortSignal): Promise<void> => {
  const { database, gitPollSeconds: pollSeconds = defaultPollSeconds } = parts
  const followers = await readFollowers(database, watched)
  if (followers.length === 0) return watchedRepositories.forget(database, watched)
  const hints = await readHints(database, watched)
  const { source, heads } = await readHeads(parts, watched, followers, signal)
  const news = await findNews(parts, source, heads, followers, hints, signal)
  const current = currentOf(parts, followers, heads)
  const isUnfinished = await actOn({ parts, asking, watched, current }, news)
  const answered = hints.filter((hint) => isAnswered(hint, heads, news))
  await finishPoll(database, watched, pollSeconds, {
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

const noteFailure = async (
  { database, gitPollSeconds = defaultPollSeconds }: DeploymentParts,
  watched: Watched,
  error: DeploymentError,
) => {
  const open = await readHints(database, watched)
  const nothing = { first: [], answered: [], wasUntold: false, isUnfinished: false }
  await finishPoll(database, watched, gitPollSeconds, { error, open, ...nothing })
}

export const startPushes = (
  parts: DeploymentParts,
  worker: string,
  asking: Asking,
): Promise<{ stop(): Promise<void> }> =>
  startPolls<Watched>(parts, worker, {
    name: 'pushes',
    of: 'repository',
    table: watchedRepositories,
    longestPauseMs,
    channel: pushChannel,
    poll: (watched, signal) => poll(parts, asking, watched, signal),
    note: (watched, error) => noteFailure(parts, watched, error),
    watchForgotten,
  })
