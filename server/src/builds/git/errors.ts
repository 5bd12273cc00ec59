/** Errors of git or its host, as deployment errors. Pure: the sentences are ours, so they contain no credentials. */
import { DeploymentError } from '../../lib/errors.ts'
import { OutboundFailed, OutboundRefused } from '../../lib/net/outbound.ts'

export const refMissing = (message: string): DeploymentError => new DeploymentError('git_ref_missing', message)

const mostListed = 5

/** `branches`: those that there are. */
export const branchMissing = (branch: string, branches: readonly string[]): DeploymentError => {
  const more = branches.length > mostListed ? ` and ${branches.length - mostListed} more` : ''
  const there =
    branches.length === 0
      ? ''
      : ` It has: ${branches
          .slice(0, mostListed)
          .map((name) => name.slice(0, 60))
          .join(', ')}${more}.`
  return refMissing(`The repository has no branch ${branch}.${there}`)
}

/** The same of a repository on this server itself. */
export const nothingPushed = (branch: string, branches: readonly string[]): DeploymentError =>
  branches.length > 0
    ? branchMissing(branch, branches)
    : refMissing(`Nothing has been pushed to the branch ${branch} of this application's repository yet.`)

export const refused = (message: string, cause?: unknown): DeploymentError =>
  new DeploymentError('git_refused', message, { cause })

const unreachable = (message: string, cause?: unknown): DeploymentError =>
  new DeploymentError('git_unreachable', message, { next: 'retry', cause })

const denied = (message: string): DeploymentError => new DeploymentError('git_denied', message)

/** What git says at its memory limit: its own messages, those of its threads and libraries. */
const outOfMemory =
  /out of memory|cannot allocate memory|unable to create (?:threaded|thread)|mmap failed|malloc failed/i
const tooMuchMemory = 'git needs more memory for this repository than SLIPWAY_GIT_MEMORY_MB allows.'

type Explain = (host: string) => DeploymentError

const redirected: Explain = (host) =>
  refused(`${host} redirects to another address, and redirects are not followed: use the final address.`)

const forbidden: Explain = (host) =>
  denied(`${host} denied access to this repository: check the git token of the service.`)

const notThere: Explain = (host) =>
  denied(`${host} has no such repository, or it is not accessible with this git token.`)

const unknownName: Explain = (host) => unreachable(`The host name ${host} could not be resolved.`)

const noConnection: Explain = (host) => unreachable(`Could not connect to ${host}.`)

const badCertificate: Explain = (host) => refused(`The certificate of ${host} could not be verified.`)

export const notGit: Explain = (host) => unreachable(`${host} did not answer as a git server.`)

export const tooSlow = (host: string, timeoutMs: number, cause: unknown): DeploymentError =>
  unreachable(`${host} did not answer within ${Math.ceil(timeoutMs / 1000)} s.`, cause)

type Meaning = [pattern: RegExp, error: Explain]

const meanings: Meaning[] = [
  [outOfMemory, () => refused(tooMuchMemory)],
  [/died of signal 25|File too large/i, () => refused('The repository has a pack that is too large.')],
  [/returned error: 30\d|unable to update url base from redirection|redirect/i, redirected],
  [
    /Authentication failed|could not read (Username|Password)|returned error: 40[13]|terminal prompts disabled/i,
    forbidden,
  ],
  [/repository .* not found|returned error: 40[04]|returned error: 410/i, notThere],
  [/Could not resolve host/i, unknownName],
  [/Connection refused|Failed to connect|No route to host|Connection timed out|Couldn't connect/i, noConnection],
  [/SSL|certificate/i, badCertificate],
  [/transport '.*' not allowed|protocol '.*' is not supported/i, () => refused('Only https URLs are allowed for git.')],
  [/No space left on device/i, () => unreachable('Not enough disk space to clone the repository.')],
]

/** `stderr` of a git program that failed while connected to `host`. */
export const explainGit = (stderr: string, host: string): DeploymentError => {
  const meaning = meanings.find(([pattern]) => pattern.test(stderr))
  return (meaning?.[1] ?? notGit)(host)
}

/** The status, or the message, with which a git host refused to list its references. */
export const explainRefusal = (host: string, status: number, words = ''): DeploymentError => {
  if (status >= 300 && status < 400) return redirected(host)
  if (status === 401 || status === 403) return forbidden(host)
  if ([400, 404, 410].includes(status) || /not found|denied|does not exist/i.test(words)) return notThere(host)
  return notGit(host)
}

/** Why our own client got no response. */
export const explainOutbound = (error: unknown, host: string): unknown => {
  if (error instanceof OutboundRefused)
    return refused(`Connections to ${host} are not allowed: ${error.message}.`, error)
  if (!(error instanceof OutboundFailed)) return error
  if (error.code === 'unresolved') return unknownName(host)
  if (error.code !== 'connection') return unreachable(`${host} cannot be reached: ${error.message}.`, error)
  return /CERT|SELF_SIGNED|UNABLE_TO_|SSL|TLS/.test(error.message) ? badCertificate(host) : noConnection(host)
}

/** The error of a git process that read a mirror, if a limit explains it, else null. */
export const explainLimits = (stderr: string): DeploymentError | null =>
  outOfMemory.test(stderr) ? refused(tooMuchMemory) : null

/** The server does not serve a commit by its id: its branch must be fetched instead. */
export const isNotHandedOut = (stderr: string): boolean =>
  /not our ref|unadvertised object|no such remote ref|couldn't find remote ref|not allow request/i.test(stderr)

export const isLocked = (stderr: string): boolean => /\.lock': File exists/.test(stderr)

/** The mirror itself is broken; a new one will work. */
export const isBroken = (stderr: string): boolean =>
  /not a git repository|corrupt|bad object|loose object|unable to read (tree|sha1)|invalid pack|shallow file has changed/i.test(
    stderr,
  )
