/** Why a version does not become ready, from what the cluster says of its pods: one sentence, and what to do. Pure. */
import { explainExitCode, outOfMemory } from '../../lib/exit-codes.ts'
import { sanitizeText } from '../../lib/sanitize-text.ts'
import { explainRefusal } from './objects.ts'
import { type Condition, conditionOf, isOver, mainOf, type Pod } from './pods.ts'

export interface Verdict {
  code: string
  message: string
  /** Nothing will mend it while one waits. */
  isFinal: boolean
}

/** What the cluster's own parts tell of an object. */
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

/** What the cluster said, as an end of a sentence. */
export const said = (text: string | undefined): string => {
  const plain = sanitizeText(text ?? '')
    .replaceAll(/\s+/g, ' ')
    .trim()
    .replace(/\.$/, '')
  return plain.length > 300 ? `${plain.slice(0, 300)}…` : plain
}

const final = (code: string, message: string): Verdict => ({ code, message, isFinal: true })
const passing = (code: string, message: string): Verdict => ({ code, message, isFinal: false })

const missing = /not found|manifest unknown|no such (image|manifest)|does not exist|name unknown/i
const denied = /unauthori[sz]ed|denied|forbidden|authentication required|401|403/i

/** While a machine pulls, it may find the registry away for a moment; what the registry says no with stays. */
const pulling = (image: string, message: string): Verdict => {
  if (denied.test(message) && !/not found/i.test(message))
    return final(
      'image_denied',
      `The cluster may not pull the image ${image} (${message}): give the service a registry with a login that may read it.`,
    )
  if (missing.test(message))
    return final(
      'image_missing',
      `The cluster cannot pull the image ${image}, because its registry has no such image (${message}): check its name and tag.`,
    )
  return passing(
    'image_unreachable',
    `The cluster cannot pull the image ${image} (${message}): check that its machines reach the registry.`,
  )
}

const configError = (message: string): Verdict => {
  if (/runAsNonRoot|non-root|cannot verify user/i.test(message))
    return final(
      'runs_as_root',
      `The image runs as root or as a user without a number, which environments on a Kubernetes cluster do not allow (${message}): set USER to a number in its Dockerfile, or ask the operator of this server for another user (SLIPWAY_KUBERNETES_RUN_AS).`,
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

const waiting = (image: string, reason: string, text: string): Verdict | null => {
  if (reason === 'InvalidImageName') return final('image_missing', `The image ${image} has no valid name (${text}).`)
  if (/^(ErrImagePull|ImagePullBackOff|ErrImageNeverPull|RegistryUnavailable|ImageInspectError)$/.test(reason))
    return pulling(image, text || reason)
  if (reason === 'CreateContainerConfigError') return configError(text)
  if (/^(CreateContainerError|RunContainerError|StartError)$/.test(reason)) return starting(text)
  if (reason === 'PostStartHookError') return final('post_start_failed', `The post-start command failed (${text}).`)
  return null
}

const ending = (pod: Pod, memoryMb: number): Verdict | null => {
  const main = mainOf(pod)
  const ended = main?.state?.terminated ?? main?.lastState?.terminated
  const exits = (main?.restartCount ?? 0) + (main?.state?.terminated === undefined ? 0 : 1)
  if (ended === undefined || exits === 0) return null
  if (ended.reason === 'OOMKilled')
    return final('out_of_memory', `The service ran out of memory (OOMKilled): ${outOfMemory(memoryMb)}.`)
  if (ended.reason === 'StartError' || ended.reason === 'ContainerCannotRun') return starting(said(ended.message))
  if (exits < exitsAllowed) return null
  const code = ended.exitCode ?? 0
  const how = `exit code ${code}: ${explainExitCode(code)}`
  return final('crash_loop', `The service exited ${exits} times instead of becoming ready (${how}).`)
}

const scheduling = ({ message: text }: Condition): Verdict => {
  const why = said(text)
  if (/unbound immediate PersistentVolumeClaims|persistentvolumeclaim "[^"]*" not found/i.test(why))
    return passing(
      'volume_pending',
      `A volume of the service does not exist yet (${why}): the cluster needs a default StorageClass that can make one of this size.`,
    )
  return passing(
    'unschedulable',
    `No machine of the cluster has room for an instance (${why}): lower the memory or CPU of the service, or add machines.`,
  )
}

/** What is told by events alone. */
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
  if (hook !== null) return final('post_start_failed', `The post-start command failed (${hook}).`)
  const found = waiting(main?.image ?? imageOf(pod), reason, said(message))
  if (found !== null) return found
  const mount = told(/^(FailedMount|FailedAttachVolume)$/)
  if (mount !== null && main?.state?.running === undefined)
    return passing('volume_pending', `A volume of the service cannot be attached (${mount}).`)
  const sandbox = told(/^FailedCreatePodSandBox$/)
  if (sandbox !== null && main?.state?.running === undefined)
    return passing('cannot_start', `A machine of the cluster cannot start the instance (${sandbox}).`)
  if (main?.state?.running === undefined) return null
  const probe = told(/^Unhealthy$/)
  return probe === null
    ? null
    : passing('not_ready', `Its probe fails (${probe}): check the port and path that it asks, and what the log says.`)
}

const imageOf = (pod: Pod): string => {
  const containers = pod.spec?.containers
  const first: unknown = Array.isArray(containers) ? containers[0] : undefined
  return String((first as { image?: unknown } | undefined)?.image ?? '')
}

/** Of a version that has too few pods: why the cluster makes none. `name` is that of its controller. */
export const judgeController = (
  conditions: readonly Condition[],
  events: readonly ClusterEvent[],
  name: string,
): Verdict | null => {
  const failed = conditions.find(({ type, status }) => type === 'ReplicaFailure' && status === 'True')
  // Told of the controller, or of what it made to have the pods made.
  const isOf = (of = ''): boolean => of === name || of.startsWith(`${name}-`)
  const told = events.findLast(({ reason, involvedObject }) => reason === 'FailedCreate' && isOf(involvedObject?.name))
  const text = failed?.message ?? told?.message
  if (text === undefined) return null
  const known = explainRefusal(said(text), 'the instances of the service')
  if (known !== null) return final(known.code, known.message)
  return passing('cannot_start', `The cluster makes no instance of the service (${said(text)}).`)
}
