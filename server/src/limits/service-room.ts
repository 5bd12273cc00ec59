/**
 * Room for services: their number, memory, CPU and volumes, summed over an organization. The size of each, as
 * configured or as deployed, is in `service_size`, which triggers maintain.
 */
import { DeploymentError } from '../lib/errors.ts'
import type { Queryable } from '../store/database.ts'
import { type Limits, limitCode, limitReached, limitSentence, takeTurns } from './limits.ts'

const counted = ['services', 'memoryMb', 'cpuMillicores', 'volumes', 'volumeGb'] as const

type ServiceUse = Pick<Limits, (typeof counted)[number]>

/** Sums of bigint are numeric, which comes as text: these are small enough for numbers. */
const sums = `count(*)::int as services, coalesce(sum(memory_mb), 0)::float8 as "memoryMb",
  coalesce(sum(cpu_millicores), 0)::float8 as "cpuMillicores", coalesce(sum(volumes), 0)::float8 as volumes,
  coalesce(sum(volume_gb), 0)::float8 as "volumeGb"`

export const readServiceUse = async (db: Queryable, organizationId: string): Promise<ServiceUse> => {
  const [row] = await db.query<ServiceUse>(`select ${sums} from service_size where organization_id = $1`, [
    organizationId,
  ])
  return row!
}

const changeSql = `select ${sums} from node n, size_of_service(n.spec) where n.id = any($1)`
const beforeSql = `select ${sums} from unnest($1::jsonb[]) as spec, size_of_service(spec)`

/** The growth caused by a change; `previous` are the former configurations of the services, none for new ones. */
const readGrowth = async (
  tx: Queryable,
  serviceIds: readonly string[],
  previous: readonly object[],
): Promise<ServiceUse> => {
  const [now] = await tx.query<ServiceUse>(changeSql, [serviceIds])
  if (previous.length === 0) return now!
  const [before] = await tx.query<ServiceUse>(beforeSql, [previous.map((spec) => JSON.stringify(spec))])
  const growth = { ...now! }
  for (const limit of counted) growth[limit] -= before![limit]
  return growth
}

/**
 * Throws a 409 for a limit that a change has exceeded. Call it last in the transaction that wrote the services. A
 * change that needs no more than before is allowed, even above the limit.
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

const raiseSql = `update service_size z set memory_mb = greatest(z.memory_mb, r.memory_mb),
    cpu_millicores = greatest(z.cpu_millicores, r.cpu_millicores), volumes = greatest(z.volumes, r.volumes),
    volume_gb = greatest(z.volume_gb, r.volume_gb)
  from size_of_release($2) r where z.service_id = $1
    and (r.memory_mb > z.memory_mb or r.cpu_millicores > z.cpu_millicores or r.volumes > z.volumes
      or r.volume_gb > z.volume_gb)
  returning 1`

/**
 * Counts an older release that will run again, which may need more than the service does now. Throws a
 * `DeploymentError` for a limit that it would exceed. It counts until the next `measure`.
 */
export const countRelease = async (
  tx: Queryable,
  limits: Limits,
  organizationId: string,
  serviceId: string,
  workload: object,
): Promise<void> => {
  const raised = await tx.query(raiseSql, [serviceId, JSON.stringify(workload)])
  if (raised.length === 0) return
  await takeTurns(tx, organizationId, 'services')
  const use = await readServiceUse(tx, organizationId)
  for (const limit of counted)
    if (limits[limit] > 0 && use[limit] > limits[limit])
      throw new DeploymentError(limitCode, limitSentence(limit, limits[limit], use[limit]))
}

/** Sets the size of the service to its present one, replacing any that was counted for it. */
export const measure = async (tx: Queryable, serviceId: string): Promise<void> => {
  await tx.query('select measure_service($1)', [serviceId])
}
