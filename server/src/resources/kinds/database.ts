/**
 * Databases: PostgreSQL, MySQL, MongoDB and Redis, run from their public images with a volume for their files. Promises
 * that the password, generated at creation, is sealed and shown by one operation only.
 */
import { randomInt } from 'node:crypto'
import Type from 'typebox'
import { type Context, nodeInPath, operation } from '../../api/operations/operation.ts'
import { auditOf, type Change, placeOf, type Spec } from '../../api/operations/resource.ts'
import {
  Computed,
  Discarded,
  Flag,
  Maybe,
  Nullable,
  OneOf,
  Refused,
  RefusedValues,
  Results,
  Secret,
  Text,
  Whole,
} from '../../api/operations/schema.ts'
import { readRef } from '../../clusters/refs.ts'
import type { WorkloadSpec } from '../../deployments/deployments.ts'
import { deployable } from '../../facets/deployable.ts'
import { history } from '../../facets/history.ts'
import { logs } from '../../facets/logs.ts'
import { releases } from '../../facets/releases.ts'
import { waitAtMost } from '../../lib/concurrency/waiting.ts'
import { invalidField, notFound } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { publishedHostOfSql } from '../../store/installation.ts'
import { type Content, writeAudit } from '../../store/tree.ts'
import { completePorts, isPublished, type Port, volumeSizeWords } from '../service/parts.ts'
import { choosePorts } from '../service/published-ports.ts'
import { noteSizes, refuseBeyondCluster, workloadOf } from '../service/running.ts'
import { type Filled, type Service, service } from '../service/service.ts'
import { databaseTypeNames, databaseTypes, isEligible, nextVersions, upgradeRefusal } from './database-types.ts'

const modes = ['CONTAINER', 'MANAGED']

const managed = 'MANAGED is not possible: this server creates nothing at cloud providers. Use CONTAINER'
const usualStorageGb = 10

const spec = Type.Object({
  type: OneOf(databaseTypeNames),
  version: Text(20, { pattern: '^\\d{1,4}(\\.\\d{1,4}){0,2}$' }),
  mode: RefusedValues(OneOf(modes), ['MANAGED'], managed),
  accessibility: Maybe(OneOf(['PRIVATE', 'PUBLIC'], { default: 'PRIVATE' })),
  cpu: Maybe(Whole(10, 1_000_000, { default: 250 })),
  memory: Maybe(Whole(6, 100_000_000)),
  storage: Maybe(Whole(1, 65_536, { default: usualStorageGb, description: volumeSizeWords })),
  instance_type: Maybe(Refused(Nullable(Text(100)), 'is only for the mode MANAGED; set `cpu` and `memory` instead')),
  disk_type: Maybe(Refused(Nullable(OneOf(['gp2', 'gp3'])), 'is only for the mode MANAGED')),
  password: Maybe(Secret(100)),
  database_url: Maybe(Secret(1024)),
})

type DatabaseSpec = {
  type: string
  version: string
  cpu: number
  memory: number
  storage: number
  /** Id of its volume. */
  volume_id: string
  /** Its only port; rows from before databases could be public have none. */
  ports?: Port[]
}

const checkVersion = (type: string, version: string, previous: string | undefined): void => {
  if (previous === version) return
  if (!isEligible(type, version))
    throw invalidField('/version', `must be one of ${databaseTypes[type]!.versions.join(', ')} or a release of one`)
  const refusal = previous === undefined ? null : upgradeRefusal(previous, version)
  if (refusal !== null) throw invalidField('/version', refusal)
}

const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'
/** Letters and digits only: safe in any URL and any configuration file. */
const newPassword = (): string => Array.from({ length: 32 }, () => letters[randomInt(letters.length)]).join('')

/** The name of a service on its environment's network, which survives renaming. */
const hostOf = (id: unknown): string => `service-${String(id)}`

/** The secrets of a new database. */
const newCredentials = (id: string, type: string): Spec => {
  const { scheme, port, login, database: name } = databaseTypes[type]!
  const password = newPassword()
  return { password, database_url: `${scheme}://${login}:${password}@${hostOf(id)}:${port}/${name}` }
}

/** The published port of a public database; undefined for a private one. */
const publishedPortOf = (ports: readonly Port[] | undefined): number | undefined =>
  ports?.find(isPublished)?.external_port

/** What other services of the environment learn about a database (variables/places.ts). */
const builtInValuesOf = (id: string, type: string, ports: readonly Port[]): Spec => {
  const { scheme, port, login, database: name } = databaseTypes[type]!
  const outside = publishedPortOf(ports)
  const publicUrl = { sealed: 'password', before: `${scheme}://${login}:`, after: `@{outside}:${outside}/${name}` }
  return {
    HOST: { value: outside === undefined ? hostOf(id) : '{outside}' },
    PORT: { value: String(port) },
    LOGIN: { value: login },
    DEFAULT_DATABASE_NAME: { value: name },
    PASSWORD: { sealed: 'password' },
    DATABASE_URL: outside === undefined ? { sealed: 'database_url' } : publicUrl,
    DATABASE_URL_INTERNAL: { sealed: 'database_url' },
  }
}

/**
 * Where clients connect: on the environment's network or, if it is public, on this machine. Without a host of that, which
 * a Kubernetes cluster's load balancer has for itself, it is told as services of its environment reach it.
 */
const addressOf = (id: unknown, { type, ports }: Pick<DatabaseSpec, 'type' | 'ports'>, outsideHost: string | null) => {
  const outside = publishedPortOf(ports)
  return outside === undefined || outsideHost === null
    ? { host: hostOf(id), port: databaseTypes[type]!.port }
    : { host: outsideHost, port: outside }
}

const portsOf = (type: string, accessibility: unknown, before: readonly Port[]): Port[] => {
  const port = { internal_port: databaseTypes[type]!.port, protocol: 'TCP' }
  return completePorts([{ ...port, publicly_accessible: accessibility === 'PUBLIC' }], before)
}

const complete = async (
  body: Filled<typeof spec, { cpu: number; storage: number }>,
  context: Context,
  change: Change<DatabaseSpec>,
) => {
  const { id, previous } = change
  const before = previous?.spec
  const { type } = body
  checkVersion(type, body.version, before?.version)
  const kept = { ...body, memory: body.memory ?? databaseTypes[type]!.memory, instance_type: null, disk_type: null }
  const capacity = await refuseBeyondCluster(change, kept)
  if (body.storage !== usualStorageGb) noteSizes(context, capacity, [['storage']])
  const wanted = portsOf(type, body.accessibility, before?.ports ?? [])
  const ports = await choosePorts(context, change, wanted, { named: false })
  const whole = { ...kept, ports, built_in: builtInValuesOf(id, type, ports) }
  return before === undefined
    ? { ...whole, volume_id: newId(), ...newCredentials(id, type) }
    : { ...whole, volume_id: before.volume_id }
}

const patientProbe = { initial_delay_seconds: 0, period_seconds: 2, timeout_seconds: 5, success_threshold: 1 }
const maxTries = 60
// It writes its buffers to disk before it exits.
const stopGraceMs = 60_000

const workloadOfDatabase = ({ type, cpu, memory, storage, volume_id: id, ports }: DatabaseSpec): WorkloadSpec => {
  const { dataPath, probe, entrypoint, withoutRoot } = databaseTypes[type]!
  const readiness_probe = { ...patientProbe, failure_threshold: maxTries, type: { exec: { command: [...probe] } } }
  const workload = workloadOf({
    cpu,
    memory,
    min_running_instances: 1,
    max_running_instances: 1,
    healthchecks: { readiness_probe },
    ports: ports ?? portsOf(type, 'PRIVATE', []),
    storage: [{ id, type: 'FAST_SSD', size: storage, mount_point: dataPath }],
    arguments: [],
  })
  return {
    ...workload,
    eagerReadiness: true,
    stopGraceMs,
    withoutRoot,
    entrypoint: entrypoint === undefined ? null : [...entrypoint],
  }
}

const made = service({
  kind: 'database',
  path: 'database',
  noun: 'Database',
  nounWithArticle: 'a database',
  list: { id: 'listDatabase', words: 'databases' },
  spec,
  fixed: { type: 'type', mode: 'mode' },
  generated: ['password', 'database_url'],
  record: {
    type: OneOf(databaseTypeNames),
    version: Text(20),
    mode: OneOf(modes),
    host: Computed(Text()),
    port: Computed(Whole(1, 65_535)),
    disk_encrypted: Computed(Flag()),
  },
  columns: { outside_host: publishedHostOfSql('n.id') },
  validate: complete,
  view: ({ volume_id: _, built_in: __, ports, outside_host: outsideHost, ...record }) => ({
    ...record,
    ...addressOf(record.id, { type: record.type, ports }, outsideHost as string | null),
    disk_encrypted: false,
  }),
  facets: [
    deployable({
      deployBody: Type.Object({}),
      deployQuery: Type.Object({
        applyImmediately: Maybe(Discarded(Flag({ description: 'Always as if true: a deploy applies at once.' }))),
      }),
    }),
    history,
    releases,
    logs,
  ],
  deployable: {
    source(kept) {
      const { type, version } = kept
      return { from: 'image', registryId: null, name: databaseTypes[type]!.image, tag: version }
    },
    workload: workloadOfDatabase,
    sizeFields: () => ['/storage'],
    moveRefusal: upgradeRefusal,
    environment: (kept, secrets) => databaseTypes[kept.type]!.environment(secrets.password!),
  },
})

const owner = nodeInPath('database', 'databaseId')

type Row = Omit<Content, 'spec'> & { spec: DatabaseSpec; outsideHost: string | null }

const readRow = async (db: Queryable, id: string): Promise<Row> => {
  const sql = `select name, spec, sealed, ${publishedHostOfSql('n.id')} as "outsideHost" from node n where n.id = $1`
  const [row] = await db.query<Row>(sql, [id])
  if (row === undefined) throw notFound()
  return row
}

const lookMs = 3000

/** The host of the load balancer that its cluster has for a public one; null while there is none. */
const balancerOf = async ({ db, node, parts }: Context, { ports }: DatabaseSpec): Promise<string | null> => {
  const port = publishedPortOf(ports)
  const ref = port === undefined ? null : await readRef(db, node.id)
  if (ref === null) return null
  const { ingress } = await parts.clusters.of(ref.clusterId)
  await waitAtMost(
    parts.clock,
    lookMs,
    ingress.look([ref]).catch(() => {}),
  )
  return ingress.address(port!)?.slice(0, -`:${port}`.length) ?? null
}

const masterCredentials = operation({
  id: 'getDatabaseMasterCredentials',
  method: 'GET',
  path: '/database/{databaseId}/masterCredentials',
  tag: 'Database Main Calls',
  summary: 'Read the login and password of a database; every read is recorded in the audit log',
  // Read-only access must not include the key to the data.
  scope: 'Write',
  area: 'projects',
  owner,
  status: 200,
  answer: Type.Object(
    { host: Text(), port: Whole(1, 65_535), login: Text(), password: Text() },
    { title: 'DatabaseCredentials' },
  ),
  async run(context) {
    const { db, node, parts, principal } = context
    const { spec: kept, sealed, outsideHost } = await readRow(db, node.id)
    const place = { table: 'node', row: node.id, column: 'password' }
    const password = await parts.sealer.open(principal.organizationId, place, sealed.password!)
    const audit = auditOf(context, 'UPDATE', { target: 'DATABASE', subTarget: 'SECRET' }, placeOf(node), null)
    await writeAudit(db, principal.organizationId, node, { ...audit, eventType: 'EXPORT' })
    const address = addressOf(node.id, kept, outsideHost ?? (await balancerOf(context, kept)))
    return { ...address, login: databaseTypes[kept.type]!.login, password: password.reveal() }
  },
})

const listVersion = operation({
  id: 'listDatabaseVersion',
  method: 'GET',
  path: '/database/{databaseId}/version',
  tag: 'Database Main Calls',
  summary: 'List the versions that a database can move to with its data',
  scope: 'Read',
  area: 'projects',
  owner,
  status: 200,
  answer: Results(Type.Object({ name: Text() })),
  async run({ db, node }) {
    const { type, version } = (await readRow(db, node.id)).spec
    return { results: nextVersions(type, version).map((name) => ({ name })) }
  },
})

const configurations = Object.entries(databaseTypes).map(([type, { versions }]) => ({
  database_type: type,
  version: versions.map((name) => ({ name, supported_mode: 'CONTAINER' })),
}))

const listConfiguration = operation({
  id: 'listEnvironmentDatabaseConfig',
  method: 'GET',
  path: '/environment/{environmentId}/databaseConfiguration',
  tag: 'Databases',
  summary: 'List the database types and versions available in an environment',
  scope: 'Read',
  area: 'projects',
  owner: nodeInPath('environment', 'environmentId'),
  status: 200,
  answer: Results(
    Type.Object({
      database_type: OneOf(databaseTypeNames),
      version: Type.Array(Type.Object({ name: Text(), supported_mode: OneOf(modes) })),
    }),
  ),
  run: async () => ({ results: configurations }),
})

export const database: Service = {
  ...made,
  operations: [...made.operations, masterCredentials, listVersion, listConfiguration],
}
