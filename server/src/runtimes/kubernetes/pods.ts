/** Pods as instances: their state in the cluster, and changes between two reads. Pure. */
import { readJson } from '../../lib/foreign-text/read-json.ts'
import type { Instance, InstanceState, LastExit, RuntimeEvent } from '../runtime.ts'
import { annotations, containerName, labels } from './manifests/describe.ts'
import type { Found } from './objects.ts'

interface Terminated {
  exitCode?: number
  signal?: number
  reason?: string
  message?: string
  startedAt?: string
  finishedAt?: string
}

export interface ContainerStatus {
  name: string
  ready?: boolean
  started?: boolean
  restartCount?: number
  image?: string
  state?: {
    waiting?: { reason?: string; message?: string }
    running?: { startedAt?: string }
    terminated?: Terminated
  }
  lastState?: { terminated?: Terminated }
}

export interface Condition {
  type: string
  status: string
  reason?: string
  message?: string
  lastTransitionTime?: string
}

export interface Pod extends Found {
  status?: {
    phase?: string
    reason?: string
    message?: string
    conditions?: Condition[]
    containerStatuses?: ContainerStatus[]
    startTime?: string
  }
}

const isOfChart = ({ metadata }: Found): boolean => metadata.labels?.[labels.chart] !== undefined

/** The main container of a pod: in a chart's pod, the first. */
export const mainNameOf = (pod: Found): string => {
  const [first] = isOfChart(pod) && Array.isArray(pod.spec?.containers) ? (pod.spec.containers as unknown[]) : []
  return String((first as { name?: unknown } | undefined)?.name ?? containerName)
}

export const mainOf = (pod: Pod): ContainerStatus | undefined =>
  pod.status?.containerStatuses?.find(({ name }) => name === mainNameOf(pod))

export const conditionOf = (pod: Pod, type: string): Condition | undefined =>
  pod.status?.conditions?.find((each) => each.type === type)

export const isReady = (pod: Pod): boolean =>
  pod.metadata.deletionTimestamp === undefined && conditionOf(pod, 'Ready')?.status === 'True'

/** It will never run again, and its controller has replaced it. */
export const isOver = ({ status }: Pod): boolean => status?.phase === 'Failed' || status?.phase === 'Succeeded'

export const isTask = ({ metadata }: Found): boolean => metadata.labels?.[labels.task] !== undefined

const stateOf = (pod: Pod): InstanceState => {
  const state = mainOf(pod)?.state
  if (state?.running !== undefined) return 'running'
  if (state?.terminated !== undefined) return isOver(pod) ? 'exited' : 'restarting'
  return (mainOf(pod)?.restartCount ?? 0) > 0 ? 'restarting' : 'starting'
}

const portsIn = (text: string | undefined): number[] => {
  try {
    const ports = readJson(text ?? '[]')
    return Array.isArray(ports) ? ports.filter((port) => Number.isInteger(port)) : []
  } catch {
    return []
  }
}

const exitOf = (ended: Terminated | undefined): LastExit | undefined =>
  ended === undefined
    ? undefined
    : {
        exitCode: ended.exitCode ?? 0,
        oomKilled: ended.reason === 'OOMKilled',
        at: ended.finishedAt ?? new Date(0).toISOString(),
      }

/** It was ready since it started, and no longer is: the condition has changed after the start. */
const isUnready = (pod: Pod): boolean => {
  const startedAt = mainOf(pod)?.state?.running?.startedAt
  const ready = conditionOf(pod, 'Ready')
  if (startedAt === undefined || ready?.status !== 'False') return false
  return Date.parse(ready.lastTransitionTime ?? '') > Date.parse(startedAt)
}

const toInstance = (pod: Pod, index: number): Instance => {
  const own = pod.metadata.labels ?? {}
  const main = mainOf(pod)
  const [state, lastExit] = [stateOf(pod), exitOf(main?.lastState?.terminated ?? main?.state?.terminated)]
  const ended = main?.state?.terminated
  return {
    id: pod.metadata.name,
    name: pod.metadata.name,
    organizationId: own[labels.organization] ?? '',
    environmentId: own[labels.environment] ?? '',
    serviceId: own[labels.service] ?? '',
    revision: own[labels.revision] ?? '',
    index,
    state,
    exitCode: state === 'running' ? null : (ended?.exitCode ?? lastExit?.exitCode ?? null),
    oomKilled: state !== 'running' && (ended?.reason ?? main?.lastState?.terminated?.reason) === 'OOMKilled',
    restarts: main?.restartCount ?? 0,
    ...(lastExit === undefined ? {} : { lastExit }),
    startedAt: main?.state?.running?.startedAt ?? ended?.startedAt ?? null,
    ports: portsIn(pod.metadata.annotations?.[annotations.ports]),
    ...(pod.spec?.nodeName === undefined ? {} : { machine: String(pod.spec.nodeName).slice(0, 253) }),
    ...(isUnready(pod) ? { unready: true } : {}),
    ...(isTask(pod) ? { taskId: own[labels.task] ?? '' } : {}),
  }
}

const ageOf = ({ metadata }: Pod): string => `${metadata.creationTimestamp ?? ''} ${metadata.name}`

/** Pods have no numbers: those of one version are numbered in the order of their creation. */
export const toInstances = (pods: readonly Pod[]): Instance[] => {
  const there = pods.filter((pod) => isTask(pod) || !isOver(pod))
  const counts = new Map<string, number>()
  return there
    .toSorted((a, b) => (ageOf(a) < ageOf(b) ? -1 : 1))
    .map((pod) => {
      const key = `${pod.metadata.labels?.[labels.service]} ${pod.metadata.labels?.[labels.revision]}`
      const index = counts.get(key) ?? 0
      counts.set(key, index + 1)
      return toInstance(pod, index)
    })
}

/** Events of an instance between two reads; null: it did not exist, or no longer does. */
export const changesOf = (before: Instance | null, now: Instance | null): RuntimeEvent['kind'][] => {
  const kinds: RuntimeEvent['kind'][] = []
  const restarted = now !== null && before !== null && now.restarts > before.restarts
  if (before?.state === 'running' && (now?.state !== 'running' || restarted)) {
    kinds.push('died')
    if (now?.lastExit?.oomKilled === true) kinds.push('oom')
  } else if (restarted) kinds.push('died')
  if (now?.state === 'running' && (before?.state !== 'running' || restarted)) kinds.push('started')
  if (before !== null && now !== null && (before.unready === true) !== (now.unready === true))
    kinds.push(now.unready === true ? 'unready' : 'ready')
  if (now === null && before !== null) kinds.push('removed')
  return kinds
}
