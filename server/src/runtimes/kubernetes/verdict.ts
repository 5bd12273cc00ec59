/**
 * Why a version does not become ready, from the cluster's reports about its pods: one sentence, and what to do. Pure.
 */
import { explainExitCode, outOfMemory } from '../../lib/exit-codes.ts'
import { sanitizeText } from '../../lib/sanitize-text.ts'
import { explainRefusal } from './objects.ts'
import { type Condition, conditionOf, isOver, mainOf, type Pod } from './pods.ts'

export interface Verdict {
  code: string
  message: string
  /** Waiting will not fix it. */
  isFinal: boolean
}

/** An event that the cluster's own parts report about an object. */
export interface ClusterEvent {
  metadata: { name: string }
  type?: string
  reason?: string
  message?: string
  lastTimestamp?: string | null
  eventTime?: string | null
  involvedObject?: { kind?: string; name?: string }
}

const exitsAllowed = 3

const longestText = 4000

/** The cluster's message, as an end of a sentence. */
const plainOf = (text: string | undefined): string =>
  sanitizeText((text ?? '').slice(0, longestText))
    .replaceAll(/\s+/g, ' ')
    .trim()
    .replace(/\.$/, '')

const short = (plain: string): string => (plain.length > 300 ? `${plain.slice(0, 300)}…` : plain)

export const said = (text: string | undefined): string => short(plainOf(text))

const final = (code: string, message: string): Verdict => ({ code, message, isFinal: true })
const passing = (code: string, message: string): Verdict => ({ code, message, isFinal: false })

const missing = /not found|manifest unknown|no such (image|manifest)|does not exist|name unknown/i
const denied = /unauthori[sz]ed|denied|forbidden|authentication required|\b40[13]\b/i

/** Machines name the image first, with its digest twice, and the reason at the end. */
const causeIn = (text: string): string => {
  const mark = 'failed to resolve reference "'
  const end = text.indexOf('": ', text.lastIndexOf(mark) + mark.length)
  return text.includes(mark) && end !== -1 ? text.slice(end + 3) : text
}

/** While a machine pulls, the registry may be briefly unreachable; a refusal by the registry is lasting. */
const pulling = (image: string, text: string): Verdict => {
  const cause = causeIn(text)
  const message = short(cause)
  if (denied.test(cause) && !/not found/i.test(cause))
    return final(
      'image_denied',
      `The cluster may not pull the image ${image} (${message}): give the service a registry with a login that may read it.`,
    )
  if (missing.test(cause))
    return final(
      'image_missing',
      `The cluster cannot pull the image ${image}, because its registry has no such image (${message}): check its name and tag.`,
    )
  return passing(
    'image_unreachable',
    `The cluster cannot pull the image ${image} (${message}): check that its machines reach the registry.`,
  )
}

/** How machines report an API server that is briefly unreachable. */
const unreached =
  /failed to sync|timed out waiting|i\/o timeout|handshake timeout|deadline exceeded|connection (refused|reset)|no route to host|service unavailable|too many requests|etcdserver/i

const configError = (message: string): Verdict => {
  if (/runAsNonRoot|non-root|cannot verify user/i.test(message))
    return final(
      'runs_as_root',
      `The image runs as root or as a user without a number, which environments on a Kubernetes cluster do not allow (${message}): set USER to a number in its Dockerfile, or ask the operator of this server for another user (SLIPWAY_KUBERNETES_RUN_AS).`,
    )
  if (unreached.test(message))
    return passing(
      'cannot_start',
      `A machine of the cluster cannot ask its API server for what the container needs (${message}).`,
    )
  return final(
    'configuration_error',
    `The cluster cannot configure the container (${message}): check the variables, files and command of the service.`,
  )
}

const starting = (message: string): Verdict => {
  const exec = /exec:? "?([^":]{1,200})"?: (.{1,100}?)(:|$)/.exec(message)
  const what = exec === null ? message : `its command ${exec[1]} cannot be started: ${exec[2]}`
  return final(
    'cannot_start',
    `The container cannot be started (${what}): check the command and the entrypoint of the service.`,
  )
}

const waiting = (image: string, reason: string, message: string | undefined): Verdict | null => {
  const text = said(message)
  if (reason === 'InvalidImageName') return final('image_missing', `The image ${image} has no valid name (${text}).`)
  if (/^(ErrImagePull|ImagePullBackOff|ErrImageNeverPull|RegistryUnavailable|ImageInspectError)$/.test(reason))
    return pulling(image, plainOf(message) || reason)
  if (reason === 'CreateContainerConfigError') return configError(text)
  if (/^(CreateContainerError|RunContainerError|StartError)$/.test(reason)) return starting(text)
  if (reason === 'PostStartHookError') return hookFailed(text)
  return null
}

/** How it ended last, and how often: a container that does not run has ended once more than it was restarted. */
const exitsOf = (pod: Pod) => {
  const main = mainOf(pod)
  const ended = main?.state?.terminated ?? main?.lastState?.terminated
  const exits = (main?.restartCount ?? 0) + (main?.state?.running === undefined ? 1 : 0)
  const code = ended?.exitCode ?? 0
  return ended === undefined || exits === 0
    ? null
    : { ended, exits, how: `exit code ${code}: ${explainExitCode(code)}` }
}

const ending = (pod: Pod, memoryMb: number): Verdict | null => {
  const found = exitsOf(pod)
  if (found === null) return null
  const { ended, exits, how } = found
  if (ended.reason === 'OOMKilled')
    return final('out_of_memory', `The service ran out of memory (OOMKilled): ${outOfMemory(memoryMb)}.`)
  if (ended.reason === 'StartError' || ended.reason === 'ContainerCannotRun') return starting(said(ended.message))
  if (exits < exitsAllowed) return null
  return final('crash_loop', `The service exited ${exits} times instead of becoming ready (${how}).`)
}

/** Too rarely to be sure. */
const endedBefore = (pod: Pod): Verdict | null => {
  const found = exitsOf(pod)
  if (found === null) return null
  const times = found.exits === 1 ? 'once' : `${found.exits} times`
  return passing('crash_loop', `The service exited ${times} (${found.how}), and the cluster starts it again.`)
}

const hookFailed = (text: string): Verdict =>
  final(
    'post_start_failed',
    `The post-start command failed (${text}): check that the image has it, and that it ends with code 0.`,
  )

const scheduling = ({ message: text }: Condition): Verdict => {
  const why = said(text)
  if (/unbound immediate PersistentVolumeClaims|persistentvolumeclaim "[^"]*" not found/i.test(why))
    return passing(
      'volume_pending',
      `A volume of the service does not exist yet (${why}): the cluster needs a default StorageClass, or one in its advanced settings, that can make one of this size.`,
    )
  return passing(
    'unschedulable',
    `No machine of the cluster has room for an instance (${why}): lower the memory or CPU of the service, or add machines.`,
  )
}

/** Reported only by events. */
const toldOf = (events: readonly ClusterEvent[], pod: Pod): ((reason: RegExp) => string | null) => {
  const own = events.filter(({ involvedObject }) => involvedObject?.name === pod.metadata.name)
  return (reason) => {
    const found = own.findLast((event) => reason.test(event.reason ?? ''))
    return found === undefined ? null : said(found.message)
  }
}

/** Null: it may yet become ready. */
export const judgePod = (pod: Pod, memoryMb: number, events: readonly ClusterEvent[]): Verdict | null => {
  const main = mainOf(pod)
  const scheduled = conditionOf(pod, 'PodScheduled')
  if (scheduled?.status === 'False') return scheduling(scheduled)
  const ended = ending(pod, memoryMb)
  if (ended !== null) return ended
  if (isOver(pod)) {
    const why = said(pod.status?.message ?? pod.status?.reason)
    return passing('evicted', `An instance was ended by the cluster (${why}).`)
  }
  const { reason = '', message } = main?.state?.waiting ?? {}
  const told = toldOf(events, pod)
  const hook = told(/^FailedPostStartHook$/)
  if (hook !== null) return hookFailed(hook)
  const found = waiting(main?.image ?? imageOf(pod), reason, message)
  if (found !== null) return found
  const mount = told(/^(FailedMount|FailedAttachVolume)$/)
  if (mount !== null && main?.state?.running === undefined)
    return passing('volume_pending', `A volume of the service cannot be attached (${mount}).`)
  const sandbox = told(/^FailedCreatePodSandBox$/)
  if (sandbox !== null && main?.state?.running === undefined)
    return passing('cannot_start', `A machine of the cluster cannot start the instance (${sandbox}).`)
  const probe = main?.state?.running === undefined ? null : told(/^Unhealthy$/)
  return probe === null
    ? endedBefore(pod)
    : passing('not_ready', `Its probe fails (${probe}): check the port and path that it asks, and what the log says.`)
}

const imageOf = (pod: Pod): string => {
  const containers = pod.spec?.containers
  const first: unknown = Array.isArray(containers) ? containers[0] : undefined
  return String((first as { image?: unknown } | undefined)?.image ?? '')
}

/** For a version that has too few pods: why the cluster creates none. `name` is that of its controller. */
export const judgeController = (
  conditions: readonly Condition[],
  events: readonly ClusterEvent[],
  name: string,
): Verdict | null => {
  const failed = conditions.find(({ type, status }) => type === 'ReplicaFailure' && status === 'True')
  // Reported about the controller, or about the object that it created to create the pods.
  const isOf = (of = ''): boolean => of === name || of.startsWith(`${name}-`)
  const told = events.findLast(({ reason, involvedObject }) => reason === 'FailedCreate' && isOf(involvedObject?.name))
  const text = failed?.message ?? told?.message
  if (text === undefined) return null
  const known = explainRefusal(said(text), 'the instances of the service')
  if (known !== null) return final(known.code, known.message)
  return passing('cannot_start', `The cluster makes no instance of the service (${said(text)}).`)
}
