/**
 * Problems of running containers: a failing liveness probe, or a lost network. Liveness is kept in memory and found
 * again after a restart of ours; the network is known from the engine.
 */
import type { Trouble } from '../../trouble.ts'
import { labelOf, labels, networkName, parsePlace, taskIdIn } from '../describe.ts'

export interface Troubles {
  of(id: string): Trouble | undefined
  /** A liveness probe failed so often that its container must be restarted; or replaced, as the result says. */
  failed(id: string, finding: string): Trouble
  restarted(id: string): void
  /** It is alive. False: nothing was wrong. */
  alive(id: string): boolean
  removed(id: string): void
}

/** Restarts of one container without a success of its probe in between; then it is replaced. */
const mostRestarts = 3

export const createTroubles = (): Troubles => {
  const known = new Map<string, { restarts: number; trouble: Trouble }>()
  return {
    of: (id) => known.get(id)?.trouble,
    failed(id, finding) {
      const restarts = known.get(id)?.restarts ?? 0
      const needsNew = restarts >= mostRestarts
      const done = needsNew
        ? `${mostRestarts} restarts of its container did not help: it gets a new one`
        : 'its container is being restarted'
      const trouble = { message: `An instance failed its liveness probe (${finding}); ${done}.`, needsNew }
      known.set(id, { restarts, trouble })
      return trouble
    },
    restarted(id) {
      const of = known.get(id)
      if (of !== undefined) of.restarts++
    },
    alive: (id) => known.delete(id),
    removed: (id) => void known.delete(id),
  }
}

interface Row {
  Names: string[]
  Labels: Record<string, string>
  /** Absent: the engine does not say. */
  NetworkSettings?: { Networks?: Record<string, { IPAddress: string }> | null }
}

/**
 * Whether a running container is not where it was put: another client has disconnected it or removed its network. A
 * restart does not connect it again. Null: it is there, or nothing is known.
 */
export const cutOff = ({ Names, Labels, NetworkSettings }: Row, isBridgeGone = false): Trouble | null => {
  const networks = NetworkSettings?.Networks
  const environmentId = labelOf(Labels, labels.environment)
  const isTask = taskIdIn((Names[0] ?? '').replace(/^\//, ''), Labels) !== undefined
  if (!networks || environmentId === undefined || isTask) return null
  const place = parsePlace(labelOf(Labels, labels.ports))
  const endpoint = networks[networkName(environmentId)]
  // If the engine publishes ports, it chooses the address itself.
  const isThere = endpoint !== undefined && (!('address' in place) || place.address === endpoint.IPAddress)
  if (isThere && !isBridgeGone) return null
  const what =
    endpoint?.IPAddress && !isThere ? 'got another address on its network' : 'lost the network of its environment'
  return { message: `The container of an instance has ${what}: it is being replaced.`, needsNew: true }
}

/** Whether the engine still knows the environment's network of a stopped container, so that a start connects it. */
export const isAttached = ({ Labels, NetworkSettings }: Pick<Row, 'Labels' | 'NetworkSettings'>): boolean => {
  const networks = NetworkSettings?.Networks
  return !networks || networkName(Labels[labels.environment] ?? '') in networks
}
