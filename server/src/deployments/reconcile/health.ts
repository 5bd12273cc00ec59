/**
 * Whether a cluster's engine answers. While it does not, the state of its services is unknown, and they show that
 * (UNAVAILABLE) instead of their last state; nothing else about them changes, and nothing about those of other
 * clusters. When it answers again, subscribers are notified.
 */
import { learnCapacity } from '../../clusters/capacity.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { keySql } from '../../clusters/local.ts'
import { createLoop, type Loop } from '../../work/loop.ts'
import { isAloneSql } from '../desired/tasks.ts'
import type { DeploymentParts } from '../parts.ts'

const everyMs = 5000
/** After a missed answer. */
const againMs = 1000
/** Consecutive missed answers: a single one may be a busy machine. */
const missedMost = 2
/** A machine's memory is extended rarely. */
const capacityEveryMs = 10 * 60_000

type HealthParts = Pick<DeploymentParts, 'database' | 'clock' | 'log' | 'work'>

const markUnavailable = ({ database }: HealthParts, { key }: Cluster): Promise<unknown> =>
  database.query(
    `update service_state s set running_state = 'UNAVAILABLE' from release r, node c
     where r.id = s.current_release_id and s.desired = 'RUNNING' and s.running_state <> 'UNAVAILABLE'
       and not ${isAloneSql('r.workload')} and c.id = s.cluster_id and ${keySql('c')} = $1`,
    [key],
  )

export const watchHealth = (parts: HealthParts, cluster: Cluster, onReturn: () => void): Loop => {
  const { clock, log, database } = parts
  let missed = 0
  let learnsAtMs = Number.NEGATIVE_INFINITY

  const learn = async (): Promise<void> => {
    if (clock.monotonicMs() < learnsAtMs) return
    await learnCapacity(database, cluster)
    learnsAtMs = clock.monotonicMs() + capacityEveryMs
  }
  const look = async (): Promise<number | undefined> => {
    const answers = await cluster.runtime.ping().then(
      () => true,
      () => false,
    )
    if (answers) {
      if (missed >= missedMost) onReturn()
      missed = 0
      await learn()
      return undefined
    }
    missed += 1
    if (missed === missedMost)
      log.warn({ cluster: cluster.key }, 'the engine does not answer: the state of its services is unknown')
    if (missed >= missedMost) await markUnavailable(parts, cluster)
    return againMs
  }
  const failed = 'the health of a cluster could not be saved'
  return createLoop(parts, { name: 'cluster health', cluster: cluster.key, periodMs: everyMs, failed, run: look })
}
