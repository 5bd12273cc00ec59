/**
 * Databases: PostgreSQL, MySQL, MongoDB and Redis, run from their public images with a volume for their files, or made
 * by a module of the operator (managed-database.ts). Promises that the password, generated at creation or output by
 * the module, is sealed and shown by one operation only.
 */
import { randomInt } from 'node:crypto'
import Type from 'typebox'
import { type Context, nodeInPath, operation, reading } from '../../api/operations/operation.ts'
import { auditOf, type Change, placeOf, type Spec } from '../../api/operations/resource.ts'
import {
  Computed,
  Discarded,
  Flag,
  Maybe,
  Nullable,
  OneOf,
  Results,
  Secret,
  Text,
  Whole,
} from '../../api/operations/schema.ts'
import { type DatabaseModule, type DatabaseModules, databaseModuleOf } from '../../clusters/database-modules.ts'
import { readRef } from '../../clusters/refs.ts'
import { mainTask, type WorkloadSpec } from '../../deployments/deployments.ts'
import { deployable } from '../../facets/deployable.ts'
import { history } from '../../facets/history.ts'
import { logs } from '../../facets/logs.ts'
import { releases } from '../../facets/releases.ts'
import { waitAtMost } from '../../lib/concurrency/waiting.ts'
import { conflict, invalidField, notFound } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { publishedHostOfSql } from '../../store/installation.ts'
import { type Content, writeAudit } from '../../store/tree.ts'
import { completePorts, isPublished, type Port, volumeSizeWords } from '../service/parts.ts'
import { choosePorts } from '../service/published-ports.ts'
import { noteSizes, refuseBeyondCluster, workloadOf } from '../service/running.ts'
import { type Filled, type Service, service } from '../service/service.ts'
import {
  databaseTypeNames,
  databaseTypes,
  isEligible,
  isOlder,
  nextVersions,
  upgradeRefusal,
} from './database-types.ts'
import {
  checkManaged,
  demandModule,
  judgeTold,
  managedBuiltIns,
  managedSource,
  managedTask,
  managedWorkload,
  moduleVersions,
  readProvider,
  unreadFields,
} from './managed-database.ts'

const modes = ['CONTAINER', 'MANAGED']

const usualStorageGb = 10

const spec = Type.Object({
  type: OneOf(databaseTypeNames),
  version: Text(20, { pattern: '^\\d{1,4}(\\.\\d{1,4}){0,2}$' }),
  mode: OneOf(modes, {
    description:
      'CONTAINER: a container with a volume. MANAGED: a database that a Terraform module of the operator makes; refused where there is none for the type and the provider of the cluster.',
  }),
  accessibility: Maybe(OneOf(['PRIVATE', 'PUBLIC'], { default: 'PRIVATE' })),
  cpu: Maybe(Whole(10, 1_000_000, { default: 250 })),
  memory: Maybe(Whole(6, 100_000_000)),
  storage: Maybe(Whole(1, 65_536, { default: usualStorageGb, description: volumeSizeWords })),
  instance_type: Maybe(Nullable(Text(100, { description: 'Only for the mode MANAGED.' }))),
  disk_type: Maybe(Nullable(OneOf(['gp2', 'gp3'], { description: 'Only for the mode MANAGED.' }))),
  password: Maybe(Secret(100)),
  database_url: Maybe(Secret(1024)),
})

type DatabaseSpec = {
  type: string
  version: string
  mode?: string
  /** Provider of the cluster, in the mode MANAGED. */
  provider?: string
  cpu: number
  memory: number
  storage: number
  /** Id of its volume; absent in the mode MANAGED. */
  volume_id?: string
  /** Its only port; rows from before databases could be public have none. */
  ports?: Port[]
  /** The ports chosen by the server, as `TCP 30012`. */
  drawn_ports?: string[]
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

const newCredentials = (id: string, type: string): Spec => {
  const { scheme, port, login, database: name } = databaseTypes[type]!
  const password = newPassword()
  return { password, database_url: `${scheme}://${login}:${password}@${hostOf(id)}:${port}/${name}` }
}

/** The published port of a public database; undefined for a private one. */
const publishedPortOf = (ports: readonly Port[] | undefined): number | undefined =>
  ports?.find(isPublished)?.external_port

/** The variables that other services of the environment get from a database (variables/places.ts). */
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
 * Where clients connect: on the environment's network or, if it is public, at its public host. While the load balancer
 * of a Kubernetes cluster has no address, the internal address is returned.
 */
const addressOf = (id: unknown, { type, ports }: Pick<DatabaseSpec, 'type' | 'ports'>, outsideHost: string | null) => {
  const outside = publishedPortOf(ports)
  return outside === undefined || outsideHost === null
    ? { host: hostOf(id), port: databaseTypes[type]!.port }
    : { host: outsideHost, port: outside }
}

/** The client's address from the outputs of the module's last run. */
type Told = { HOST?: string; PORT?: string } | null

const toldSql = `(select json_object_agg(o.name, o.value) from service_output o
  where o.service_id = n.id and o.name in ('HOST', 'PORT'))`

/** Empty before the first deployment. */
const toldAddress = (type: string, told: Told) => ({
  host: told?.HOST ?? '',
  port: Number(told?.PORT ?? databaseTypes[type]!.port),
})

const portsOf = (type: string, accessibility: unknown, before: readonly Port[]): Port[] => {
  const port = { internal_port: databaseTypes[type]!.port, protocol: 'TCP' }
  return completePorts([{ ...port, publicly_accessible: accessibility === 'PUBLIC' }], before)
}

type Body = Filled<typeof spec, { cpu: number; storage: number }>

const completeManaged = async (body: Body, context: Context, { db, parent, previous }: Change<DatabaseSpec>) => {
  const { type, accessibility } = body
  const provider = await readProvider(db, parent.id)
  const module = demandModule(context.parts.settings.databaseModules, provider, type)
  checkManaged(module, body, previous?.spec.version)
  for (const field of unreadFields(module, context.body)) context.onlyRecorded([field])
  const { volume_id: _, ports: __, ...kept } = body as Body & { volume_id?: unknown; ports?: unknown }
  return {
    ...kept,
    memory: body.memory ?? databaseTypes[type]!.memory,
    instance_type: body.instance_type || null,
    disk_type: body.disk_type ?? null,
    provider,
    built_in: managedBuiltIns(type, accessibility === 'PUBLIC'),
  }
}

const refuseManagedFields = ({ instance_type: size, disk_type: disk }: Body): void => {
  if (size) throw invalidField('/instance_type', 'is only for the mode MANAGED; set `cpu` and `memory` instead')
  if (disk) throw invalidField('/disk_type', 'is only for the mode MANAGED')
}

const complete = async (body: Body, context: Context, change: Change<DatabaseSpec>): Promise<DatabaseSpec> => {
  if (body.mode === 'MANAGED') return completeManaged(body, context, change)
  refuseManagedFields(body)
  const { id, previous } = change
  const before = previous?.spec
  const { type } = body
  checkVersion(type, body.version, before?.version)
  const kept = { ...body, memory: body.memory ?? databaseTypes[type]!.memory, instance_type: null, disk_type: null }
  const capacity = await refuseBeyondCluster(change, kept)
  if (body.storage !== usualStorageGb) noteSizes(context, capacity, [['storage']])
  const wanted = portsOf(type, body.accessibility, before?.ports ?? [])
  const { ports, drawn_ports } = await choosePorts(context, change, wanted, { named: false })
  const whole = { ...kept, ports, drawn_ports, built_in: builtInValuesOf(id, type, ports) }
  return before === undefined
    ? { ...whole, volume_id: newId(), ...newCredentials(id, type) }
    : { ...whole, volume_id: before.volume_id! }
}

const patientProbe = { initial_delay_seconds: 0, period_seconds: 2, timeout_seconds: 5, success_threshold: 1 }
const maxTries = 60
// It writes its buffers to disk before it exits.
const stopGraceMs = 60_000

const isManaged = ({ mode }: { mode?: unknown }): boolean => mode === 'MANAGED'

const workloadOfDatabase = (kept: DatabaseSpec): WorkloadSpec => {
  if (isManaged(kept)) return managedWorkload
  const { type, cpu, memory, storage, volume_id: id, ports } = kept
  const { dataPath, probe, entrypoint, withoutRoot } = databaseTypes[type]!
  const readiness_probe = { ...patientProbe, failure_threshold: maxTries, type: { exec: { command: [...probe] } } }
  const workload = workloadOf({
    cpu,
    memory,
    min_running_instances: 1,
    max_running_instances: 1,
    healthchecks: { readiness_probe },
    ports: ports ?? portsOf(type, 'PRIVATE', []),
    storage: [{ id: id!, type: 'FAST_SSD', size: storage, mount_point: dataPath }],
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
  columns: { outside_host: publishedHostOfSql('n.id'), told: toldSql },
  validate: complete,
  view: ({ volume_id: _, built_in: __, provider: ___, ports, outside_host: outsideHost, told, ...record }) => ({
    ...record,
    ...(isManaged(record)
      ? toldAddress(record.type, told as Told)
      : addressOf(record.id, { type: record.type, ports }, outsideHost as string | null)),
    disk_encrypted: false,
  }),
  facets: [
    deployable({
      deployBody: Type.Object({
        action: Maybe(
          Nullable(
            OneOf(['PLAN', 'FORCE_UNLOCK'], {
              description:
                'For a database in the mode MANAGED: PLAN only plans, with the plan in the log of the deployment; FORCE_UNLOCK unlocks the state of a run that was lost.',
            }),
          ),
        ),
      }),
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
      if (isManaged(kept)) return managedSource({ provider: '', ...kept })
      return { from: 'image', registryId: null, name: databaseTypes[type]!.image, tag: version }
    },
    workload: workloadOfDatabase,
    tasks: (kept) => (isManaged(kept) ? { [mainTask]: managedTask } : undefined),
    told: judgeTold,
    sizeFields: () => ['/storage'],
    moveRefusal: upgradeRefusal,
    environment: (kept, secrets) => (isManaged(kept) ? {} : databaseTypes[kept.type]!.environment(secrets.password!)),
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

/** The outputs of the module of a database in the mode MANAGED. Throws a 409 before its first deployment. */
const readTold = async ({ db, node, parts, principal }: Pick<Context, 'db' | 'node' | 'parts' | 'principal'>) => {
  const rows = await db.query<{ id: string; name: string; value: string | null; sealed: string | null }>(
    'select id, name, value, sealed from service_output where service_id = $1',
    [node.id],
  )
  const all = new Map(rows.map((row) => [row.name, row]))
  const word = all.get('PASSWORD')
  if (word === undefined) throw conflict('not_deployed', 'This database has no credentials yet: deploy it first.')
  const place = { table: 'service_output', row: word.id, column: 'sealed' }
  const password = await parts.sealer.open(principal.organizationId, place, word.sealed!)
  const open = (name: string): string => all.get(name)?.value ?? ''
  return { host: open('HOST'), port: Number(open('PORT')), login: open('LOGIN'), password }
}

const lookMs = 3000

/** The host of the cluster's load balancer for a public database; null if there is none. */
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
    const told = isManaged(kept) ? await readTold(context) : null
    const password = told?.password ?? (await parts.sealer.open(principal.organizationId, place, sealed.password!))
    const audit = auditOf(context, 'UPDATE', { target: 'DATABASE', subTarget: 'SECRET' }, placeOf(node), null)
    await writeAudit(db, principal.organizationId, node, { ...audit, eventType: 'EXPORT' })
    const { host, port } = told ?? addressOf(node.id, kept, outsideHost ?? (await balancerOf(context, kept)))
    return { host, port, login: told?.login ?? databaseTypes[kept.type]!.login, password: password.reveal() }
  },
})

/** Without its module a database stays at its present version. */
const managedVersions = (module: DatabaseModule | null, type: string, version: string): string[] => {
  const all = module === null ? [] : moduleVersions(module, type)
  return [...new Set([version, ...all.filter((each) => !isOlder(each, version))])]
}

const listVersion = operation({
  id: 'listDatabaseVersion',
  ...reading,
  path: '/database/{databaseId}/version',
  tag: 'Database Main Calls',
  summary: 'List the versions that a database can move to with its data',
  area: 'projects',
  owner,
  answer: Results(Type.Object({ name: Text() })),
  async run({ db, node, parts }) {
    const { spec: kept } = await readRow(db, node.id)
    const { type, version, provider = '' } = kept
    const module = isManaged(kept) ? databaseModuleOf(parts.settings.databaseModules, provider, type) : null
    const next = isManaged(kept) ? managedVersions(module, type, version) : nextVersions(type, version)
    return { results: next.map((name) => ({ name })) }
  },
})

const configurationsOf = (modules: DatabaseModules | undefined, provider: string) =>
  Object.entries(databaseTypes).map(([type, { versions }]) => {
    const module = databaseModuleOf(modules, provider, type)
    const managed = module === null ? [] : moduleVersions(module, type)
    return {
      database_type: type,
      version: [
        ...versions.map((name) => ({ name, supported_mode: 'CONTAINER' })),
        ...managed.map((name) => ({ name, supported_mode: 'MANAGED' })),
      ],
    }
  })

const listConfiguration = operation({
  id: 'listEnvironmentDatabaseConfig',
  ...reading,
  path: '/environment/{environmentId}/databaseConfiguration',
  tag: 'Databases',
  summary: 'List the database types and versions available in an environment',
  area: 'projects',
  owner: nodeInPath('environment', 'environmentId'),
  answer: Results(
    Type.Object({
      database_type: OneOf(databaseTypeNames),
      version: Type.Array(Type.Object({ name: Text(), supported_mode: OneOf(modes) })),
    }),
  ),
  run: async ({ db, node, parts }) => ({
    results: configurationsOf(parts.settings.databaseModules, await readProvider(db, node.id)),
  }),
})

export const database: Service = {
  ...made,
  operations: [...made.operations, masterCredentials, listVersion, listConfiguration],
}
