/** Scales the workloads of a chart down without removing anything, and restores them. */
import type { ServiceKey } from '../../runtime.ts'
import { annotations, namespaceOf } from '../manifests/describe.ts'
import { type Found, type Objects, pathOf } from '../objects.ts'
import type { ChartedObject } from './charted.ts'

const takenDown = ['Deployment', 'StatefulSet', 'DaemonSet', 'CronJob'] as const
type TakenDown = (typeof takenDown)[number]
const isTakenDown = (kind: string): kind is TakenDown => (takenDown as readonly string[]).includes(kind)

/** A label that no machine has. */
const nowhere = { 'slipway.stopped': 'true' }

/** The patch that scales a workload down, and the one that restores it. */
const down = (kind: TakenDown, { spec = {} }: Found): { was: string; patch: object } => {
  if (kind === 'CronJob') return { was: String(spec.suspend === true), patch: { suspend: true } }
  if (kind === 'DaemonSet') return { was: '', patch: { template: { spec: { nodeSelector: nowhere } } } }
  return { was: String(spec.replicas ?? 1), patch: { replicas: 0 } }
}

const up = (kind: TakenDown, was: string): object => {
  if (kind === 'CronJob') return { suspend: was === 'true' }
  if (kind === 'DaemonSet') return { template: { spec: { nodeSelector: { 'slipway.stopped': null } } } }
  return { replicas: Number(was) || 0 }
}

/** `installed`: the objects of the newest revision of the service's chart. */
export const createStandstill = (
  objects: Objects,
  installed: (service: ServiceKey, signal: AbortSignal) => Promise<ChartedObject[]>,
) => {
  const { api } = objects

  const forEachWorkload = async (
    service: ServiceKey,
    signal: AbortSignal,
    work: (kind: TakenDown, path: string, live: Found) => Promise<unknown>,
  ): Promise<void> => {
    const namespace = namespaceOf(service.environmentId)
    for (const { kind, metadata } of await installed(service, signal)) {
      if (!isTakenDown(kind)) continue
      const live = await objects.get(kind, namespace, metadata.name, signal)
      if (live !== null) await work(kind, pathOf(kind, namespace, metadata.name), live)
    }
  }

  const isDown = ({ metadata }: Found): boolean => metadata.annotations?.[annotations.stopped] !== undefined

  const takeDown = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    await forEachWorkload(service, signal, async (kind, path, live) => {
      if (isDown(live)) return
      const { was, patch } = down(kind, live)
      await api.merge(path, { metadata: { annotations: { [annotations.stopped]: was } }, spec: patch }, { signal })
    })
  }

  const bringBack = (service: ServiceKey, signal: AbortSignal): Promise<void> =>
    forEachWorkload(service, signal, async (kind, path, live) => {
      if (!isDown(live)) return
      const was = live.metadata.annotations![annotations.stopped]!
      const metadata = { annotations: { [annotations.stopped]: null } }
      await api.merge(path, { metadata, spec: up(kind, was) }, { signal })
    })

  return { takeDown, bringBack }
}
