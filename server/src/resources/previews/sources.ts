/**
 * Finds pull requests: asks the git host of each repository with previewed services for its open ones, after a
 * delivery from the host and periodically (SLIPWAY_GIT_POLL_SECONDS). Promises that payloads are not trusted, that the
 * commit of a request is the one in the repository itself, and that a host which does not answer, or not with a list,
 * closes nothing. When the process dies: the lease ends, and the next poll finds the same.
 */
import type { Parts } from '../../api/parts.ts'
import { isValidBranch } from '../../builds/git/names.ts'
import { readGitCredentials } from '../../deployments/credentials/git-credentials.ts'
import { oneLine } from '../../deployments/git-hosts/answers.ts'
import { GitHostError, openGitHost } from '../../deployments/git-hosts/git-host.ts'
import type { PullRequest } from '../../deployments/git-hosts/hosts.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { LeaseHandedOff } from '../../lib/lease-handed-off.ts'
import { requestChannel } from '../../webhooks/inbound/deliveries.ts'
import { createLoop } from '../../work/loop.ts'
import { startTurns } from '../../work/turns.ts'
import {
  claimSources,
  type Found,
  findSources,
  finishSource,
  type PreviewSource,
  readOrigins,
  sourceLeases,
  type Wanted,
} from './source-rows.ts'

const concurrency = 4
const longestPauseMs = 10_000
const patienceMs = 60_000
const minuteMs = 60_000

/** The heads of branches, as the repository has them. */
const readHeads = async (
  { builder, database, sealer }: Parts,
  { organizationId, url, gitTokenId }: PreviewSource,
  branches: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> => {
  const [branch] = branches
  if (branch === undefined) return new Map()
  const { credentials } = await readGitCredentials(database, sealer, { organizationId, gitTokenId, url })
  const source = { organizationId, url, branch, ...(credentials === undefined ? {} : { credentials }) }
  return builder.heads(source, branches, signal)
}

const maxTitle = 200
/** The most pairs of requests and environments that are handled for one repository. */
const maxPairs = 1000
const maxUrl = 2000

/** Only addresses that a browser may follow to the host. */
const pageOf = ({ url }: PullRequest): string =>
  /^https?:\/\/[!#-'*-;=?-~]+$/.test(url) && url.length <= maxUrl ? url : ''

const poll = async (parts: Parts, source: PreviewSource, signal: AbortSignal): Promise<Found> => {
  const { organizationId, url, gitTokenId } = source
  const host = await openGitHost(parts, organizationId, url, gitTokenId)
  if (host === null)
    throw new DeploymentError('git_host_unknown', 'The repository is not at the git host of its git token.')
  const { requests, isComplete } = await host.pullRequests(signal)
  const origins = await readOrigins(parts.database, source)
  const all = origins.flatMap((origin) =>
    requests
      .filter(({ base, branch }) => origin.branches.includes(base) && isValidBranch(branch))
      .map((request) => ({ origin, request })),
  )
  const pairs = all.slice(0, maxPairs)
  const own = pairs.filter(({ request }) => !request.isFork).map(({ request }) => request.branch)
  const heads = await readHeads(parts, source, [...new Set(own)], signal)
  const wanted: Wanted[] = pairs.map(({ origin, request }) => ({
    ...{ originId: origin.environmentId, projectId: origin.projectId, number: request.number },
    ...{ title: oneLine(request.title, maxTitle), url: pageOf(request) },
    ...{ branch: request.branch, isFork: request.isFork },
    commitId: request.isFork ? null : (heads.get(request.branch) ?? null),
  }))
  return { wanted, open: isComplete ? requests.map(({ number }) => number) : null }
}

const pollOrNote = async (parts: Parts, pollSeconds: number, source: PreviewSource, signal: AbortSignal) => {
  try {
    const found = await poll(parts, source, AbortSignal.any([signal, AbortSignal.timeout(patienceMs)]))
    await finishSource(parts.database, source, pollSeconds, found)
  } catch (error) {
    if (signal.aborted || error instanceof LeaseHandedOff) throw error
    const isKnown = error instanceof DeploymentError || error instanceof GitHostError
    if (!isKnown) parts.log.warn({ err: error, repository: source.id }, 'pull requests could not be read')
    const message = isKnown ? error.message : "The pull requests could not be read: see the server's log."
    const code = isKnown ? error.code : 'internal'
    await finishSource(parts.database, source, pollSeconds, { error: { code, message } })
  }
}

export const startSources = async (
  parts: Parts,
  worker: string,
  pollSeconds: number,
): Promise<{ stop(): Promise<void> }> => {
  const { database } = parts
  const polls = await startTurns<PreviewSource>(parts, worker, {
    ...{ name: 'pull requests', concurrency, longestPauseMs, leases: sourceLeases },
    about: ({ id }) => ({ repository: id }),
    claim: claimSources,
    run: (source, signal) => pollOrNote(parts, pollSeconds, source, signal),
    failed: 'polling pull requests was interrupted and waits for its next claim',
  })
  const finding = createLoop(parts, {
    name: 'previewed repositories',
    periodMs: minuteMs,
    failed: 'some pull requests may not be seen',
    async run() {
      await findSources(database)
      polls.wake()
    },
  })
  const leave = await database.listen(requestChannel, () => finding.wake())
  return {
    async stop() {
      leave()
      await finding.stop()
      await polls.stop()
    },
  }
}
