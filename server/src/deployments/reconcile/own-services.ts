/**
 * Finds the services of a cluster that the events of its engine are about. A remote engine may name anything, as often
 * as it likes: ids are looked up in batches of limited size, and only those of services on that cluster are passed on.
 * The next check of everything finds missed ones.
 */
import { keySql } from '../../clusters/local.ts'
import { isUuid } from '../../lib/ids.ts'
import type { DeploymentParts } from '../parts.ts'

/** Ids that wait to be looked up; more are skipped. */
const mostAsked = 1000
const pauseMs = 200

/** Takes any id; calls `found` for those of the services on the cluster of this key, until aborted. */
export const createOwnServices = (
  { database, clock, log }: Pick<DeploymentParts, 'database' | 'clock' | 'log'>,
  cluster: string,
  found: (serviceId: string) => void,
  signal: AbortSignal,
): ((serviceId: string) => void) => {
  const asked = new Set<string>()
  let isAsking = false
  const ask = async (): Promise<void> => {
    const ids = [...asked]
    asked.clear()
    const rows = await database.query<{ id: string }>(
      `select s.service_id as id from service_state s join node c on c.id = s.cluster_id
       where s.service_id = any($1) and ${keySql('c')} = $2`,
      [ids, cluster],
    )
    for (const { id } of rows) found(id)
  }
  const askAll = async (): Promise<void> => {
    while (asked.size > 0 && !signal.aborted) {
      await ask().catch((error: unknown) => log.debug({ err: error, cluster }, 'events of an engine were passed over'))
      await clock.sleep(pauseMs, signal)
    }
  }
  return (serviceId) => {
    if (!isUuid(serviceId) || asked.size >= mostAsked) return
    asked.add(serviceId)
    if (isAsking) return
    isAsking = true
    askAll()
      .catch(() => {})
      .finally(() => {
        isAsking = false
      })
  }
}
