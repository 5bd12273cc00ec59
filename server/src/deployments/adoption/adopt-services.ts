/**
 * Takes over services that run on a cluster and that the database does not know, or knows an older version of. Their
 * records are on their instances and volumes (record.ts). Promises that a service is adopted whole or not at all, that
 * newer rows of the database are not overwritten, and that nothing on the cluster is changed: the reconciler does the
 * rest. If the process dies here, environments adopted so far stay, and the same call adopts the others.
 */
import { keySql } from '../../clusters/local.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Log } from '../../lib/log.ts'
import type { Secret } from '../../lib/secret.ts'
import { type Database, type Queryable, sqlState } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import { reservedSql } from '../../store/reserved-hosts.ts'
import { type Rows, readRecord, type ServiceRecord, UnusableRecord } from '../release/record.ts'
import { insertMissing, updateOlder, withFreeNames, writeVariables } from './write-rows.ts'

export interface FoundService {
  organizationId: string
  environmentId: string
  serviceId: string
  /** From its instances and volumes, in any order; the newest readable one counts. */
  records: readonly string[]
  /** How many instances of it run, or should run. */
  running: number
}

interface ServiceAdoption {
  /** Ids of services whose rows now match the cluster. */
  adopted: string[]
  left: { serviceId: string; reason: string }[]
}

interface Readable {
  found: FoundService
  record: Secret<ServiceRecord>
}

type Parts = { database: Database; sealer: Sealer; log: Log }

const newestOf = async (parts: Parts, found: FoundService): Promise<Secret<ServiceRecord>> => {
  if (found.records.length === 0)
    throw new UnusableRecord(
      'It has no record: it was deployed by an earlier version of the server, or is a chart, an Argo CD app or a managed database, or its variables are too many for one.',
    )
  let newest: Secret<ServiceRecord> | undefined
  let reason: unknown
  for (const text of new Set(found.records))
    try {
      const record = await readRecord(parts.sealer, found, text)
      if (newest === undefined || record.reveal().at > newest.reveal().at) newest = record
    } catch (error) {
      if (!(error instanceof UnusableRecord)) throw error
      reason = error
    }
  if (newest === undefined) throw reason
  const { serviceId, environmentId } = newest.reveal()
  if (serviceId !== found.serviceId || environmentId !== found.environmentId)
    throw new UnusableRecord('Its record is that of another service.')
  return newest
}

const nodeOf = ({ rows, organizationId }: ServiceRecord, id: string, parentId: string) =>
  rows.node?.filter((row) => row.id === id && row.parent_id === parentId && row.organization_id === organizationId) ??
  []

type Row = Readonly<Record<string, unknown>>

const moved = (row: Row, from: string, to: string): Row => {
  const spec = row.spec as Row | undefined
  return {
    ...row,
    ...(row.cluster_id === from ? { cluster_id: to } : {}),
    ...(spec?.cluster_id === from ? { spec: { ...spec, cluster_id: to } } : {}),
  }
}

/** A cluster that was registered again has another row than the one in the record. */
const onFoundCluster = async (tx: Queryable, record: ServiceRecord, clusterKey: string): Promise<ServiceRecord> => {
  const { organizationId, projectId, environmentId, rows } = record
  const named = (nodeOf(record, environmentId, projectId)[0]?.spec as Row | undefined)?.cluster_id
  if (typeof named !== 'string' || !isUuid(named)) return record
  const [found] = await tx.query<{ id: string }>(
    `select c.id from node c where c.kind = 'cluster' and c.organization_id = $1 and ${keySql('c')} = $2
       and not exists (select from node where id = $3) order by c.created_at limit 1`,
    [organizationId, clusterKey, named],
  )
  if (found === undefined) return record
  const tables = Object.entries(rows).map(
    ([table, list]) => [table, list?.map((row) => moved(row, named, found.id)) ?? null] as const,
  )
  return { ...record, rows: Object.fromEntries(tables) }
}

/** Its project and environment, unless other services have restored them already; on the cluster where it was found. */
const writePlace = async (tx: Queryable, record: ServiceRecord, clusterKey: string): Promise<void> => {
  const { organizationId, projectId, environmentId } = record
  const [organization] = await tx.query(`select 1 from node where id = $1 and kind = 'organization'`, [organizationId])
  if (organization === undefined) throw new UnusableRecord('Its organization is not in the database.')
  const parents = { [projectId]: organizationId, [environmentId]: projectId }
  for (const [id, parentId] of Object.entries(parents))
    await insertMissing(tx, 'node', await withFreeNames(tx, nodeOf(record, id, parentId)))
  const [place] = await tx.query(
    `select 1 from node e join node p on p.id = e.parent_id join node c on c.id = (e.spec ->> 'cluster_id')::uuid
     where e.id = $1 and p.id = $2 and p.parent_id = $3 and c.organization_id = $3 and ${keySql('c')} = $4`,
    [environmentId, projectId, organizationId, clusterKey],
  )
  if (place === undefined) throw new UnusableRecord('Its project or its cluster is not in the database.')
  // A restored row is not an orphan, even if an id like it was removed from another cluster as one.
  await tx.query(`delete from deletion where id = any($1) and kind = 'ORPHAN'`, [[environmentId, record.serviceId]])
  await insertMissing(tx, 'deployment_stage', record.rows.deployment_stage)
}

const stateRow = ({ rows }: ServiceRecord) => rows.service_state?.[0] ?? {}

const writeState = async (tx: Queryable, { serviceId, environmentId, releaseId }: ServiceRecord, running: number) => {
  const isRunning = running > 0
  await tx.query(
    `update service_state s set state = $2, action = $3, action_status = 'SUCCESS', desired = $4, running_state = $4,
       deployment_id = r.deployment_id, execution_id = d.environment_id || '-' || d.execution_number,
       current_release_id = r.id, deployed_hash = r.hash, wanted_hash = null, wanted_version = wanted_version + 1,
       last_deployment_at = coalesce(d.started_at, d.created_at), problem = null, restarts = null,
       scaling = r.workload -> 'scaling', scale = case when r.workload ? 'scaling' then $5::int end,
       scaled_at = clock_timestamp(), updated_at = clock_timestamp()
     from release r join deployment d on d.id = r.deployment_id
     where s.service_id = $1 and s.environment_id = $6 and r.id = $7`,
    [
      serviceId,
      ...(isRunning ? ['DEPLOYED', 'DEPLOY', 'RUNNING'] : ['STOPPED', 'STOP', 'STOPPED']),
      running,
      environmentId,
      releaseId,
    ],
  )
}

/** Its deployment, recorded as a success, with a number that no other of its environment has. */
const writeDeployment = async (tx: Queryable, { rows, environmentId, deploymentId }: ServiceRecord): Promise<void> => {
  const over = { state: 'SUCCEEDED', worker: null, lease_until: null, error: null, cancel_requested_at: null }
  for (const row of rows.deployment ?? []) {
    const finished = { ...row, ...over, finished_at: row.finished_at ?? row.started_at ?? row.created_at }
    const [taken] = await tx.query<{ next: number }>(
      `select 1 + max(execution_number) as next from deployment
       where environment_id = $1 having bool_or(execution_number = $2 and id <> $3)`,
      [environmentId, row.execution_number, deploymentId],
    )
    await insertMissing(tx, 'deployment', [
      taken === undefined ? finished : { ...finished, execution_number: taken.next },
    ])
  }
  await insertMissing(
    tx,
    'deployment_service',
    rows.deployment_service?.map((row) => ({
      ...row,
      state: 'DEPLOYED',
      error: null,
      finished_at: row.finished_at ?? row.started_at ?? row.created_at,
    })),
  )
}

const existsSql = (domain: string): string => `exists (select from custom_domain d where d.id = ${domain})`

/** SQL: whether others have a wildcard with this domain in it, or domains in this wildcard. */
const overlapsSql = (domain: string, organization: string): string =>
  `exists (select from custom_domain d where d.organization_id <> ${organization}
     and ('*.' || substr(${domain}, strpos(${domain}, '.') + 1) = d.domain
       or '*.' || substr(d.domain, strpos(d.domain, '.') + 1) = ${domain}))`

/** Without the ports and hosts that another service has by now, or that may not be used any more. */
const writeService = async (tx: Queryable, record: ServiceRecord, running: number): Promise<void> => {
  const { rows, serviceId, environmentId } = record
  const service = await withFreeNames(tx, nodeOf(record, serviceId, environmentId))
  await updateOlder(tx, 'node', service)
  await insertMissing(tx, 'node', service)
  const { kind, stage_id: stageId = null, is_skipped: isSkipped = false } = stateRow(record)
  await tx.query(
    `insert into service_state (service_id, environment_id, organization_id, kind, stage_id, is_skipped)
     select n.id, n.parent_id, n.organization_id, $2, (select id from deployment_stage where id = $3 and environment_id = n.parent_id), $4
     from node n where n.id = $1 on conflict do nothing`,
    [serviceId, kind, stageId, isSkipped],
  )
  await writeDeployment(tx, record)
  await insertMissing(tx, 'release', rows.release)
  await insertMissing(tx, 'image', rows.image)
  await insertMissing(tx, 'custom_domain', rows.custom_domain, `not ${overlapsSql('r.domain', 'r.organization_id')}`)
  await insertMissing(tx, 'uploaded_certificate', rows.uploaded_certificate, existsSql('r.id'))
  await insertMissing(
    tx,
    'route',
    rows.route,
    `r.custom_domain_id is null
     or ${existsSql('r.custom_domain_id')} and ${reservedSql('r.host', 'r.organization_id')} is null`,
  )
  for (const table of ['outside_port', 'service_output', 'schedule'] as const)
    await insertMissing(tx, table, rows[table])
  await writeState(tx, record, running)
  await tx.query(`select pg_notify('slipway_routes', $1)`, [serviceId])
}

/** All of one environment together, because their variables refer to each other. */
const adoptEnvironment = (parts: Parts, clusterKey: string, services: readonly Readable[]): Promise<void> =>
  parts.database.transaction(async (tx) => {
    // The oldest first: rows in several records end with the values of the newest one.
    const opened = services
      .map(({ record, found }) => ({ record: record.reveal(), running: found.running }))
      .toSorted((a, b) => (a.record.at < b.record.at ? -1 : 1))
    const records: typeof opened = []
    for (const { record, running } of opened)
      records.push({ record: await onFoundCluster(tx, record, clusterKey), running })
    for (const { record } of records) await writePlace(tx, record, clusterKey)
    for (const { record, running } of records) await writeService(tx, record, running)
    await writeVariables(
      tx,
      records.map(({ record }): Rows => record.rows),
    )
  })

const reasonOf = (parts: Parts, error: unknown, serviceId: string): string => {
  if (error instanceof UnusableRecord) return error.message
  parts.log.error({ err: error, serviceId }, 'a service could not be adopted')
  return sqlState(error) === '23505'
    ? 'Its record conflicts with rows that the database has now.'
    : 'Its record could not be written into the database: the server’s log has the details.'
}

/** See the head of this file. */
export const adoptServices = async (
  parts: Parts,
  clusterKey: string,
  found: readonly FoundService[],
): Promise<ServiceAdoption> => {
  const adopted: string[] = []
  const left: ServiceAdoption['left'] = []
  const leave = (serviceId: string, error: unknown) =>
    left.push({ serviceId, reason: reasonOf(parts, error, serviceId) })
  const readable: Readable[] = []
  for (const each of found)
    await newestOf(parts, each).then(
      (record) => readable.push({ found: each, record }),
      (error: unknown) => leave(each.serviceId, error),
    )
  for (const services of Map.groupBy(readable, (each) => each.found.environmentId).values()) {
    try {
      await adoptEnvironment(parts, clusterKey, services)
      for (const { found: service } of services) adopted.push(service.serviceId)
    } catch {
      // A service that cannot be written must not block the others of its environment.
      for (const service of services)
        await adoptEnvironment(parts, clusterKey, [service]).then(
          () => adopted.push(service.found.serviceId),
          (error: unknown) => leave(service.found.serviceId, error),
        )
    }
  }
  return { adopted, left }
}
