/**
 * The worker (work/worker.ts) for deployments: which one is next, how its lease is renewed, and that a cancel ends it.
 */
import { isHeld } from '../../clusters/lines/line.ts'
import { environmentKeySql } from '../../clusters/local.ts'
import { LeaseLost, leaseMs, releaseLeases, renewLeases } from '../../work/lease.ts'
import { type Claim, claim, deploymentLeases } from '../../work/queue.ts'
import { createWorker, type Worker } from '../../work/worker.ts'
import type { DeploymentParts } from '../parts.ts'
import { Canceled } from '../progress/canceled.ts'
import { createPartSignals } from './part-signals.ts'
import { runDeployment } from './run-deployment.ts'

const sweepMs = 5000
/** The multiple of its places that a cluster keeps for organizations that have nothing in progress. */
const spare = 4
const heartbeatMs = 4000

export interface DeploymentWorker extends Worker {
  /** Ends the deployment or part in the payload of a `slipway_cancel` notification, if it runs here. */
  cancel(key: string): void
}

export const startDeployments = (parts: DeploymentParts, worker: string): DeploymentWorker => {
  const { database } = parts
  const partSignals = createPartSignals()
  /** Organizations in the order of their last claim: a thousand deployments of one never delay those of another. */
  const served = new Set<string>()
  /** Clusters of the deployments in progress here, by their ids: one that does not answer delays only its own. */
  const under = new Map<string, string>()

  const clustersWith = (least: number): string[] => {
    const keys = [...under.values()]
    return [...new Set(keys)].filter((key) => keys.filter((each) => each === key).length >= least)
  }
  const fullClusters = () => {
    // Deployments queued for a cluster with a conflict wait until an operator has decided.
    const held = parts.clusters.all().filter(isHeld)
    return {
      full: clustersWith(parts.concurrency),
      closed: [...clustersWith(spare * parts.concurrency), ...held.map(({ key }) => key)],
    }
  }
  const enter = async ({ id, environmentId }: Claim): Promise<void> => {
    const [row] = await database.query<{ key: string | null }>(`select ${environmentKeySql('$1')} as key`, [
      environmentId,
    ])
    under.set(id, row?.key ?? '')
  }

  const claimNext = async () => {
    const next = await claim(database, worker, {
      served: [...served],
      ...fullClusters(),
      placeOf: environmentKeySql,
    })
    if (next === null) return { claimed: [], more: false }
    await enter(next)
    served.delete(next.organizationId)
    served.add(next.organizationId)
    return { claimed: [next], more: true }
  }
  const renew = async (ids: readonly string[]): Promise<Map<string, Error>> => {
    const held = new Map((await renewLeases(database, deploymentLeases, worker, ids)).map((row) => [row.id, row]))
    const lost = ids.filter((id) => !held.has(id)).map((id) => [id, new LeaseLost()] as const)
    const canceled = ids.filter((id) => held.get(id)?.cancelRequested).map((id) => [id, new Canceled()] as const)
    await partSignals.endRequested(database, [...held.keys()])
    return new Map<string, Error>([...lost, ...canceled])
  }
  const deployments = createWorker<Claim>(parts, {
    name: 'deployments',
    // The limit is per cluster, in the claim.
    concurrency: Number.POSITIVE_INFINITY,
    periodMs: sweepMs,
    idOf: ({ id }) => id,
    about: ({ id }) => ({ deploymentId: id }),
    claim: claimNext,
    run: (claimed, { signal }) =>
      runDeployment(
        parts,
        claimed,
        claimed.cancelRequested ? AbortSignal.any([signal, canceledBefore]) : signal,
        partSignals,
      ).finally(() => under.delete(claimed.id)),
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
  return {
    ...deployments,
    cancel(key) {
      deployments.abort(key, new Canceled())
      partSignals.end(key)
    },
  }
}

/** A deployment canceled before it was claimed. */
const canceledBefore = AbortSignal.abort(new Canceled())
