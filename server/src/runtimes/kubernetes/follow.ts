/** Waits for changes of a service on a cluster: its pods, its controller and their events. */
import { untilAborted } from '../../lib/concurrency/waiting.ts'
import { type Change, watch } from '../../lib/kubernetes/watch.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { ServiceKey } from '../runtime.ts'
import { instanceSelector, labels, namespaceOf } from './manifests/describe.ts'
import { type Found, type Kind, type Objects, pathOf, selectorOf } from './objects.ts'
import type { Pod } from './pods.ts'
import type { ClusterEvent } from './verdict.ts'

/** The state known by now; null: not read yet. */
export interface View {
  pods: Map<string, Pod> | null
  controllers: Map<string, Found> | null
  events: readonly ClusterEvent[]
}

/** For one environment: the last ones explain the problem. */
const eventsMost = 200

const take = <T extends Found>(known: Map<string, T> | null, change: Change<T>): Map<string, T> => {
  if (change.type === 'ALL') return new Map(change.items.map((item) => [item.metadata.name, item]))
  const next = known ?? new Map<string, T>()
  if (change.type === 'DELETED') next.delete(change.object.metadata.name)
  else next.set(change.object.metadata.name, change.object)
  return next
}

interface Followed<T extends Found> {
  kind: Kind
  namespace?: string
  wanted?: Record<string, string>
  fields?: string
  most?: number
  onChange(change: Change<T>): void
}

/** Reports every change until aborted; rejects with errors that waiting does not fix. */
export const followObjects = async <T extends Found>(
  { api, place }: Pick<Objects, 'api' | 'place'>,
  clock: Pick<Clock, 'sleep'>,
  { kind, namespace, wanted, fields, most, onChange }: Followed<T>,
  signal: AbortSignal,
): Promise<void> => {
  const query: Record<string, string> = {}
  if (wanted !== undefined) query.labelSelector = selectorOf({ [labels.owner]: place.ownerId, ...wanted })
  if (fields !== undefined) query.fieldSelector = fields
  const options = { signal, clock, query, ...(most === undefined ? {} : { most }) }
  for await (const change of watch<T>(api, pathOf(kind, namespace), options)) onChange(change)
}

/** Calls `check` at every change, until it returns a value or throws. Rejects with the signal's reason when aborted. */
export const untilSeen = async <T>(
  objects: Objects,
  clock: Pick<Clock, 'sleep'>,
  service: ServiceKey,
  controller: 'Deployment' | 'StatefulSet' | null,
  check: (view: View) => T | null,
  signal: AbortSignal,
): Promise<T> => {
  const view: View = { pods: null, controllers: controller === null ? new Map() : null, events: [] }
  const { promise, resolve, reject } = Promise.withResolvers<T>()
  const ended = new AbortController()
  const either = AbortSignal.any([signal, ended.signal])
  const looked = (): void => {
    try {
      const found = check(view)
      if (found !== null) resolve(found)
    } catch (error) {
      reject(error)
    }
  }
  const namespace = namespaceOf(service.environmentId)
  const follow = <F extends Found>(followed: Omit<Followed<F>, 'namespace'>): Promise<void> =>
    followObjects(objects, clock, { ...followed, namespace }, either)
  const follows = [
    follow<Pod>({
      kind: 'Pod',
      wanted: instanceSelector(service),
      onChange: (change) => {
        view.pods = take(view.pods, change)
        looked()
      },
    }),
    follow<ClusterEvent>({
      kind: 'Event',
      fields: 'type=Warning',
      most: eventsMost,
      onChange: (change) => {
        const told = change.type === 'ALL' ? change.items : [...view.events, change.object as ClusterEvent]
        view.events = told.slice(-eventsMost)
        looked()
      },
    }),
    ...(controller === null
      ? []
      : [
          follow({
            kind: controller,
            wanted: { [labels.service]: service.serviceId },
            onChange: (change) => {
              view.controllers = take(view.controllers, change)
              looked()
            },
          }),
        ]),
  ]
  for (const each of follows) each.catch(reject)
  return untilAborted(promise, signal).finally(() => ended.abort())
}

/** Until no object of this kind with these labels exists. */
export const untilGone = async (
  { api, place }: Objects,
  clock: Pick<Clock, 'sleep'>,
  kind: Kind,
  wanted: Record<string, string>,
  namespace: string | undefined,
  signal: AbortSignal,
): Promise<void> => {
  const query = { labelSelector: selectorOf({ [labels.owner]: place.ownerId, ...wanted }) }
  let there: Map<string, Found> | null = null
  for await (const change of watch<Found>(api, pathOf(kind, namespace), { signal, clock, query })) {
    there = take(there, change)
    if (there.size === 0) return
  }
  signal.throwIfAborted()
}
