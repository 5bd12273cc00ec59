/**
 * The objects of an API server in memory, as far as this server asks for them: apply, merge, delete, lists and watches.
 */
import { randomUUID } from 'node:crypto'
import type { Json } from '../api.ts'

export interface Stored extends Json {
  kind: string
  metadata: {
    name: string
    namespace?: string
    uid: string
    resourceVersion: string
    generation: number
    creationTimestamp: string
    labels?: Record<string, string>
    annotations?: Record<string, string>
    deletionTimestamp?: string
  }
  spec: Json
  status: Json
}

export interface Told {
  type: 'ADDED' | 'MODIFIED' | 'DELETED'
  version: number
  object: Stored
}

export const kindsByPlural: Record<string, string> = {
  namespaces: 'Namespace',
  pods: 'Pod',
  events: 'Event',
  services: 'Service',
  secrets: 'Secret',
  persistentvolumeclaims: 'PersistentVolumeClaim',
  deployments: 'Deployment',
  statefulsets: 'StatefulSet',
  jobs: 'Job',
  configmaps: 'ConfigMap',
  daemonsets: 'DaemonSet',
  cronjobs: 'CronJob',
  horizontalpodautoscalers: 'HorizontalPodAutoscaler',
  poddisruptionbudgets: 'PodDisruptionBudget',
  networkpolicies: 'NetworkPolicy',
  ingresses: 'Ingress',
  applications: 'Application',
  appprojects: 'AppProject',
  httproutes: 'HTTPRoute',
  grpcroutes: 'GRPCRoute',
}

const isMap = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value)

/** `onto` with all that `from` says; null takes away. */
const merged = (onto: Json, from: Json): Json => {
  const next: Json = { ...onto }
  for (const [name, value] of Object.entries(from)) {
    if (value === null) delete next[name]
    else if (isMap(value)) next[name] = merged(isMap(next[name]) ? (next[name] as Json) : {}, value)
    else next[name] = value
  }
  return next
}

/** `of` without what was said before and is not said any more. */
const withoutDropped = (of: Json, before: Json, now: Json): Json => {
  const next: Json = { ...of }
  for (const [name, value] of Object.entries(before)) {
    if (!(name in now)) delete next[name]
    else if (isMap(value) && isMap(now[name]) && isMap(next[name]))
      next[name] = withoutDropped(next[name] as Json, value, now[name] as Json)
  }
  return next
}

export const createStore = () => {
  const objects = new Map<string, Stored>()
  const applied = new Map<string, Json>()
  const history: Told[] = []
  const listeners = new Set<(told: Told) => void>()
  let version = 100
  /** Changes up to this one are forgotten. */
  let forgotten = 0

  const keyOf = (kind: string, namespace: string | undefined, name: string): string =>
    `${kind} ${kind === 'Namespace' ? '' : (namespace ?? '')} ${name}`
  const keyOfObject = ({ kind, metadata }: Stored): string => keyOf(kind, metadata.namespace, metadata.name)

  const tell = (type: Told['type'], object: Stored): void => {
    version += 1
    object.metadata.resourceVersion = String(version)
    const told = { type, version, object: structuredClone(object) }
    history.push(told)
    for (const listener of [...listeners]) listener(told)
  }
  const put = (given: Json & { kind: string; metadata: { name: string; namespace?: string } }): Stored => {
    const key = keyOf(given.kind, given.metadata.namespace, given.metadata.name)
    const before = objects.get(key)
    const next = structuredClone(given) as unknown as Stored
    const fresh = { uid: randomUUID(), generation: 1, creationTimestamp: new Date().toISOString() }
    next.metadata = Object.assign({}, fresh, before?.metadata, next.metadata)
    if (before !== undefined && JSON.stringify(before.spec) !== JSON.stringify(next.spec))
      next.metadata.generation = before.metadata.generation + 1
    const isSame = before !== undefined && JSON.stringify(before) === JSON.stringify({ ...next })
    objects.set(key, next)
    if (!isSame) tell(before === undefined ? 'ADDED' : 'MODIFIED', next)
    return next
  }
  return {
    objects,
    get version() {
      return version
    },
    get forgotten() {
      return forgotten
    },
    /** Watches cannot resume from before this moment. */
    forget: (): void => {
      forgotten = version
      history.length = 0
    },
    find: (kind: string, namespace: string | undefined, name: string) => objects.get(keyOf(kind, namespace, name)),
    all: (kind: string, namespace?: string): Stored[] =>
      [...objects.values()].filter(
        (each) => each.kind === kind && (namespace === undefined || each.metadata.namespace === namespace),
      ),
    put,
    apply(manifest: Json & { kind: string; metadata: { name: string; namespace?: string } }): Stored {
      const key = keyOf(manifest.kind, manifest.metadata.namespace, manifest.metadata.name)
      const before = objects.get(key)
      const base = before === undefined ? {} : withoutDropped(before, applied.get(key) ?? {}, manifest)
      applied.set(key, manifest)
      const { kind } = manifest
      const defaults = ['Deployment', 'StatefulSet'].includes(kind) ? { spec: { replicas: 1 } } : {}
      return put(merged(merged(before === undefined ? defaults : {}, base), manifest) as never)
    },
    /** Of one that is gone nothing is left to be changed. */
    merge(object: Stored, patch: Json): Stored {
      const there = objects.get(keyOfObject(object))
      return there?.metadata.uid === object.metadata.uid ? put(merged(there, patch) as never) : object
    },
    drop(object: Stored): void {
      const key = keyOfObject(object)
      const there = objects.get(key)
      if (there === undefined || there.metadata.uid !== object.metadata.uid) return
      objects.delete(key)
      applied.delete(key)
      tell('DELETED', structuredClone(there))
    },
    /** Changes after `from`, and all later ones; the answer ends it. */
    listen(from: number, listener: (told: Told) => void): () => void {
      for (const told of history) if (told.version > from) listener(told)
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
  }
}

export type Store = ReturnType<typeof createStore>
