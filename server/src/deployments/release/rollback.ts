/** Which release a rollback runs, and why one cannot run again. */
import type { Kind } from '../../kinds.ts'
import { badRequest, conflict, notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import type { ServiceRequest } from '../deployments.ts'
import { type DeploymentParts, kindOf } from '../parts.ts'
import type { ReleaseSource } from './releases.ts'

const lookUpDeadlineMs = 3000

/** SQL: the deployment of the release `r` ended with it as the current one of its service. */
export const wasSuccessfulSql = `exists (select from deployment_service w where w.deployment_id = r.deployment_id
  and w.service_id = r.service_id and w.state in ('DEPLOYED', 'RESTARTED'))`

interface Row {
  id: string
  organizationId: string
  kind: Kind
  name: string
  image: string
  clusterId: string
  source: ReleaseSource | null
  wasSuccessful: boolean
  /** Tag of the running version. */
  presentTag: string | null
  /** A chart or an app, which is stored whole with its release, or a service made by a module: it needs no image. */
  hasNoImage: boolean
}

const find = async (db: Queryable, serviceId: string, where: string, values: unknown[]): Promise<Row | undefined> => {
  const [row] = await db.query<Row>(
    `select r.id, r.organization_id as "organizationId", s.kind, n.name, r.image, r.cluster_id as "clusterId", r.source,
       (r.workload ?| array['chart', 'app'] or r.workload #>> '{from,from}' = 'module') as "hasNoImage",
       ${wasSuccessfulSql} as "wasSuccessful",
       c.source ->> 'tag' as "presentTag"
     from release r join service_state s on s.service_id = r.service_id join node n on n.id = s.service_id
       left join release c on c.id = s.current_release_id
     where r.service_id = $1 and ${where} order by r.created_at desc, r.id desc limit 1`,
    [serviceId, ...values],
  )
  return row
}

/** Releases left by a restart or an equal deploy are not candidates for a rollback. */
const isEarlier = `${wasSuccessfulSql}
  and (c.id is null or (r.created_at < c.created_at and (r.hash, r.image) <> (c.hash, c.image)))`

const unusable = (why: string) => conflict('release_not_usable', why)

/** A built image exists only on the engine. If the engine does not answer, the image counts as present. */
const isGone = async (
  parts: DeploymentParts,
  { organizationId, clusterId, image, source, hasNoImage }: Row,
): Promise<boolean> => {
  if (source !== null || hasNoImage) return false
  const signal = AbortSignal.timeout(lookUpDeadlineMs)
  const { images } = await parts.clusters.of(clusterId)
  return !(await images.isHeld(organizationId, image, signal).catch(() => true))
}

const refuseUnusable = async (parts: DeploymentParts, row: Row): Promise<void> => {
  if (!row.wasSuccessful) throw unusable('This release has never run successfully: choose another one.')
  const to = row.source?.tag ?? null
  const refusal =
    row.presentTag === null || to === null ? null : (kindOf(parts, row.kind).moveRefusal?.(row.presentTag, to) ?? null)
  if (refusal !== null) throw unusable(`The version of ${row.name} ${refusal}.`)
  if (await isGone(parts, row))
    throw unusable(
      'The image of this release was built here and no longer exists on the engine: deploy its commit again instead.',
    )
}

/** See `Deployments.releaseFor`. */
export const releaseFor = async (
  parts: DeploymentParts,
  db: Queryable,
  serviceId: string,
  releaseId?: string,
): Promise<string> => {
  const row =
    releaseId === undefined
      ? await find(db, serviceId, isEarlier, [])
      : await find(db, serviceId, 'r.id = $2', [releaseId])
  if (row === undefined && releaseId !== undefined) throw notFound()
  if (row === undefined) throw unusable('The service has no earlier release that ran successfully.')
  await refuseUnusable(parts, row)
  return row.id
}

interface Execution {
  seq: string
}

const executionNumber = (environmentId: string, executionId: string): number => {
  const id = executionId.slice(0, 36)
  const number = Number(executionId.slice(37))
  if (!isUuid(id) || !Number.isSafeInteger(number)) throw badRequest('execution_id: is not a valid execution id.')
  if (id.toLowerCase() !== environmentId || executionId[36] !== '-') throw notFound()
  return number
}

/** The newest success before the last deployment, or the named one. */
const findExecution = async (db: Queryable, environmentId: string, executionId?: string): Promise<Execution> => {
  const [row] = await db.query<Execution>(
    executionId === undefined
      ? `select d.seq from deployment d where d.environment_id = $1 and d.state = 'SUCCEEDED'
           and d.action in ('DEPLOY', 'RESTART') and d.seq < (select max(seq) from deployment where environment_id = $1)
         order by d.seq desc limit 1`
      : 'select d.seq from deployment d where d.environment_id = $1 and d.execution_number = $2',
    executionId === undefined ? [environmentId] : [environmentId, executionNumber(environmentId, executionId)],
  )
  if (row !== undefined) return row
  if (executionId !== undefined) throw notFound()
  throw conflict('nothing_to_roll_back', 'This environment has no earlier successful deployment.')
}

/** A release that is no longer kept. */
const refuseGone = (name: string): never => {
  throw unusable(
    `The release that ${name} had in that deployment is no longer kept: list its releases to see which are, or deploy its commit again.`,
  )
}

/** See `Deployments.releasesOf`. Services that have the same release as then, or had none, are left out. */
export const releasesOf = async (
  parts: DeploymentParts,
  db: Queryable,
  environmentId: string,
  executionId?: string,
): Promise<ServiceRequest[]> => {
  const { seq } = await findExecution(db, environmentId, executionId)
  const rows = await db.query<{ id: string; name: string; releaseId: string | null }>(
    `select s.service_id as id, n.name, past.id as "releaseId" from service_state s join node n on n.id = s.service_id
       join release c on c.id = s.current_release_id
       join lateral (select r.id, r.hash, r.image from deployment_service w join deployment d on d.id = w.deployment_id
         left join release r on r.id = w.release_id
         where w.service_id = s.service_id and d.seq <= $2 and w.state in ('DEPLOYED', 'RESTARTED')
           and w.release_id is not null
         order by d.seq desc limit 1) as past on (past.hash, past.image) is distinct from (c.hash, c.image)
     where s.environment_id = $1`,
    [environmentId, seq],
  )
  if (rows.length === 0)
    throw conflict(
      'nothing_to_roll_back',
      'Every service of this environment already has the release of that deployment.',
    )
  return Promise.all(
    rows.map(async ({ id, name, releaseId }) => ({
      id,
      releaseId: await releaseFor(parts, db, id, releaseId ?? refuseGone(name)),
    })),
  )
}
