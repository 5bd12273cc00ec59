/**
 * What the worker (work/worker.ts) does with deployments: which is next, how its lease is renewed, and that a cancel
 * ends it.
 */
import { LeaseLost, leaseMs, releaseLeases, renewLeases } from '../work/lease.ts'
import { type Claim, claim, deploymentLeases } from '../work/queue.ts'
import { createWorker, type Worker } from '../work/worker.ts'
import { Canceled } from './canceled.ts'
import type { EngineParts } from './engine-parts.ts'
import { runDeployment } from './run-deployment.ts'

const sweepMs = 5000
const heartbeatMs = 4000

export const startDeployments = (parts: EngineParts, worker: string): Worker => {
  const { database } = parts
  /** Organizations in the order of their last claim: a thousand deployments of one never delay those of another. */
  const served = new Set<string>()

  const claimNext = async () => {
    const next = await claim(database, worker, [...served])
    if (next === null) return { claimed: [], more: false }
    served.delete(next.organizationId)
    served.add(next.organizationId)
    return { claimed: [next], more: true }
  }
  const renew = async (ids: readonly string[]): Promise<Map<string, Error>> => {
    const held = new Map((await renewLeases(database, deploymentLeases, worker, ids)).map((row) => [row.id, row]))
    const lost = ids.filter((id) => !held.has(id)).map((id) => [id, new LeaseLost()] as const)
    const canceled = ids.filter((id) => held.get(id)?.cancelRequested).map((id) => [id, new Canceled()] as const)
    return new Map<string, Error>([...lost, ...canceled])
  }
  return createWorker<Claim>(parts, {
    name: 'deployments',
    concurrency: parts.concurrency,
    periodMs: sweepMs,
    idOf: ({ id }) => id,
    about: ({ id }) => ({ deploymentId: id }),
    claim: claimNext,
    run: (claimed, { signal }) =>
      runDeployment(parts, claimed, claimed.cancelRequested ? AbortSignal.any([signal, canceledBefore]) : signal),
    renew: { everyMs: heartbeatMs, leaseMs, renew },
    release: (all) =>
      releaseLeases(
        database,
        deploymentLeases,
        worker,
        all.map(({ id }) => id),
      ),
    failed: 'a deployment was interrupted and waits for its next claim',
  })
}

/** A deployment canceled before it was claimed. */
const canceledBefore = AbortSignal.abort(new Canceled())
