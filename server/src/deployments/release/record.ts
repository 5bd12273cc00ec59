/**
 * The record of a service: its rows, sealed, kept on its instances and volumes, so that a database that has lost them
 * can restore them (adopt-services.ts). Promises that reading or making one requires this installation's master key. A
 * record is as old as the deployment that wrote it. If the process dies here, nothing is left.
 */
import { promisify } from 'node:util'
import { deflateRaw, inflateRaw } from 'node:zlib'
import { readLargeJson, tryJson } from '../../lib/foreign-text/read-json.ts'
import type { Log } from '../../lib/log.ts'
import { Secret } from '../../lib/secret.ts'
import type { Workload } from '../../runtimes/runtime.ts'
import type { Database } from '../../store/database.ts'
import type { Sealer, WrappedKey } from '../../store/keys/seal.ts'
import type { Release } from './releases.ts'

/** Rows of tables, as their columns, by the tables' names. */
export type Rows = Readonly<Record<string, readonly Readonly<Record<string, unknown>>[] | null>>

export interface ServiceRecord {
  organizationId: string
  projectId: string
  environmentId: string
  serviceId: string
  deploymentId: string
  releaseId: string
  /** RFC 3339: when it was written. */
  at: string
  rows: Rows
}

/** The form on an instance: JSON. */
interface Envelope {
  version: 1
  organization: string
  /** The data keys that sealed the record and values in its rows. */
  keys: WrappedKey[]
  sealed: string
}

/** The engine sends labels with every event, and Kubernetes takes 256 KiB of annotations: 48 KiB for ours. */
const mostBytes = 48 * 1024
const inflatedBounds = { mostBytes: 16 * 2 ** 20, mostValues: 1_000_000 }

const deflate = promisify(deflateRaw)
const inflate = promisify(inflateRaw)

const place = (serviceId: string) => ({ table: 'record', row: serviceId, column: 'rows' })

const under = `in ($1, $2, $3)`

/** The rows of service $1 in environment $2 of project $3 with release $4 of deployment $5. */
const conditions: Readonly<Record<string, string>> = {
  node: `id ${under}`,
  variable: `parent_id ${under}`,
  deployment_stage: 'environment_id = $2',
  service_state: 'service_id = $1',
  custom_domain: 'service_id = $1',
  uploaded_certificate: 'id in (select id from custom_domain where service_id = $1)',
  route: 'service_id = $1',
  outside_port: 'service_id = $1',
  service_output: 'service_id = $1',
  schedule: 'service_id = $1',
  deployment: 'id = $5',
  deployment_service: 'deployment_id = $5 and service_id = $1',
  release: 'id = $4',
  image:
    'reference = (select image from release where id = $4) and organization_id = (select organization_id from release where id = $4)',
}

/** Tables left out of a record that would otherwise be too large: first those that the fewest restores need. */
const dispensable = [[], ['uploaded_certificate', 'service_output'], ['variable']] as const

/** For tables with long texts, SQL for their size in a row `x`, which is read before any of them. */
const longTexts: Readonly<Record<string, string>> = {
  variable: `octet_length(coalesce(x.value, '')) + octet_length(coalesce(x.sealed, ''))`,
  service_output: `octet_length(coalesce(x.value, '')) + octet_length(coalesce(x.sealed, ''))`,
  release: 'octet_length(x.sealed_env)',
}

/** More than a record could contain, however well compressed, is not read into memory. */
const mostTextBytes = 256 * 1024

const rowsSql = (table: string, condition: string): string => {
  const rows = `(select jsonb_agg(to_jsonb(x)) from ${table} x where ${condition})`
  const bytes = longTexts[table]
  if (bytes === undefined) return `${rows} as ${table}`
  const size = `(select coalesce(sum(${bytes}), 0) from ${table} x where ${condition})`
  return `case when ${size} <= ${mostTextBytes} then ${rows} end as ${table}`
}

const select = `select ${Object.entries(conditions)
  .map(([table, condition]) => rowsSql(table, condition))
  .join(', ')}`

type Ids = Pick<Release, 'id' | 'organizationId' | 'serviceId' | 'deploymentId' | 'workload'>

const seal = async (sealer: Sealer, keys: WrappedKey[], record: ServiceRecord): Promise<string> => {
  const packed = (await deflate(JSON.stringify(record), { level: 6 })).toString('base64')
  const sealed = await sealer.seal(record.organizationId, place(record.serviceId), packed)
  return JSON.stringify({ version: 1, organization: record.organizationId, keys, sealed } satisfies Envelope)
}

/** The record of a service at this release; none, with a line in the log, if above 48 KiB without its variables. */
export const writeRecord = async (
  { database, sealer, log }: { database: Database; sealer: Sealer; log: Log },
  release: Ids,
): Promise<Pick<Workload, 'record'>> => {
  const { organizationId, serviceId, deploymentId, workload } = release
  const { environmentId, projectId } = workload
  await sealer.prepare(organizationId)
  const [rows, keys] = await Promise.all([
    database.query<Rows>(select, [serviceId, environmentId, projectId, release.id, deploymentId]),
    sealer.dataKeys(organizationId),
  ])
  const ids = { organizationId, projectId, environmentId, serviceId, deploymentId, releaseId: release.id }
  const kept: Record<string, Rows[string]> = { ...rows[0] }
  for (const tables of kept.release == null ? [] : dispensable) {
    for (const table of tables) delete kept[table]
    const record = await seal(sealer, keys, { ...ids, at: new Date().toISOString(), rows: kept })
    if (record.length <= mostBytes) return { record }
  }
  log.warn({ serviceId }, 'the configuration of a service is too large for a record of it on its instances')
  return {}
}

/** Why a record is useless, in a sentence. */
export class UnusableRecord extends Error {}

const parse = (text: string): Envelope => {
  if (text.length > mostBytes) throw new UnusableRecord('Its record is larger than one of ours.')
  const envelope = tryJson(text, { mostBytes, mostValues: 1000 }) as Partial<Envelope> | undefined
  if (envelope === undefined) throw new UnusableRecord('Its record is damaged.')
  if (envelope?.version !== 1 || typeof envelope.organization !== 'string' || typeof envelope.sealed !== 'string')
    throw new UnusableRecord('Its record has a form that this version of the server does not know.')
  return { ...(envelope as Envelope), keys: Array.isArray(envelope.keys) ? envelope.keys : [] }
}

/**
 * Opens the record of this service of this organization; adds the data keys that it needs. Rejects with
 * `UnusableRecord` if it is damaged, another service's, or sealed with a master key that this server lacks.
 */
export const readRecord = async (
  sealer: Sealer,
  { organizationId, serviceId }: { organizationId: string; serviceId: string },
  text: string,
): Promise<Secret<ServiceRecord>> => {
  const { organization, keys, sealed } = parse(text)
  if (organization !== organizationId) throw new UnusableRecord('Its record is that of another organization.')
  let packed: string
  try {
    await sealer.addDataKeys(organizationId, keys)
    packed = (await sealer.open(organizationId, place(serviceId), sealed)).reveal()
  } catch (cause) {
    throw new UnusableRecord('Its record cannot be opened with the master key of this server.', { cause })
  }
  const json = await inflate(Buffer.from(packed, 'base64'), { maxOutputLength: inflatedBounds.mostBytes })
  return new Secret((await readLargeJson(json, { owner: organizationId, ...inflatedBounds })) as ServiceRecord)
}
