/**
 * The whole API on an ephemeral port: real database, seal and engine, the fake runtime, a builder and a router that
 * live in memory. Ends with the test file.
 */
import { mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import type { FastifyInstance } from 'fastify'
import { createToken } from '../../src/api/auth/auth.ts'
import type { Operation, Scope } from '../../src/api/operations/operation.ts'
import type { ApiSettings, Parts } from '../../src/api/parts.ts'
import { createApi } from '../../src/api/server.ts'
import { startAllBackups } from '../../src/backups/backups.ts'
import { simulatedTools } from '../../src/backups/tools/simulated.ts'
import type { Builder } from '../../src/builds/builder.ts'
import { removeGitPlace } from '../../src/builds/git/place.ts'
import { createSources } from '../../src/builds/sources.ts'
import { learnCapacity } from '../../src/clusters/capacity.ts'
import { createClusters } from '../../src/clusters/clusters.ts'
import type { Engines } from '../../src/clusters/engines.ts'
import type { KubernetesServices } from '../../src/clusters/kubernetes.ts'
import { readGitCredentials } from '../../src/deployments/credentials/git-credentials.ts'
import { readRegistryCredentials, readRegistryLogins } from '../../src/deployments/credentials/registry-credentials.ts'
import { createDeploymentEngine, type DeploymentEngine } from '../../src/deployments/engine.ts'
import type { DeploymentParts, ScaleTimes } from '../../src/deployments/parts.ts'
import { ownPortsOf } from '../../src/deployments/traffic/port-claims.ts'
import { createKeyedLock } from '../../src/lib/concurrency/keyed-lock.ts'
import { DeploymentError } from '../../src/lib/errors.ts'
import { newId } from '../../src/lib/ids.ts'
import { createLog } from '../../src/lib/log.ts'
import { createOutbound } from '../../src/lib/net/outbound.ts'
import { systemClock } from '../../src/lib/time/clock.ts'
import type { Disk } from '../../src/limits/disk.ts'
import { startManagedClusters } from '../../src/resources/cluster/managed/worker.ts'
import { operations as allOperations, deployableKinds, services } from '../../src/resources/index.ts'
import { createFirstOrganization } from '../../src/resources/organization/organization.ts'
import { startPreviews } from '../../src/resources/previews/previews.ts'
import type { AnyRoute, Router } from '../../src/router/router.ts'
import { createFakeRuntime, type FakeRuntime } from '../../src/runtimes/fake/fake.ts'
import { createOpenKubernetes, type OpenKubernetes } from '../../src/runtimes/kubernetes/kubernetes.ts'
import { readFingerprintKey } from '../../src/store/installation.ts'
import { createSealer } from '../../src/store/keys/seal.ts'
import { createStreams } from '../../src/streams/changes.ts'
import { createSecretManagers } from '../../src/variables/external/managers.ts'
import { loadAllVariables } from '../../src/variables/rows.ts'
import { enqueueDeploymentEvent } from '../../src/webhooks/outbox.ts'
import { createWorkRegistry } from '../../src/work/registry.ts'
import { type TestDatabase, testDatabase } from './database.ts'

// The bodies of a public API, read by tests that check their fields.
// biome-ignore lint/suspicious/noExplicitAny: a test says what it expects of an answer by using it
export type Json = any

export interface Answer {
  status: number
  body: Json
  headers: Headers
}

export type Call = (method: string, path: string, body?: unknown, headers?: Record<string, string>) => Promise<Answer>

export interface TestApi {
  url: string
  parts: Parts
  database: TestDatabase
  runtime: FakeRuntime
  router: Router
  engine: DeploymentEngine
  /** The engine of another server on the same database and runtime; not started. */
  another(over?: Partial<DeploymentParts>): DeploymentEngine
  app: FastifyInstance
  organizationId: string
  clusterId: string
  /** Text of the operator's Admin token, of the organization. */
  token: string
  /** Sends a request with the Admin token. */
  call: Call
  /** The same with another token; null sends none. */
  as(token: string | null): Call
  newToken(scopes: readonly Scope[], organizationId?: string): Promise<string>
  /** An organization of another user, with an Admin token of it. */
  newOrganization(): Promise<{ id: string; token: string }>
  source: TestSource
}

/** What the git host of every repository has. */
export interface TestSource {
  head: string
  /** Of other branches than those that have it. */
  branches: Map<string, string>
  /** Image that commits of the branch build to; a `DeploymentError` fails the build. */
  image: string | DeploymentError
  /** Message of the head; a `DeploymentError` fails its fetch. */
  message: string | DeploymentError
  /** The paths in which the head differs from any other commit. */
  changes: string[] | null
  /** Repositories that were asked for their heads, in order; a `DeploymentError` is the answer. */
  looks: string[]
  refusal: DeploymentError | null
  /** What each folder has, whatever the repository. */
  files: { path: string; content: string }[]
  /** What the operator has not installed, in a sentence. */
  missing: string | null
}

export const headCommit = 'a'.repeat(40)

const someCommit = { message: 'a change', author_name: 'somebody', created_at: '2026-01-01T00:00:00Z', tag: '' }

const createBuilder = (source: TestSource, built = new Set<string>()): Builder => ({
  async fetch({ commitId }) {
    if (source.message instanceof DeploymentError) throw source.message
    return { ...someCommit, message: source.message, git_commit_id: commitId ?? source.head }
  },
  head: async () => source.head,
  async heads({ url }, branches) {
    source.looks.push(url)
    if (source.refusal !== null) throw source.refusal
    return new Map(branches.map((branch) => [branch, source.branches.get(branch) ?? source.head]))
  },
  changes: async () => source.changes,
  branches: async () => ['main'],
  commits: async ({ commitId }) => [{ ...someCommit, git_commit_id: commitId ?? source.head }],
  folders: async () => ['src'],
  files: async (_source, _folder, isWanted) =>
    source.files.filter(({ path }) => isWanted(path)).map(({ path, content: text }) => ({ path, text })),
  folder: async () => source.files.map(({ path, content }) => ({ path, content: Buffer.from(content) })),
  async build(request, onLog) {
    if (source.image instanceof DeploymentError) throw source.image
    onLog('building\n')
    const reference = source.image
    built.add(request.commitId)
    return { reference, imageId: reference, contentKey: request.commitId, skipped: false }
  },
  built: async ({ commitId }) => (built.has(commitId) ? String(source.image) : null),
  missingTool: async () => source.missing,
  toolVersions: async () => [{ name: 'tofu', version: '1.9.4' }],
  close: async () => {},
})

const createRouter = (): Router => {
  const table = new Map<string, AnyRoute[]>()
  return {
    start: async () => {},
    setService: async (serviceId, routes) => void table.set(serviceId, routes),
    routes: async () => [...table.values()].flat(),
    drain: async () => ({ remaining: 0 }),
    setTls: async () => {},
    tls: async () => ({}),
    wanted: () => {},
    idle: async () => [],
    url: (host) => `http://${host}:8000`,
    address: (port) => `localhost:${port}`,
    stop: async () => {},
  }
}

const resolveLocal = async (host: string): Promise<{ address: string }[]> => {
  if (host === 'localhost') return [{ address: '127.0.0.1' }]
  throw new Error('tests look up no names')
}

const refuseAll = async (): Promise<never> => {
  throw new Error('tests without engines reach no other machine')
}

const testPorts = { port: 8080, routerPort: 8000, portRange: { first: 30_000, last: 32_767 }, extraPorts: [] }

const createParts = async (
  database: TestDatabase,
  dataDir: string,
  {
    settings = {},
    disk,
    engines,
    openKubernetes = createOpenKubernetes(engines?.pin ?? refuseAll),
    git = false,
    router = createRouter(),
    scaleTimes,
    secretManagers,
    kubernetes,
    allow = [],
    hasLines = false,
  }: TestApiOptions,
) => {
  const log = createLog(process.env.TEST_LOG ?? 'silent')
  const sealer = await createSealer({ database, masterKeyFile: join(dataDir, 'master') })
  const runtime = createFakeRuntime({ ownerId: newId(), router, pipe: simulatedTools })
  const source: TestSource = {
    ...{ head: headCommit, image: 'fake/serve', message: someCommit.message },
    ...{ changes: null, looks: [], refusal: null, branches: new Map(), files: [], missing: null },
  }
  const builder = createBuilder(source)
  const work = createWorkRegistry(systemClock)
  // Tests reach nothing but loopback and what they name, whatever they ask for.
  const outbound = createOutbound({ allow: ['loopback', ...allow], resolve: resolveLocal })
  const services: KubernetesServices = {
    ownerId: newId(),
    outbound,
    registryLogins: (organizationId: string, host: string) =>
      readRegistryLogins(database, sealer, organizationId, host),
    ...kubernetes,
  }
  const others = engines && { database, sealer, engines, openKubernetes, services, log, work, clock: systemClock }
  const clusters = createClusters({
    ...{ database, runtime },
    ...(others === undefined ? {} : { others }),
    ...(hasLines ? { lines: { database, writer: 'test', log, work, clock: systemClock } } : {}),
  })
  await clusters.start()
  // The capacity of the engine is known for the first request, even if no deployment engine runs.
  await Promise.all(clusters.all().map((cluster) => learnCapacity(database, cluster)))
  const sources = git
    ? createSources({ dataDir, database, network: outbound, concurrency: 1, log, clock: systemClock })
    : null
  const engineParts: DeploymentParts = {
    database,
    sealer,
    outbound,
    clusters,
    builder,
    repositories: sources?.repositories,
    enqueue: enqueueDeploymentEvent,
    kinds: deployableKinds,
    variables: (serviceIds, db = database, commits) => loadAllVariables(db, sealer, serviceIds, commits),
    secretManagers: createSecretManagers({ database, sealer, outbound, clock: systemClock, addressOf: secretManagers }),
    gitCredentials: (use) => readGitCredentials(database, sealer, use),
    registryCredentials: (organizationId, id) => readRegistryCredentials(database, sealer, organizationId, id),
    checkAddress: async () => undefined,
    limits: settings.limits,
    ports: { range: settings.portRange ?? testPorts.portRange, own: ownPortsOf({ ...testPorts, ...settings }) },
    databaseModules: settings.databaseModules,
    disk,
    fingerprintKey: await readFingerprintKey(database, sealer),
    environmentLock: createKeyedLock(),
    concurrency: 4,
    alone: true,
    router,
    scaleTimes,
    work,
    clock: systemClock,
    log,
  }
  const engine = createDeploymentEngine(engineParts)
  const parts: Parts = {
    database,
    sealer,
    deployments: engine,
    builder,
    repositories: sources?.repositories,
    clusters,
    disk,
    streams: createStreams(database),
    outbound,
    work,
    settings: { ...testPorts, dataDir, rateLimit: 0, statusVocabulary: 'auto', sample: false, ...settings },
    clock: systemClock,
    log,
  }
  /** As of a second server, with the same runtime. */
  const another = (over: Partial<DeploymentParts> = {}) =>
    createDeploymentEngine({ ...engineParts, alone: false, environmentLock: createKeyedLock(), ...over })
  return { parts, engine, another, runtime, router, source, sources }
}

/** Sends requests with one token; bodies that are strings go as they are. */
export const caller =
  (url: string, token: string | null): Call =>
  async (method, path, body, headers = {}) => {
    const answer = await fetch(url + path, {
      method,
      headers: {
        ...(token === null ? {} : { authorization: `Token ${token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body),
    })
    const text = await answer.text()
    const isJson = answer.headers.get('content-type')?.includes('json') === true
    return { status: answer.status, headers: answer.headers, body: isJson && text !== '' ? JSON.parse(text) : text }
  }

export interface TestApiOptions {
  settings?: Partial<ApiSettings>
  operations?: readonly Operation[]
  /** Leave what is deployed waiting in its queue. */
  idle?: boolean
  /** Leave pull requests alone. */
  withoutPreviews?: boolean
  disk?: Disk
  /** Default: one that only keeps its table. */
  router?: Router
  scaleTimes?: ScaleTimes
  /** Where the hosts of secret managers are. */
  secretManagers?: (host: string) => string
  /** Marks on its clusters say whether the database is theirs. */
  hasLines?: boolean
  /** Of other machines; without, every cluster but the default one is only described. */
  engines?: Engines
  /** Real repositories of applications on the server itself; what is pushed to them is built by the same builder. */
  git?: boolean
  /** Runs what is asked of clusters at cloud providers. */
  managed?: Parameters<typeof startManagedClusters>[1]
  /** Without, by the network, at the addresses that `engines` allows. */
  openKubernetes?: OpenKubernetes
  /** Addresses beside loopback that may be asked. */
  allow?: readonly string[]
  /** For services on Kubernetes clusters. */
  kubernetes?: Partial<KubernetesServices>
}

/** Starts an API of its own over a fresh database. */
export const startApi = async (options: TestApiOptions = {}): Promise<TestApi> => {
  const database = await testDatabase()
  const dataDir = mkdtempSync(join(tmpdir(), 'slipway-api-'))
  const { parts, engine, another, runtime, router, source, sources } = await createParts(database, dataDir, options)
  const organizationId = await createFirstOrganization(parts)
  const [cluster] = await database.query<{ id: string }>(`select id from node where kind = 'cluster'`)
  const newToken = async (scopes: readonly Scope[], owner = organizationId): Promise<string> => {
    const name = `token ${newId()}`
    const made = { organizationId: owner, name, scopes, expiresAt: null, createdBy: null }
    return (await createToken(database, made)).token
  }
  const app = await createApi(parts, options.operations ?? allOperations)
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  if (options.idle !== true) await engine.start()
  const isQuiet = options.idle === true || options.withoutPreviews === true
  const previews = isQuiet ? null : await startPreviews(parts, services, { alone: true })
  const backups = isQuiet ? null : await startAllBackups({ ...parts, writer: 'test' }, { alone: true })
  const managed = options.managed === undefined ? null : await startManagedClusters(parts, options.managed)
  after(async () => {
    await app.close()
    await backups?.stop()
    await managed?.stop()
    await previews?.stop()
    await engine.stop()
    await parts.clusters.close()
    await sources?.close()
    if (sources !== null) await removeGitPlace(dataDir)
    await database.close()
    await rm(dataDir, { recursive: true, force: true })
  })
  const token = await newToken(['Admin'])
  await database.query(`update api_token set is_operator = true where prefix = $1`, [token.slice(0, 10)])
  return {
    url,
    parts,
    database,
    runtime,
    router,
    engine,
    another,
    app,
    organizationId,
    clusterId: cluster!.id,
    token,
    call: caller(url, token),
    as: (other) => caller(url, other),
    newToken,
    async newOrganization() {
      const id = newId()
      await database.query(
        `insert into node (id, organization_id, kind, parent_id, name_scope, name)
         values ($1, $1, 'organization', null, 'organization', 'somebody else')`,
        [id],
      )
      return { id, token: await newToken(['Admin'], id) }
    },
    source,
  }
}

export interface TestPlace {
  projectId: string
  environmentId: string
}

let made = 0

/** A new project with an environment. */
export const newPlace = async (
  api: TestApi,
  call: Call = api.call,
  organizationId = api.organizationId,
): Promise<TestPlace> => {
  made += 1
  const project = await call('POST', `/organization/${organizationId}/project`, { name: `project ${made}` })
  const environment = await call('POST', `/project/${project.body.id}/environment`, { name: `env ${made}` })
  return { projectId: project.body.id, environmentId: environment.body.id }
}

/** The body of a create that the specification shows. */
export const applicationBody = (name = 'api', more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name,
  git_repository: { url: 'https://github.com/example/shop.git', branch: 'main' },
  build_mode: 'DOCKER',
  dockerfile_path: 'Dockerfile',
  cpu: 500,
  memory: 256,
  min_running_instances: 1,
  max_running_instances: 1,
  ports: [{ internal_port: 3000, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
  ...more,
})

/** A new application in an environment. */
export const newApplication = async (
  api: TestApi,
  environmentId: string,
  more: Record<string, unknown> = {},
): Promise<Json> => {
  made += 1
  const answer = await api.call(
    'POST',
    `/environment/${environmentId}/application`,
    applicationBody(`app ${made}`, more),
  )
  if (answer.status !== 201) throw new Error(JSON.stringify(answer.body))
  return answer.body
}
