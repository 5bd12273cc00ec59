/** What git or its host said, as a deployment's error. Pure: the sentences are ours, so they hold no credentials. */
import { DeploymentError } from '../lib/errors.ts'
import { OutboundFailed, OutboundRefused } from '../lib/outbound.ts'

export const refMissing = (message: string): DeploymentError => new DeploymentError('git_ref_missing', message)

export const refused = (message: string, cause?: unknown): DeploymentError =>
  new DeploymentError('git_refused', message, { cause })

const unreachable = (message: string, cause?: unknown): DeploymentError =>
  new DeploymentError('git_unreachable', message, { next: 'retry', cause })

const denied = (message: string): DeploymentError => new DeploymentError('git_denied', message)

/** What git says when it meets its limit of memory: of its own, of its threads, of its libraries. */
const outOfMemory =
  /out of memory|cannot allocate memory|unable to create (?:threaded|thread)|mmap failed|malloc failed/i
const tooMuchMemory = 'git needs more memory for this repository than it may have (SLIPWAY_GIT_MEMORY_MB).'

type Explain = (host: string) => DeploymentError

const redirected: Explain = (host) =>
  refused(`${host} sends us to another address, and redirects are not followed: use the final address.`)

const forbidden: Explain = (host) =>
  denied(`${host} does not let us read this repository: check the git token of the service.`)

const notThere: Explain = (host) => denied(`${host} has no such repository, or does not show it with this git token.`)

const unknownName: Explain = (host) => unreachable(`The name ${host} could not be resolved.`)

const noConnection: Explain = (host) => unreachable(`${host} could not be connected to.`)

const badCertificate: Explain = (host) => refused(`The certificate of ${host} could not be verified.`)

export const notGit: Explain = (host) => unreachable(`${host} did not answer as a git server.`)

export const tooSlow = (host: string, timeoutMs: number, cause: unknown): DeploymentError =>
  unreachable(`${host} did not answer within ${Math.ceil(timeoutMs / 1000)} s.`, cause)

type Meaning = [pattern: RegExp, error: Explain]

const meanings: Meaning[] = [
  [outOfMemory, () => refused(tooMuchMemory)],
  [/died of signal 25|File too large/i, () => refused('A pack of the repository is larger than may be kept.')],
  [/returned error: 30\d|unable to update url base from redirection|redirect/i, redirected],
  [
    /Authentication failed|could not read (Username|Password)|returned error: 40[13]|terminal prompts disabled/i,
    forbidden,
  ],
  [/repository .* not found|returned error: 40[04]|returned error: 410/i, notThere],
  [/Could not resolve host/i, unknownName],
  [/Connection refused|Failed to connect|No route to host|Connection timed out|Couldn't connect/i, noConnection],
  [/SSL|certificate/i, badCertificate],
  [
    /transport '.*' not allowed|protocol '.*' is not supported/i,
    () => refused('Only https addresses are used for git.'),
  ],
  [/No space left on device/i, () => unreachable('There is no space left for the copy of the repository.')],
]

/** `stderr` of a git program that talked to `host` and failed. */
export const explainGit = (stderr: string, host: string): DeploymentError => {
  const meaning = meanings.find(([pattern]) => pattern.test(stderr))
  return (meaning?.[1] ?? notGit)(host)
}

/** The status with which a git host refused to list its references, or the words with which it did. */
export const explainRefusal = (host: string, status: number, words = ''): DeploymentError => {
  if (status >= 300 && status < 400) return redirected(host)
  if (status === 401 || status === 403) return forbidden(host)
  if ([400, 404, 410].includes(status) || /not found|denied|does not exist/i.test(words)) return notThere(host)
  return notGit(host)
}

/** Why our own client did not get an answer. */
export const explainOutbound = (error: unknown, host: string): unknown => {
  if (error instanceof OutboundRefused) return refused(`${host} may not be reached: ${error.message}.`, error)
  if (!(error instanceof OutboundFailed)) return error
  if (error.code === 'unresolved') return unknownName(host)
  if (error.code !== 'connection') return unreachable(`${host} cannot be reached: ${error.message}.`, error)
  return /CERT|SELF_SIGNED|UNABLE_TO_|SSL|TLS/.test(error.message) ? badCertificate(host) : noConnection(host)
}

/** What a git that read a mirror ended with, where a limit explains it; null where none does. */
export const explainLimits = (stderr: string): DeploymentError | null =>
  outOfMemory.test(stderr) ? refused(tooMuchMemory) : null

/** The server does not hand out a commit by its id: its branch must be fetched instead. */
export const isNotHandedOut = (stderr: string): boolean =>
  /not our ref|unadvertised object|no such remote ref|couldn't find remote ref|not allow request/i.test(stderr)

export const isLocked = (stderr: string): boolean => /\.lock': File exists/.test(stderr)

/** The mirror itself is at fault; a new one will do. */
export const isBroken = (stderr: string): boolean =>
  /not a git repository|corrupt|bad object|loose object|unable to read (tree|sha1)|invalid pack|shallow file has changed/i.test(
    stderr,
  )
