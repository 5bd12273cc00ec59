/** Services that scale, in the database: how many instances of the deployed version there should be. */
import { keySql } from '../../clusters/local.ts'
import type { Kind } from '../../kinds.ts'
import type { Scaling } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import type { Problem } from '../deployments.ts'

/** Why a service could not be woken. */
export interface WakeError extends Problem {
  /** RFC 3339. */
  at: string
}

export interface ScaledService {
  serviceId: string
  environmentId: string
  /** Nothing else scales. */
  artifact: 'image'
  organizationId: string
  kind: Kind
  name: string
  projectId: string
  releaseId: string
  revision: string
  scaling: Scaling
  /** 0: it sleeps. */
  scale: number
  /** How long this number has been unchanged. */
  forMs: number
  cpuMillicores: number
  memoryMb: number
  /** A deployment controls its instances. */
  busy: boolean
  /** The last wake failed. */
  failed: boolean
  /** The services of its environment sleep and wake together, because they call one another. */
  together: boolean
}

/** SQL over a row `s` of `service_state`: whether a deployment controls its instances. */
const busySql = `exists (select from deployment_service w join deployment d on d.id = w.deployment_id
  where w.service_id = s.service_id and w.converging and w.finished_at is null and d.state = 'RUNNING')`

const scaledSql = `select s.service_id as "serviceId", s.environment_id as "environmentId",
    'image' as artifact, s.organization_id as "organizationId", s.kind, n.name, e.parent_id as "projectId",
    s.current_release_id as "releaseId", coalesce(r.workload ->> 'revision', r.deployment_id::text) as revision,
    s.scaling, s.scale, extract(epoch from clock_timestamp() - s.scaled_at)::float8 * 1000 as "forMs",
    (r.workload ->> 'cpuMillicores')::float8 as "cpuMillicores", (r.workload ->> 'memoryMb')::float8 as "memoryMb",
    ${busySql} as busy, s.wake_error is not null as failed,
    coalesce(e.spec ->> 'mode' = 'PREVIEW', false) as together
  from service_state s join release r on r.id = s.current_release_id join node n on n.id = s.service_id
    join node e on e.id = s.environment_id join node c on c.id = s.cluster_id
  where ${keySql('c')} = $1 and s.desired = 'RUNNING' and s.scaling is not null`

export const readScaled = (db: Queryable, clusterKey: string): Promise<ScaledService[]> =>
  db.query<ScaledService>(scaledSql, [clusterKey])

/** Undefined for one that does not scale, is stopped, or belongs to another cluster. */
export const readOneScaled = async (
  db: Queryable,
  clusterKey: string,
  serviceId: string,
): Promise<ScaledService | undefined> =>
  (await db.query<ScaledService>(`${scaledSql} and s.service_id = $2`, [clusterKey, serviceId]))[0]

/** False if the desired state of the service has changed meanwhile: then nothing is written. */
export const writeScale = async (
  db: Queryable,
  { serviceId, releaseId, scale }: ScaledService,
  next: number,
): Promise<boolean> => {
  const rows = await db.query(
    `update service_state s set scale = $4, scaled_at = clock_timestamp(), wake_error = null, problem = null,
       running_state = case when $4 = 0 then 'STOPPED' when $3 = 0 then 'RUNNING' else running_state end
     where service_id = $1 and current_release_id = $2 and scale = $3 and desired = 'RUNNING' and not ${busySql}
     returning 1`,
    [serviceId, releaseId, scale, next],
  )
  return rows.length > 0
}

/** The status of a sleeping service while it is woken, or if that failed. */
export const showWaking = (
  db: Queryable,
  { serviceId, releaseId }: ScaledService,
  state: 'STARTING' | 'STOPPED' | 'ERROR',
  error: WakeError | null,
): Promise<unknown> =>
  db.query(
    `update service_state s set running_state = $3, wake_error = $4, problem = $5
     where service_id = $1 and current_release_id = $2 and scale = 0 and desired = 'RUNNING' and not ${busySql}`,
    [
      serviceId,
      releaseId,
      state,
      error === null ? null : JSON.stringify(error),
      error === null ? null : JSON.stringify({ code: error.code, message: error.message } satisfies Problem),
    ],
  )

/** The memory limits of all services of a cluster, with their present target numbers of instances. */
export const readMemoryInUse = async (db: Queryable, clusterKey: string): Promise<number> => {
  const [row] = await db.query<{ memoryMb: number }>(
    `select coalesce(sum(coalesce(s.scale, (r.workload ->> 'instances')::int, 0) * (r.workload ->> 'memoryMb')::float8), 0)
       as "memoryMb"
     from service_state s join release r on r.id = s.current_release_id join node c on c.id = s.cluster_id
     where ${keySql('c')} = $1 and s.desired = 'RUNNING'`,
    [clusterKey],
  )
  return row!.memoryMb
}
