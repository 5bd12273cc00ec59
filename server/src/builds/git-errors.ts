/** What git said, as a deployment's error. Pure: the sentences are ours, so they hold no credentials. */
import { DeploymentError } from '../lib/errors.ts'

export const refMissing = (message: string): DeploymentError => new DeploymentError('git_ref_missing', message)

export const refused = (message: string, cause?: unknown): DeploymentError =>
  new DeploymentError('git_refused', message, { cause })

export const unreachable = (message: string, cause?: unknown): DeploymentError =>
  new DeploymentError('git_unreachable', message, { next: 'retry', cause })

const denied = (message: string): DeploymentError => new DeploymentError('git_denied', message)

/** What git says when it meets its limit of memory: of its own, of its threads, of its libraries. */
const outOfMemory =
  /out of memory|cannot allocate memory|unable to create (?:threaded|thread)|mmap failed|malloc failed/i
const tooMuchMemory = 'git needs more memory for this repository than it may have (SLIPWAY_GIT_MEMORY_MB).'

type Meaning = [pattern: RegExp, error: (host: string) => DeploymentError]

const meanings: Meaning[] = [
  [outOfMemory, () => refused(tooMuchMemory)],
  [/died of signal 25|File too large/i, () => refused('A pack of the repository is larger than may be kept.')],
  [
    /returned error: 30\d|unable to update url base from redirection|redirect/i,
    (host) => refused(`${host} sends us to another address, and redirects are not followed: use the final address.`),
  ],
  [
    /Authentication failed|could not read (Username|Password)|returned error: 40[13]|terminal prompts disabled/i,
    (host) => denied(`${host} does not let us read this repository: check the git token of the service.`),
  ],
  [
    /repository .* not found|returned error: 40[04]|returned error: 410/i,
    (host) => denied(`${host} has no such repository, or does not show it with this git token.`),
  ],
  [/Could not resolve host/i, (host) => unreachable(`The name ${host} could not be resolved.`)],
  [
    /Connection refused|Failed to connect|No route to host|Connection timed out|Couldn't connect/i,
    (host) => unreachable(`${host} could not be connected to.`),
  ],
  [/SSL|certificate/i, (host) => refused(`The certificate of ${host} could not be verified.`)],
  [
    /transport '.*' not allowed|protocol '.*' is not supported/i,
    () => refused('Only https addresses are used for git.'),
  ],
  [/No space left on device/i, () => unreachable('There is no space left for the copy of the repository.')],
]

/** `stderr` of a git program that talked to `host` and failed. */
export const explainGit = (stderr: string, host: string): DeploymentError => {
  const meaning = meanings.find(([pattern]) => pattern.test(stderr))
  return meaning?.[1](host) ?? unreachable(`${host} did not answer as a git server.`)
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
