/**
 * The deployment engine over a real database and the fake runtime, with a builder and a router that live in memory; and
 * a power switch: once it is off, nothing of that engine reaches the world any more, like a process after kill -9.
 */
import { randomBytes } from 'node:crypto'
import type { Builder, Commit } from '../../src/builds/builder.ts'
import { createClusters } from '../../src/clusters/clusters.ts'
import {
  type DeployableKind,
  type DeploymentRequest,
  mainTask,
  type TaskSpec,
  type WorkloadSpec,
} from '../../src/deployments/deployments.ts'
import { createDeploymentEngine, type DeploymentEngine } from '../../src/deployments/engine.ts'
import type { DeploymentParts } from '../../src/deployments/parts.ts'
import type { Kind } from '../../src/kinds.ts'
import { createKeyedLock } from '../../src/lib/concurrency/keyed-lock.ts'
import { DeploymentError } from '../../src/lib/errors.ts'
import { newId } from '../../src/lib/ids.ts'
import { createLog } from '../../src/lib/log.ts'
import { Secret } from '../../src/lib/secret.ts'
import { systemClock } from '../../src/lib/time/clock.ts'
import type { AnyRoute, Router } from '../../src/router/router.ts'
import { createBlueGreen } from '../../src/runtimes/blue-green/blue-green.ts'
import { createFakeRuntime, type FakeRuntime } from '../../src/runtimes/fake/fake.ts'
import type { Runtime } from '../../src/runtimes/runtime.ts'
import type { Database, Queryable } from '../../src/store/database.ts'
import type { DeploymentEvent } from '../../src/webhooks/webhooks.ts'
import { createWorkRegistry } from '../../src/work/registry.ts'
import { standIn } from './stand-in.ts'

/** Off: no call gets through and none comes back. `afterCalls` counts down on each call of a cut part. */
export interface Power {
  off: boolean
  /** Goes off when this many calls have been made; null never. */
  callsLeft: number | null
  /** True: the last call still takes effect, only its answer is lost. */
  lateCut: boolean
}

const forever = new Promise<never>(() => {})

const through = async <T>(power: Power, call: () => Promise<T>): Promise<T> => {
  if (power.off) return forever
  if (power.callsLeft !== null) {
    power.callsLeft -= 1
    if (power.callsLeft <= 0) {
      power.off = true
      if (power.lateCut) await call().catch(() => {})
      return forever
    }
  }
  const result = await call()
  return power.off ? forever : result
}

const unswitched: ReadonlySet<string> = new Set(['watch', 'keepAlive', 'url', 'address', 'close'])

/** Every method of `part` goes through the power switch. */
const switched = <T extends object>(part: T, power: Power): T =>
  new Proxy(part, {
    get(target, name, receiver) {
      const value: unknown = Reflect.get(target, name, receiver)
      if (typeof value !== 'function' || unswitched.has(String(name))) return value
      return (...values: unknown[]) => through(power, async () => Reflect.apply(value, target, values))
    },
  })

/** A transaction is one call: cut, none of it happened, or (late) all of it. */
export const switchedDatabase = (database: Database, power: Power): Database => ({
  ...database,
  query: (text, values) => through(power, () => database.query(text, values)),
  transaction: (work) => through(power, () => database.transaction(work)),
  close: async () => {},
})

/** What stays when a process dies: the engine's world. */
export interface World {
  database: Database
  runtime: FakeRuntime
  routes: Map<string, AnyRoute[]>
  clusterId: string
  /** Images built, by commit. */
  builds: string[]
  /** Image of each commit id; a `DeploymentError` fails the build, `hang` never ends and heeds no abort. */
  images: Map<string, string | DeploymentError>
  /** Head of the branch. */
  head: string
  events: (DeploymentEvent & { at: number })[]
  ids: { organizationId: string; projectId: string; environmentId: string }
}

export const createWorld = async (database: Database): Promise<World> => {
  const ids = { organizationId: newId(), projectId: newId(), environmentId: newId() }
  const clusterId = newId()
  const node = (id: string, kind: string, parent: string | null, spec: object = {}) =>
    database.query(
      `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
       values ($1, $2, $3::text, $4, $3::text, $3::text, $5)`,
      [id, ids.organizationId, kind, parent, JSON.stringify(spec)],
    )
  await node(ids.organizationId, 'organization', null)
  await node(clusterId, 'cluster', ids.organizationId, { is_default: true })
  await node(ids.projectId, 'project', ids.organizationId)
  await node(ids.environmentId, 'environment', ids.projectId, { cluster_id: clusterId })
  const rest = { database, clusterId, routes: new Map(), builds: [], images: new Map(), head: 'c1', events: [], ids }
  const world: World = {
    ...rest,
    runtime: createFakeRuntime({ ownerId: newId(), router: createRouter(() => world.routes) }),
  }
  return world
}

export const addService = async (
  world: World,
  spec: Record<string, unknown> = {},
  kind: Kind = 'application',
): Promise<string> => {
  const id = newId()
  const { organizationId, environmentId } = world.ids
  await world.database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec) values ($1, $2, $3, $4, 'service', $5, $6)`,
    [id, organizationId, kind, environmentId, `service-${id}`, JSON.stringify(spec)],
  )
  await world.database.query(
    `insert into service_state (service_id, environment_id, organization_id, kind) values ($1, $2, $3, $4)`,
    [id, environmentId, organizationId, kind],
  )
  await world.database.query(
    `insert into route (host, organization_id, environment_id, service_id, port) values ($1, $2, $3, $4, 8080)`,
    [`${id}.localhost`, organizationId, environmentId, id],
  )
  return id
}

type Volumes = WorkloadSpec['volumes']

const running = (spec: Record<string, unknown>): WorkloadSpec => ({
  entrypoint: null,
  arguments: null,
  cpuMillicores: 100,
  memoryMb: 32,
  instances: Number(spec.instances ?? 1),
  ...(spec.scaling === undefined ? {} : { scaling: spec.scaling as NonNullable<WorkloadSpec['scaling']> }),
  ports: [
    {
      ...{ internalPort: 8080, protocol: 'HTTP', publiclyAccessible: true },
      ...(spec.path === undefined ? {} : { publicPath: String(spec.path) }),
    },
  ],
  volumes: spec.volume === true ? [{ id: newId(), mountPath: '/data', sizeGb: 4 }] : ((spec.volumes ?? []) as Volumes),
  readiness: null,
  liveness: null,
  readyTimeoutMs: Number(spec.readyTimeoutMs ?? 5000),
  stopGraceMs: 100,
})

const built: DeployableKind['source'] = () => ({
  from: 'git',
  git: { url: 'https://git.example/app', branch: 'main', gitTokenId: null },
  rootPath: '/',
  dockerfilePath: 'Dockerfile',
  targetStage: null,
})

const pulled: DeployableKind['source'] = ({ image = 'fake/serve', tag = '1.0', registryId = null }) => ({
  from: 'image',
  registryId: registryId as string | null,
  name: String(image),
  tag: String(tag),
})

/** `on`: arguments by event. */
const taskIn = ({
  on = { START: ['begun'] },
  cron,
  maxRestarts = 0,
  timeoutMs = 5000,
  state,
  withVolumes,
  overlap = 'Forbid',
}: Record<string, unknown>): TaskSpec => ({
  on: Object.fromEntries(
    Object.entries(on as Record<string, string[]>).map(([event, words]) => [
      event,
      { entrypoint: null, arguments: words },
    ]),
  ),
  cron: cron === undefined ? null : { expression: String(cron), timeZone: 'Etc/UTC', overlap: overlap as 'Forbid' },
  maxRestarts: Number(maxRestarts),
  timeoutMs: Number(timeoutMs),
  ...(state === undefined ? {} : { state: state as 'HERE' | 'ELSEWHERE' }),
  ...(withVolumes === true ? { withVolumes } : {}),
})

const never = (): never => {
  throw new Error('asked what cannot be deployed')
}

const push: DeployableKind['push'] = ({ auto_deploy: isWanted }) => (isWanted === true ? {} : null)

/** What real kinds would be of these abilities; of their own files the engine knows nothing. */
const common = {
  source: built,
  workload: running,
  push,
  sizeFields: ({ volumes = [] }: Record<string, unknown>) =>
    (volumes as Volumes).map((_, index) => `/storage/${index}/size`),
}

const kinds: DeployableKind[] = [
  { ...common, kind: 'application' },
  { ...common, kind: 'terraform' },
  { ...common, kind: 'container', source: pulled },
  {
    ...common,
    kind: 'job',
    source: pulled,
    workload: () => ({ ...running({}), instances: 0, ports: [] }),
    tasks: (spec) => ({ [mainTask]: taskIn(spec) }),
  },
  {
    ...common,
    kind: 'database',
    source: pulled,
    environment: (_, secrets) => ({ WORD: secrets.password ?? '' }),
    // Tasks by name, beside the instances.
    tasks: ({ tasks = {} }) =>
      Object.fromEntries(
        Object.entries(tasks as Record<string, Record<string, unknown>>).map(([name, spec]) => [name, taskIn(spec)]),
      ),
  },
  { kind: 'helm', refusal: () => 'It needs what is not here.', source: never, workload: never },
]

const commitOf = (id: string): Commit => ({
  git_commit_id: id,
  message: `commit ${id}`,
  author_name: 'somebody',
  created_at: '2026-01-01T00:00:00Z',
  tag: '',
})

const createBuilder = (world: World): Builder => ({
  fetch: async (source) => commitOf(source.commitId ?? world.head),
  head: async () => world.head,
  heads: async (_, branches) => new Map(branches.map((branch) => [branch, world.head])),
  changes: async () => null,
  branches: async () => ['main'],
  commits: async () => [commitOf(world.head)],
  folders: async () => [],
  files: async () => [],
  folder: async () => [],
  async build(request, onLog) {
    const image = world.images.get(request.commitId) ?? `image-${request.commitId}`
    if (image instanceof DeploymentError) throw image
    if (image === 'hang') return forever
    const skipped = world.builds.includes(request.commitId)
    if (!skipped) world.builds.push(request.commitId)
    onLog(`building ${request.commitId}\n`)
    return { reference: image, imageId: image, contentKey: request.commitId, skipped }
  },
  async built({ commitId }) {
    return world.builds.includes(commitId) ? String(world.images.get(commitId) ?? `image-${commitId}`) : null
  },
  missingTool: async (name) => (name === 'missing' ? 'The tool is missing.' : null),
  toolVersions: async () => [],
  close: async () => {},
})

const createRouter = (table: () => World['routes']): Router => ({
  start: async () => {},
  setService: async (serviceId, routes) => void table().set(serviceId, routes),
  routes: async () => [...table().values()].flat(),
  drain: async () => ({ remaining: 0 }),
  setTls: async () => {},
  tls: async () => ({}),
  wanted: () => {},
  idle: async () => [],
  url: (host) => `http://${host}`,
  address: (port) => `localhost:${port}`,
  stop: async () => {},
})

/** Not the real seal: these tests are not about it. */
const sealer = standIn<DeploymentParts['sealer']>({
  seal: async (_organization: string, _place: unknown, text: string) => Buffer.from(text).toString('base64'),
  open: async (_organization: string, _place: unknown, sealed: string) =>
    new Secret(Buffer.from(sealed, 'base64').toString()),
  prepare: async () => {},
  dataKeys: async () => [],
})

export interface TestEngine {
  engine: DeploymentEngine
  power: Power
}

/** The same over restarts. */
const fingerprintKey = randomBytes(32)

/** What every service sees. */
const variables = {
  env: { PLAIN: 'value', TOKEN: 'secret-canary' },
  files: [],
  secretValues: ['secret-canary'],
  origins: { PLAIN: { scope: 'APPLICATION' }, TOKEN: { scope: 'APPLICATION' } },
}

/** A control plane's own view of the runtime: each call to an instance or a route is one that the power can fail at. */
const runtimeOf = (world: World, power: Power): Runtime => {
  const { runtime } = world
  const router = switched(
    createRouter(() => world.routes),
    power,
  )
  const images = switched(runtime.images, power)
  const own = { images, ...createBlueGreen({ instances: switched(runtime.instances, power), router }) }
  return new Proxy(switched(runtime, power), { get: (rest, name) => Reflect.get(name in own ? own : rest, name) })
}

/** What an engine over a world works with. */
export const partsOf = (world: World, its: Power, more: Partial<DeploymentParts> = {}): DeploymentParts => {
  const database = switchedDatabase(world.database, its)
  return {
    database,
    sealer,
    clusters: createClusters({ database, runtime: runtimeOf(world, its) }),
    builder: switched(createBuilder(world), its),
    enqueue: async (_tx, event) => void world.events.push({ ...event, at: performance.now() }),
    kinds,
    variables: async (serviceIds) => new Map(serviceIds.map((id) => [id, variables])),
    secretManagers: { read: async () => new Secret(new Map()) },
    gitCredentials: async () => ({ credentials: undefined, warning: null }),
    registryCredentials: async () => ({ url: 'https://docker.io', username: null, password: null }),
    checkAddress: async () => undefined,
    fingerprintKey,
    environmentLock: createKeyedLock(),
    concurrency: 4,
    alone: true,
    work: createWorkRegistry(systemClock),
    clock: systemClock,
    log: createLog('silent'),
    ...more,
  }
}

export const createTestEngine = (
  world: World,
  power: Partial<Power> = {},
  more: Partial<DeploymentParts> = {},
): TestEngine => {
  const its: Power = { off: false, callsLeft: null, lateCut: false, ...power }
  return { engine: createDeploymentEngine(partsOf(world, its, more)), power: its }
}

export const ask = (
  { engine }: TestEngine,
  world: World,
  action: DeploymentRequest['action'],
  services: DeploymentRequest['services'],
  more: Partial<DeploymentRequest> = {},
) =>
  world.database.transaction((tx: Queryable) =>
    engine.request(tx, {
      ...world.ids,
      action,
      wholeEnvironment: false,
      services,
      origin: 'API',
      triggeredBy: 'test',
      requestId: 'test',
      ...more,
    }),
  )
