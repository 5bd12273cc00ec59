/**
 * Room for services: their number, memory, processor and volumes, summed over an organization. What each takes stands
 * in `service_size`, which triggers keep.
 */
import type { Queryable } from '../store/database.ts'
import { type Limits, limitReached, takeTurns } from './limits.ts'

const counted = ['services', 'memoryMb', 'cpuMillicores', 'volumes', 'volumeGb'] as const

export type ServiceUse = Pick<Limits, (typeof counted)[number]>

/** Sums of bigint are numeric, which comes as text: these are small enough for numbers. */
const sums = `count(*)::int as services, coalesce(sum(memory_mb), 0)::float8 as "memoryMb",
  coalesce(sum(cpu_millicores), 0)::float8 as "cpuMillicores", coalesce(sum(volumes), 0)::float8 as volumes,
  coalesce(sum(volume_gb), 0)::float8 as "volumeGb"`

/** What all services of an organization take. */
export const readServiceUse = async (db: Queryable, organizationId: string): Promise<ServiceUse> => {
  const [row] = await db.query<ServiceUse>(`select ${sums} from service_size where organization_id = $1`, [
    organizationId,
  ])
  return row!
}

const changeSql = `select ${sums} from service_size where service_id = any($1)`
const beforeSql = `select ${sums} from unnest($1::jsonb[]) as spec, size_of_service(spec)`

/** What a change has added; `previous` are the configurations that the services had, none for new ones. */
const readGrowth = async (
  tx: Queryable,
  serviceIds: readonly string[],
  previous: readonly object[],
): Promise<ServiceUse> => {
  const [now] = await tx.query<ServiceUse>(changeSql, [serviceIds])
  if (previous.length === 0) return now!
  const [before] = await tx.query<ServiceUse>(beforeSql, [previous.map((spec) => JSON.stringify(spec))])
  return Object.fromEntries(counted.map((limit) => [limit, now![limit] - before![limit]])) as unknown as ServiceUse
}

/**
 * Throws the 409 of a limit that a change has passed. To be asked last in the transaction that wrote the services. What
 * takes no more than before is let through, also where there is too much already.
 */
export const refuseTooMuch = async (
  tx: Queryable,
  limits: Limits,
  organizationId: string,
  serviceIds: readonly string[],
  previous: readonly object[] = [],
): Promise<void> => {
  if (counted.every((limit) => limits[limit] === 0)) return
  const growth = await readGrowth(tx, serviceIds, previous)
  const grown = counted.filter((limit) => limits[limit] > 0 && growth[limit] > 0)
  if (grown.length === 0) return
  await takeTurns(tx, organizationId, 'services')
  const use = await readServiceUse(tx, organizationId)
  for (const limit of grown) if (use[limit] > limits[limit]) throw limitReached(limit, limits[limit], use[limit])
}
