/** Puts the parts together: the one place where anything is wired. */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type AdminToken, ensureAdminToken } from './api/admin-token.ts'
import type { Parts } from './api/parts.ts'
import { createApi } from './api/server.ts'
import type { Builder } from './builds/builder.ts'
import { createFakeBuilder } from './builds/fake-builder.ts'
import { createBuilder } from './builds/git-builder.ts'
import { learnCapacity } from './clusters/capacity.ts'
import { createClusters } from './clusters/clusters.ts'
import { createEngine, type Engine } from './deployments/engine.ts'
import { readGitCredentials } from './deployments/git-credentials.ts'
import { readRegistryCredentials, readRegistryLogins } from './deployments/registry-credentials.ts'
import { createStreams } from './facets/live-changes.ts'
import type { OrganizationImages, RegistryLogins } from './images/images.ts'
import { createOrganizationImages, markOf } from './images/organization-images.ts'
import { type PullThrough, startPullThrough } from './images/pull-through.ts'
import { keepAlive } from './keep-alive.ts'
import { systemClock } from './lib/clock.ts'
import { createKeyedLock } from './lib/keyed-lock.ts'
import { createLog, type Log } from './lib/log.ts'
import { createOutbound, type Outbound } from './lib/outbound.ts'
import type { Disk } from './limits/disk.ts'
import { leaveDataDirectory, takeDataDirectory } from './process-file.ts'
import { deployableKinds, operations } from './resources/index.ts'
import { createFirstOrganization } from './resources/organization.ts'
import { createRouter } from './router/client.ts'
import type { Router } from './router/router.ts'
import { createDockerRuntime } from './runtimes/docker/docker.ts'
import { createFakeRuntime } from './runtimes/fake/fake.ts'
import type { Runtime } from './runtimes/runtime.ts'
import { createSampleRepository, reachSample, samplePath, serveSample } from './sample-repository.ts'
import type { Settings } from './settings.ts'
import { connect, type Database, migrate } from './store/database.ts'
import { readFingerprintKey, readOwnerId, saveOutsideHost } from './store/installation.ts'
import { startPostgres } from './store/postgres.ts'
import { createSealer, type Sealer } from './store/seal.ts'
import { loadAllVariables } from './variables/rows.ts'
import { watchDisk } from './watched-disk.ts'
import { createDelivery } from './webhooks/deliver.ts'
import { enqueueDeploymentEvent } from './webhooks/outbox.ts'
import type { Loop } from './work/loop.ts'
import { createWorkRegistry, type WorkRegistry } from './work/registry.ts'

export interface App {
  parts: Parts
  /** Address of the API: `http://host:port`. */
  url: string
  sampleUrl: string
  organizationId: string
  adminToken: AdminToken
  stop(): Promise<void>
}

const openDatabase = async (settings: Settings, log: Log): Promise<Database> => {
  const connectionString =
    settings.databaseUrl ?? (await startPostgres({ dataDir: settings.dataDir, log })).connectionString
  const database = connect(connectionString, log)
  await migrate(database)
  return database
}

const pingTimeoutMs = 2000

/** Our own PostgreSQL is started again when it dies; another's is another's to look after. */
const keepDatabase = ({ settings: { databaseUrl, dataDir }, database, log, work }: Ground): Loop | null => {
  if (databaseUrl !== undefined) return null
  const ping = () => database.ping(pingTimeoutMs)
  const companion = { name: 'PostgreSQL', ping, start: () => startPostgres({ dataDir, log }) }
  return keepAlive({ work, log, clock: systemClock }, companion)
}

interface Ground {
  settings: Settings
  log: Log
  work: WorkRegistry
  database: Database
  sealer: Sealer
  ownerId: string
  outbound: Outbound
  issuerOutbound: Outbound
  pullThrough: PullThrough
  router: Router
}

const layGround = async (settings: Settings): Promise<Ground> => {
  const log = createLog(settings.logLevel)
  const { dataDir, routerHost: host, routerPort: port } = settings
  const router = createRouter({ dataDir, host, port, log })
  const [database] = await Promise.all([openDatabase(settings, log), router.start()])
  const sealer = await createSealer({ database, masterKeyFile: settings.masterKeyFile })
  const ownerId = await readOwnerId(database)
  await saveOutsideHost(database, router.address(port).slice(0, -`:${port}`.length))
  const pullThrough = await startPullThrough(markOf(ownerId))
  const own = [...ownAddresses(settings), pullThrough.address]
  const outbound = createOutbound({ allow: [...settings.outboundAllow], own })
  // The operator chose the issuer, wherever it is; what users name does not get there through it.
  const issuerOutbound = createOutbound({ allow: [...settings.outboundAllow, ...issuerPlace(settings)], own })
  const work = createWorkRegistry(systemClock)
  return { settings, log, work, database, sealer, ownerId, router, outbound, issuerOutbound, pullThrough }
}

/** `host:port` of our own database and engine, where they are reached over TCP: nothing is ever sent there. */
const ownAddresses = ({ databaseUrl, dockerHost }: Settings): string[] =>
  [
    { text: databaseUrl, port: 5432 },
    { text: dockerHost, port: 2375 },
  ].flatMap(({ text, port }) => {
    const url = text === undefined ? null : URL.parse(text)
    return url === null || url.hostname === '' ? [] : [`${url.hostname}:${url.port || port}`]
  })

/** `host:port` of the OIDC issuer. */
const issuerPlace = ({ oidc }: Settings): string[] => {
  if (oidc === undefined) return []
  const { hostname, port, protocol } = new URL(oidc.issuer)
  return [`${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`]
}

interface Machine {
  runtime: Runtime
  builder: Builder
  closeImages(): Promise<void>
}

const registryLoginsOf =
  ({ database, sealer }: Ground): RegistryLogins =>
  (organizationId, host) =>
    readRegistryLogins(database, sealer, organizationId, host)

const createImages = (ground: Ground): OrganizationImages => {
  const { settings, outbound, pullThrough } = ground
  return createOrganizationImages({
    dockerHost: settings.dockerHost,
    outbound,
    pullThrough,
    registryLogins: registryLoginsOf(ground),
    engineImages: settings.engineImages,
    maxMb: settings.imageMaxMb,
    clock: systemClock,
  })
}

const createMachine = (ground: Ground, fake: boolean, sampleUrl: string): Machine => {
  const { settings, log, database, ownerId } = ground
  const common = { ownerId, log, clock: systemClock, dockerHost: settings.dockerHost }
  const sources = { dataDir: settings.dataDir, network: reachSample(ground.outbound, sampleUrl) }
  if (fake)
    return {
      runtime: createFakeRuntime({ ownerId, clock: systemClock, persistFolder: join(settings.dataDir, 'fake') }),
      builder: createFakeBuilder({ ...common, ...sources }),
      closeImages: async () => {},
    }
  const images = createImages(ground)
  return {
    runtime: createDockerRuntime({ ...common, images }),
    closeImages: images.close,
    builder: createBuilder({
      ...common,
      ...sources,
      database,
      concurrency: settings.buildConcurrency,
      preparation: settings.preparation,
      gitMemoryMb: settings.gitMemoryMb,
      allowed: settings.outboundAllow,
      dns: settings.buildDns,
      diskReserveMb: settings.diskReserveMb,
      images,
      registryLogins: registryLoginsOf(ground),
      tools: settings.tools,
    }),
  }
}

const createParts = async (ground: Ground, { runtime, builder }: Machine, disk: Disk) => {
  const { settings, database, sealer, log, work, router } = ground
  const clusters = createClusters({ database, runtime, router })
  const engine: Engine = createEngine({
    ...ground,
    clusters,
    builder,
    enqueue: enqueueDeploymentEvent,
    kinds: deployableKinds,
    variables: (serviceIds, db = database) => loadAllVariables(db, sealer, serviceIds),
    gitCredentials: (organizationId, id) => readGitCredentials(database, sealer, organizationId, id),
    registryCredentials: (organizationId, id) => readRegistryCredentials(database, sealer, organizationId, id),
    checkAddress: (url) => ground.outbound.check(url),
    limits: settings.limits,
    disk,
    fingerprintKey: await readFingerprintKey(database, sealer),
    environmentLock: createKeyedLock(),
    concurrency: settings.deployConcurrency,
    alone: settings.databaseUrl === undefined,
    clock: systemClock,
  })
  const delivery = createDelivery({
    database,
    sealer,
    outbound: ground.outbound,
    clock: systemClock,
    log,
    work,
    scheduleSeconds: settings.webhookSchedule,
  })
  const streams = createStreams(database)
  const parts: Parts = {
    ...ground,
    clusters,
    builder,
    disk,
    streams,
    deployments: engine,
    delivery,
    clock: systemClock,
  }
  return { parts, engine, delivery }
}

const patienceMs = 1000

/** What the engine has is known to the first request, unless the engine takes its time. */
const learnCapacities = async ({ clusters, database, log }: Parts): Promise<void> => {
  const learning = clusters.all().map((cluster) =>
    learnCapacity(database, cluster).catch((error: unknown) => {
      log.debug({ err: error, cluster: cluster.key }, 'what a cluster has is not known yet')
    }),
  )
  const patience = new AbortController()
  const late = systemClock.sleep(patienceMs, patience.signal).catch(() => {})
  await Promise.race([Promise.all(learning), late])
  patience.abort()
}

/** Starts everything; resolves when requests are answered. */
export const startApp = async (settings: Settings, options: { fake: boolean }): Promise<App> => {
  await mkdir(settings.dataDir, { recursive: true, mode: 0o700 })
  await takeDataDirectory(settings.dataDir)
  const ground = await layGround(settings)
  const url = `http://${settings.host}:${settings.port}`
  const sampleUrl = url + samplePath
  const disk = watchDisk(settings, ground, options.fake)
  const machine = createMachine(ground, options.fake, sampleUrl)
  const { parts, engine, delivery } = await createParts(ground, machine, disk)
  const learning = learnCapacities(parts)
  const organizationId = await createFirstOrganization(parts)
  const adminToken = await ensureAdminToken(parts, organizationId)
  const api = await createApi(parts, operations)
  if (settings.sample) await serveSample(api, await createSampleRepository(settings.dataDir, ground.log))
  await learning
  await api.listen({ host: settings.host, port: settings.port })
  const databaseKeeper = keepDatabase(ground)
  await engine.start()
  await delivery.start()
  return {
    parts,
    url,
    sampleUrl,
    organizationId,
    adminToken,
    async stop() {
      await api.close()
      await engine.stop()
      await delivery.stop()
      await Promise.all([parts.clusters.close(), parts.builder.close(), machine.closeImages()])
      await ground.pullThrough.close()
      await disk.close()
      await databaseKeeper?.stop()
      await ground.database.close()
      await leaveDataDirectory(settings.dataDir)
    },
  }
}
