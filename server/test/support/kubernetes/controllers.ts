/** What the controllers and machines of a cluster do with what is applied, at once and as a test says. */
import { createHash, randomUUID } from 'node:crypto'
import type { Json } from '../api.ts'
import type { Store, Stored } from './store.ts'

/** How a pod behaves once it is made. */
export type Behaviour =
  | { kind: 'ready' }
  /** It runs, and is never ready. */
  | { kind: 'deaf'; events?: { reason: string; message: string }[] }
  | { kind: 'crash'; exitCode: number; reason?: string; lines?: string[] }
  | { kind: 'wait'; reason: string; message: string }
  | { kind: 'unscheduled'; message: string }
  /** An execution that ends: its exit code, and the files that it leaves. */
  | { kind: 'end'; exitCode: number; left?: string; lines?: string[] }
  /** An execution that runs until it is ended. */
  | { kind: 'endless' }

export type Behave = (pod: { image: string; metadata: Stored['metadata'] }) => Behaviour

const hashOf = (template: unknown): string =>
  createHash('sha256').update(JSON.stringify(template)).digest('hex').slice(0, 10)

const now = (): string => new Date().toISOString()

const isReady = ({ status, metadata }: Stored): boolean =>
  metadata.deletionTimestamp === undefined &&
  status?.conditions?.some(({ type, status: is }: Json) => type === 'Ready' && is === 'True') === true

const running = { running: { startedAt: now() } }
const container = (more: Json): Json => ({ name: 'main', restartCount: 0, ...more })
const conditions = (ready: boolean): Json[] => [
  { type: 'PodScheduled', status: 'True' },
  { type: 'Ready', status: ready ? 'True' : 'False', lastTransitionTime: now() },
]

const statusOf = (behaviour: Behaviour): Json => {
  const common = { phase: 'Running', conditions: conditions(false) }
  switch (behaviour.kind) {
    case 'ready':
      return { phase: 'Running', conditions: conditions(true), containerStatuses: [container({ state: running })] }
    case 'deaf':
    case 'endless':
      return { ...common, containerStatuses: [container({ state: running })] }
    case 'crash': {
      const { exitCode, reason = 'Error' } = behaviour
      const ended = { exitCode, reason, finishedAt: now() }
      const waiting = { reason: 'CrashLoopBackOff', message: 'back-off restarting' }
      const state = { state: { waiting }, lastState: { terminated: ended } }
      return { ...common, containerStatuses: [container({ restartCount: 2, ...state })] }
    }
    case 'wait': {
      const { reason, message } = behaviour
      return {
        ...common,
        phase: 'Pending',
        containerStatuses: [container({ state: { waiting: { reason, message } } })],
      }
    }
    case 'unscheduled':
      return {
        phase: 'Pending',
        conditions: [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: behaviour.message }],
      }
    case 'end': {
      const { exitCode, left } = behaviour
      const terminated = { exitCode, reason: exitCode === 0 ? 'Completed' : 'Error', message: left, finishedAt: now() }
      const phase = exitCode === 0 ? 'Succeeded' : 'Failed'
      return { phase, conditions: conditions(false), containerStatuses: [container({ state: { terminated } })] }
    }
  }
}

export const createControllers = (store: Store, behave: Behave, log: (pod: string, line: string) => void) => {
  const makePod = (owner: Stored, hash: string): void => {
    const { template } = owner.spec
    const name = `${owner.metadata.name}-${hash}-${randomUUID().slice(0, 5)}`
    const pod = store.put({
      kind: 'Pod',
      metadata: {
        name,
        namespace: owner.metadata.namespace,
        labels: { ...template.metadata.labels, 'pod-template-hash': hash },
        annotations: template.metadata.annotations ?? {},
      },
      spec: template.spec,
      owner: owner.metadata.uid,
    } as never)
    const behaviour = behave({ image: template.spec.containers[0].image, metadata: pod.metadata })
    for (const line of 'lines' in behaviour ? (behaviour.lines ?? []) : []) log(name, line)
    store.merge(pod, { status: statusOf(behaviour) })
    for (const { reason, message } of 'events' in behaviour ? (behaviour.events ?? []) : [])
      store.put({
        kind: 'Event',
        metadata: { name: randomUUID(), namespace: owner.metadata.namespace },
        ...{ type: 'Warning', reason, message, involvedObject: { kind: 'Pod', name } },
      } as never)
  }
  const podsOf = (owner: Stored): Stored[] =>
    store.all('Pod', owner.metadata.namespace).filter(({ owner: uid }) => uid === owner.metadata.uid)

  const endPods = (pods: readonly Stored[]): void => {
    for (const pod of pods)
      if (pod.metadata.deletionTimestamp === undefined) store.merge(pod, { metadata: { deletionTimestamp: now() } })
  }

  /** New ones first, and old ones end when as many new ones are ready. */
  const rollOut = (owner: Stored): void => {
    if (owner.metadata.deletionTimestamp !== undefined) {
      const pods = podsOf(owner)
      if (pods.length === 0) store.drop(owner)
      endPods(pods)
      return
    }
    const hash = hashOf(owner.spec.template)
    const wanted = Number(owner.spec.replicas ?? 1)
    const isOwn = ({ metadata }: Stored): boolean => metadata.labels?.['pod-template-hash'] === hash
    const own = podsOf(owner).filter((pod) => isOwn(pod) && pod.metadata.deletionTimestamp === undefined)
    for (let count = own.length; count < wanted; count += 1) makePod(owner, hash)
    endPods(own.slice(wanted))
    const ready = podsOf(owner).filter((pod) => isOwn(pod) && isReady(pod))
    if (ready.length >= wanted) endPods(podsOf(owner).filter((pod) => !isOwn(pod)))
    const status = {
      observedGeneration: owner.metadata.generation,
      replicas: podsOf(owner).length,
      updatedReplicas: podsOf(owner).filter(isOwn).length,
      availableReplicas: podsOf(owner).filter(isReady).length,
    }
    store.merge(store.find(owner.kind, owner.metadata.namespace, owner.metadata.name)!, { status })
  }
  const runJob = (job: Stored): void => {
    const pods = podsOf(job)
    if (job.metadata.deletionTimestamp !== undefined) {
      endPods(pods)
      if (podsOf(job).length === 0) store.drop(job)
      return
    }
    const hasBegun = job.status?.startTime !== undefined
    if (hasBegun && job.spec.suspend !== true && job.spec.backoffLimit === 0 && pods.length === 0)
      store.merge(job, { status: { conditions: [{ type: 'Failed', status: 'True' }] } })
    if (job.spec.suspend === true || hasBegun) return
    store.merge(job, { status: { startTime: now() } })
    makePod(job, hashOf(job.spec.template))
  }
  /** A machine ends what is to go; what ran says how it ended first. */
  const endPod = (pod: Stored): void => {
    const status = pod.status?.containerStatuses?.[0]
    if (status?.state?.running !== undefined) {
      const terminated = { exitCode: 143, reason: 'Error', finishedAt: now(), message: 'begun' }
      store.merge(pod, { status: { phase: 'Failed', containerStatuses: [{ ...status, state: { terminated } }] } })
      return
    }
    store.drop(pod)
  }
  const emptyNamespace = (namespace: Stored): void => {
    const inside = [...store.objects.values()].filter(({ metadata }) => metadata.namespace === namespace.metadata.name)
    for (const each of inside) store.drop(each)
    store.drop(namespace)
  }
  const look = (): void => {
    for (const kind of ['Deployment', 'StatefulSet']) for (const owner of store.all(kind)) rollOut(owner)
    for (const job of store.all('Job')) runJob(job)
    for (const pod of store.all('Pod')) if (pod.metadata.deletionTimestamp !== undefined) endPod(pod)
    for (const one of store.all('Namespace')) if (one.metadata.deletionTimestamp !== undefined) emptyNamespace(one)
  }
  let due: NodeJS.Immediate | null = null
  const leave = store.listen(Number.POSITIVE_INFINITY, () => {
    due ??= setImmediate(() => {
      due = null
      look()
    })
  })
  return {
    stop(): void {
      leave()
      if (due !== null) clearImmediate(due)
    },
  }
}
