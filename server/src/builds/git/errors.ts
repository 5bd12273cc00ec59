/** Errors of git or its host, as deployment errors. Pure: the sentences are ours, so they contain no credentials. */
import { DeploymentError } from '../../lib/errors.ts'
import { OutboundFailed, OutboundRefused } from '../../lib/net/outbound.ts'
import { type Headers, isRateLimited, rateLimitWaitMs, untilWhen } from '../../lib/net/rate-limit.ts'
import type { GitSource } from '../builder.ts'

export const refMissing = (message: string): DeploymentError => new DeploymentError('git_ref_missing', message)

const mostListed = 5

/** `branch`: the configured name. `branches`: the existing ones. */
export const branchMissing = (branch: string, branches: readonly string[]): DeploymentError => {
  const more = branches.length > mostListed ? ` and ${branches.length - mostListed} more` : ''
  const there =
    branches.length === 0
      ? ''
      : ` It has: ${branches
          .slice(0, mostListed)
          .map((name) => name.slice(0, 60))
          .join(', ')}${more}.`
  return refMissing(`The repository has no branch ${branch} and no tag of this name.${there}`)
}

export const nothingPushed = (branch: string, branches: readonly string[]): DeploymentError =>
  branches.length > 0
    ? branchMissing(branch, branches)
    : refMissing(`Nothing has been pushed to the branch ${branch} of this application's repository yet.`)

export const refused = (message: string, cause?: unknown): DeploymentError =>
  new DeploymentError('git_refused', message, { cause })

const unreachable = (message: string, cause?: unknown): DeploymentError =>
  new DeploymentError('git_unreachable', message, { next: 'retry', cause })

const denied = (message: string): DeploymentError => new DeploymentError('git_denied', message)

/** Git's messages at its memory limit: its own, those of its threads and libraries. */
const outOfMemory =
  /out of memory|cannot allocate memory|unable to create (?:threaded|thread)|mmap failed|malloc failed/i
const tooMuchMemory = 'git needs more memory for this repository than SLIPWAY_GIT_MEMORY_MB allows.'

/** A git host, and whether it was sent a git token: a message names a token only if there was one. */
export interface AskedHost {
  host: string
  hasToken: boolean
}

export const askedHost = ({ url, credentials }: Pick<GitSource, 'url' | 'credentials'>): AskedHost => ({
  host: new URL(url).hostname,
  hasToken: credentials !== undefined,
})

type Explain = (asked: AskedHost) => DeploymentError

const redirected: Explain = ({ host }) =>
  refused(`${host} redirects to another address, and redirects are not followed: use the final address.`)

const forbidden: Explain = ({ host, hasToken }) =>
  hasToken
    ? denied(`${host} denied access to this repository: check the git token of the service.`)
    : needsToken({ host, hasToken })

/** Hosts give this answer for private repositories and for those they do not have. */
const needsToken: Explain = ({ host }) =>
  denied(`${host} has no such repository, or it is private: check its URL, or choose a git token for it.`)

const notThere: Explain = (asked) =>
  asked.hasToken
    ? denied(`${asked.host} has no such repository, or it is not accessible with this git token.`)
    : needsToken(asked)

const unknownName: Explain = ({ host }) => unreachable(`The host name ${host} could not be resolved.`)

const noConnection: Explain = ({ host }) => unreachable(`Could not connect to ${host}.`)

const badCertificate: Explain = ({ host }) => refused(`The certificate of ${host} could not be verified.`)

const stopped: Explain = ({ host }) => unreachable(`${host} stopped sending the repository before it was complete.`)

export const notGit: Explain = ({ host }) => unreachable(`${host} did not answer as a git server.`)

export const tooSlow = (host: string, timeoutMs: number, cause: unknown): DeploymentError =>
  unreachable(`${host} did not answer within ${Math.ceil(timeoutMs / 1000)} s.`, cause)

/** A wait longer than this is left to the next deployment. */
const longestRetryMs = 5000

const limited = (host: string, status: number, headers: Headers): DeploymentError => {
  const nowMs = Date.now()
  const next = rateLimitWaitMs(headers, nowMs) > longestRetryMs ? 'stop' : 'retry'
  const message = `${host} has received too many requests and refuses more${untilWhen(headers, nowMs)} (status ${status}).`
  return new DeploymentError('git_unreachable', message, { next })
}

/** The status with which a git host, or its LFS server, refused a request. */
export const explainStatus = (asked: AskedHost, status: number, headers: Headers = {}): DeploymentError => {
  if (status >= 300 && status < 400) return redirected(asked)
  if (isRateLimited(status, headers)) return limited(asked.host, status, headers)
  if (status === 401 || status === 403) return forbidden(asked)
  if ([400, 404, 410].includes(status)) return notThere(asked)
  return unreachable(`${asked.host} answered with the HTTP status ${status}.`)
}

type Meaning = [pattern: RegExp, error: Explain]

const meanings: Meaning[] = [
  [outOfMemory, () => refused(tooMuchMemory)],
  [/died of signal 25|File too large/i, () => refused('The repository has a pack that is too large.')],
  [/unable to update url base from redirection|redirect/i, redirected],
  [/Authentication failed|could not read (Username|Password)|terminal prompts disabled/i, forbidden],
  [/repository .* not found/i, notThere],
  [/Could not resolve host/i, unknownName],
  [/Connection refused|Failed to connect|No route to host|Connection timed out|Couldn't connect/i, noConnection],
  [/Operation too slow|Operation timed out|early EOF|unexpected disconnect/i, stopped],
  [/certificate/i, badCertificate],
  [/SSL|TLS/, ({ host }) => unreachable(`The TLS connection to ${host} failed.`)],
  [/transport '.*' not allowed|protocol '.*' is not supported/i, () => refused('Only https URLs are allowed for git.')],
  [/No space left on device/i, () => unreachable('Not enough disk space to clone the repository.')],
]

/** `stderr` of a git program that failed while connected to `asked`. */
export const explainGit = (stderr: string, asked: AskedHost): DeploymentError => {
  const status = /returned error: ([3-5]\d\d)/i.exec(stderr)?.[1]
  if (status !== undefined) return explainStatus(asked, Number(status))
  const meaning = meanings.find(([pattern]) => pattern.test(stderr))
  return (meaning?.[1] ?? notGit)(asked)
}

/** The message with which a git host refused to list its references. */
export const explainWords = (asked: AskedHost, words: string): DeploymentError =>
  /not found|denied|does not exist/i.test(words) ? notThere(asked) : notGit(asked)

export const explainOutbound = (error: unknown, asked: AskedHost): unknown => {
  const { host } = asked
  if (error instanceof OutboundRefused)
    return refused(`Connections to ${host} are not allowed: ${error.message}.`, error)
  if (!(error instanceof OutboundFailed)) return error
  if (error.code === 'unresolved') return unknownName(asked)
  if (error.code === 'connection') {
    if (/CERT|SELF_SIGNED|UNABLE_TO_/.test(error.message)) return badCertificate(asked)
    if (error.phase === null || error.phase === 'connect') return noConnection(asked)
  }
  return unreachable(`${host} cannot be reached: ${error.message}.`, error)
}

/** The error of a git process that read a mirror, if a limit explains it, else null. */
export const explainLimits = (stderr: string): DeploymentError | null =>
  outOfMemory.test(stderr) ? refused(tooMuchMemory) : null

export const isMissingRef = (stderr: string): boolean => /couldn't find remote ref/i.test(stderr)

/** The server does not serve a commit by its id: its branch must be fetched instead. */
export const isNotHandedOut = (stderr: string): boolean =>
  /not our ref|unadvertised object|no such remote ref|couldn't find remote ref|not allow request/i.test(stderr)

export const isLocked = (stderr: string): boolean => /\.lock': File exists/.test(stderr)

/** The mirror itself is broken; a new one will work. */
export const isBroken = (stderr: string): boolean =>
  /not a git repository|corrupt|bad object|loose object|unable to read (tree|sha1)|invalid pack|shallow file has changed/i.test(
    stderr,
  )
