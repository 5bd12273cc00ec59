/** Wires the parts: the only place that does. */
import { writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type AdminToken, ensureAdminToken } from './api/auth/admin-token.ts'
import type { Parts } from './api/parts.ts'
import { createApi } from './api/server.ts'
import { apiAddress, publishApi, startTls } from './app-tls.ts'
import type { Builder, ImageBuilder } from './builds/builder.ts'
import { createFakeBuilder } from './builds/fake-builder.ts'
import { createBuilder } from './builds/git-builder.ts'
import type { Repositories } from './builds/pushed/repositories.ts'
import { createSources, type Sources } from './builds/sources.ts'
import { findTool, missingTool, toolVersions } from './builds/tools.ts'
import { learnCapacity } from './clusters/capacity.ts'
import { type Clusters, createClusters } from './clusters/clusters.ts'
import { createDockerEngines } from './clusters/docker-engines.ts'
import type { Engines } from './clusters/engines.ts'
import { readWriter } from './clusters/lines/writer.ts'
import { createServers, type ServersParts } from './clusters/servers.ts'
import { createSharedRouter, type SharedRouter } from './clusters/shared-router.ts'
import { readGitCredentials } from './deployments/credentials/git-credentials.ts'
import {
  readRegistryCredentials,
  readRegistryLogins,
  readRegistryPlace,
} from './deployments/credentials/registry-credentials.ts'
import { createDeploymentEngine, type DeploymentEngine } from './deployments/engine.ts'
import { ownPortsOf } from './deployments/traffic/port-claims.ts'
import { type DockerMachine, type DockerTarget, openDockerMachine } from './docker-machine.ts'
import { markOf } from './images/organization-images.ts'
import { type PullThrough, startPullThrough } from './images/pull-through.ts'
import { createImagePush } from './images/push.ts'
import { keepAlive } from './keep-alive.ts'
import { createKeyedLock } from './lib/concurrency/keyed-lock.ts'
import { defaultConnection } from './lib/docker/engine-connection.ts'
import type { Log } from './lib/log.ts'
import { createOutbound, type Outbound } from './lib/net/outbound.ts'
import { systemClock } from './lib/time/clock.ts'
import type { Disk } from './limits/disk.ts'
import { limitSentence } from './limits/limits.ts'
import { refuseListen } from './listen-addresses.ts'
import { releaseDataDirectory } from './process-file.ts'
import { startManagedClusters } from './resources/cluster/managed/worker.ts'
import { deployableKinds, operations, services } from './resources/index.ts'
import { createFirstOrganization } from './resources/organization/organization.ts'
import { startPreviews } from './resources/previews/previews.ts'
import { leaveFollower } from './route-follower.ts'
import type { Router } from './router/router.ts'
import { createFakeRuntime } from './runtimes/fake/fake.ts'
import { createHelmTool } from './runtimes/kubernetes/helm/tool.ts'
import { createOpenKubernetes, type OpenKubernetes } from './runtimes/kubernetes/kubernetes.ts'
import type { Runtime } from './runtimes/runtime.ts'
import { createSampleRepository, reachSample, samplePath, serveSample } from './sample-repository.ts'
import type { Settings } from './settings.ts'
import type { Database } from './store/database.ts'
import { readFingerprintKey, readOwnerId, saveEngine, saveNames, savePublishedHost } from './store/installation.ts'
import { createSealer, type Sealer } from './store/keys/seal.ts'
import { startPostgres } from './store/postgres/postgres.ts'
import { createStreams } from './streams/changes.ts'
import { createSecretManagers } from './variables/external/managers.ts'
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

const pingTimeoutMs = 2000

/** Our own PostgreSQL is restarted when it dies; an external one is not ours to manage. */
const superviseDatabase = ({ settings: { databaseUrl, dataDir }, database, log, work }: Foundation): Loop | null => {
  if (databaseUrl !== undefined) return null
  const ping = () => database.ping(pingTimeoutMs)
  const companion = { name: 'PostgreSQL', ping, start: () => startPostgres({ dataDir, log }) }
  return keepAlive({ work, log, clock: systemClock }, companion)
}

interface Foundation extends Opened {
  work: WorkRegistry
  sealer: Sealer
  ownerId: string
  outbound: Outbound
  issuerOutbound: Outbound
  /** The same for the certificate authority. */
  acmeOutbound: Outbound
  pullThrough: PullThrough
  router: Router
  /** The same, where other servers may share its routes. */
  shared: SharedRouter | null
}

/** When the database is not the embedded one, other servers may work on it, and requests may come to any of them. */
const shareRouter = (own: Router, foundation: Omit<ServersParts, 'clock'>, { databaseUrl }: Settings) => {
  if (databaseUrl === undefined) return null
  const { database, log, work } = foundation
  const parts = { database, log, work, clock: systemClock }
  return createSharedRouter({ ...parts, own, servers: createServers(parts) })
}

const createFoundation = async ({ settings, log, database, own }: Opened): Promise<Foundation> => {
  const { dataDir, routerPort: port } = settings
  const work = createWorkRegistry(systemClock)
  const shared = shareRouter(own, { database, log, work }, settings)
  await shared?.follow()
  const router = shared ?? own
  const sealer = await createSealer({ database, masterKeyFile: settings.masterKeyFile })
  const ownerId = await readOwnerId(database)
  await saveNames(database, settings)
  await savePublishedHost(database, router.address(port).slice(0, -`:${port}`.length))
  // Each server of an installation has its own mark: the pulls of another one must not be swept here.
  const pullThrough = await startPullThrough(markOf(`${ownerId} ${hostname()} ${dataDir}`))
  const addresses = [...ownAddresses(settings), pullThrough.address]
  const outbound = createOutbound({ allow: [...settings.outboundAllow], own: addresses })
  // The operator chose the issuer, so it may be anywhere; users cannot reach its network through this.
  const outboundTo = (places: readonly string[]): Outbound =>
    createOutbound({ allow: [...settings.outboundAllow, ...places], own: addresses })
  const issuerOutbound = outboundTo(settings.oidc === undefined ? [] : [placeOf(settings.oidc.issuer)])
  const acmeOutbound = outboundTo([placeOf(settings.acme.directory)])
  const outgoing = { outbound, issuerOutbound, acmeOutbound }
  return { settings, log, work, database, sealer, ownerId, router, own, shared, ...outgoing, pullThrough }
}

/**
 * `host:port` of our own database and engine, if they are reached over TCP: requests caused by users never go there.
 */
const ownAddresses = ({ databaseUrl, dockerHost }: Settings): string[] =>
  [
    { text: databaseUrl, port: 5432 },
    { text: dockerHost, port: 2375 },
  ].flatMap(({ text, port }) => {
    const url = text === undefined ? null : URL.parse(text)
    return url === null || url.hostname === '' ? [] : [`${url.hostname}:${url.port || port}`]
  })

/** `host:port` of an address. */
const placeOf = (url: string): string => {
  const { hostname, port, protocol } = new URL(url)
  return `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`
}

/** The engine of this machine, those of other machines, and the builders on all of them. */
interface RuntimeParts {
  repositories: Repositories
  /** Null without an engine of this machine. */
  runtime: Runtime | null
  imageBuilder: ImageBuilder | undefined
  engines: Engines
  openKubernetes: OpenKubernetes
  builderOver(clusters: Clusters): Builder
}

const createFakeMachine = ({ settings, ownerId, router }: Foundation, sources: Sources): DockerMachine => {
  const builder = createFakeBuilder(sources.prepare())
  const persistFolder = join(settings.dataDir, 'fake')
  const runtime = createFakeRuntime({ ownerId, clock: systemClock, persistFolder, router })
  const close = async (): Promise<void> => {
    await Promise.all([builder.close(), runtime.close()])
  }
  return { runtime: { ...runtime, close }, builder, clear: async () => {} }
}

const createRuntimeParts = (foundation: Foundation, kind: EngineKind, sampleUrl: string): RuntimeParts => {
  const { settings, outbound, log } = foundation
  const fake = kind === 'fake'
  const network = reachSample(outbound, sampleUrl)
  const { dataDir, preparation, gitMemoryMb, tools, buildConcurrency: concurrency } = settings
  const { database } = foundation
  const { mirrorsMb } = settings.limits
  const room = {
    organizationMb: mirrorsMb,
    reserveMb: settings.diskReserveMb,
    sentence: (wantedMb: number) => limitSentence('mirrorsMb', mirrorsMb, wantedMb),
  }
  const limits = { preparation, gitMemoryMb, concurrency, room }
  const sources = createSources({ dataDir, database, network, ...limits, log, clock: systemClock })
  const open = (target: DockerTarget) => openDockerMachine({ ...foundation, sources }, target)
  const own = kind === 'docker' ? defaultConnection(settings.dockerHost) : null
  const real = own && open({ connection: own, serviceAddress: null, clusterId: null, organizationId: null })
  const here = fake ? createFakeMachine(foundation, sources) : real
  const missing = (name: string) => missingTool(name, tools)
  return {
    repositories: sources.repositories,
    runtime: here?.runtime ?? null,
    imageBuilder: here?.builder,
    engines: createDockerEngines({
      own,
      open,
      pin: outbound.checkMachine,
      sockets: settings.engineSockets,
    }),
    openKubernetes: createOpenKubernetes(outbound.checkMachine),
    builderOver: (clusters) =>
      createBuilder({
        sources,
        missingTool: fake ? async () => null : missing,
        toolVersions: () => toolVersions(tools),
        imageBuilder: async (clusterId) => (await clusters.of(clusterId)).builder,
      }),
  }
}

const createParts = async (foundation: Foundation, machine: RuntimeParts, disk: Disk) => {
  const { settings, database, sealer, log, work } = foundation
  const { repositories, runtime, imageBuilder, engines, openKubernetes, builderOver } = machine
  const { ownerId, outbound } = foundation
  const registryLogins = (organizationId: string, host: string) =>
    readRegistryLogins(database, sealer, organizationId, host)
  const helm = createHelmTool(() => findTool('helm', settings.tools), join(settings.dataDir, 'helm'))
  const {
    runAs,
    ingressClass: className,
    certIssuer: issuer,
    ingressTls: hasCertificate,
    argoNamespace,
  } = settings.kubernetes
  const ingress = { className, issuer, hasCertificate }
  const services = { ownerId, outbound, registryLogins, helm, runAs, ingress, argoNamespace }
  const others = { database, sealer, engines, openKubernetes, services, log, work, clock: systemClock }
  const pushes = {
    push: createImagePush({ outbound, clock: systemClock }),
    registry: (organizationId: string, id: string) => readRegistryPlace(database, sealer, organizationId, id),
  }
  const writer = await readWriter(database, settings.dataDir, settings.databaseUrl !== undefined)
  const lines = { database, writer, log, work, clock: systemClock }
  const clusters = createClusters({ database, runtime, builder: imageBuilder, others, pushes, lines })
  const builder = builderOver(clusters)
  await clusters.start()
  const engine: DeploymentEngine = createDeploymentEngine({
    ...foundation,
    clusters,
    builder,
    repositories,
    enqueue: enqueueDeploymentEvent,
    kinds: deployableKinds,
    variables: (serviceIds, db = database, commits) => loadAllVariables(db, sealer, serviceIds, commits),
    secretManagers: createSecretManagers({ database, sealer, outbound: foundation.outbound, clock: systemClock }),
    gitCredentials: (use) => readGitCredentials(database, sealer, use),
    registryCredentials: (organizationId, id) => readRegistryCredentials(database, sealer, organizationId, id),
    checkAddress: (url) => foundation.outbound.check(url),
    limits: settings.limits,
    ports: { range: settings.portRange, own: ownPortsOf(settings) },
    databaseModules: settings.databaseModules,
    disk,
    fingerprintKey: await readFingerprintKey(database, sealer),
    environmentLock: createKeyedLock(),
    concurrency: settings.deployConcurrency,
    volumeSizes: settings.volumeSizes,
    engineWaitMs: settings.engineWaitSeconds * 1000,
    gitPollSeconds: settings.gitPollSeconds,
    imagePollSeconds: settings.imagePollSeconds,
    orphanDays: settings.orphanDays,
    scaleTimes: {
      sleepAfterMs: settings.sleepAfterSeconds * 1000,
      upMs: settings.scaleUpSeconds * 1000,
      downMs: settings.scaleDownSeconds * 1000,
    },
    alone: settings.databaseUrl === undefined,
    clock: systemClock,
  })
  const delivery = createDelivery({
    database,
    sealer,
    outbound: foundation.outbound,
    clock: systemClock,
    log,
    work,
    scheduleSeconds: settings.webhookSchedule,
  })
  const streams = createStreams(database)
  const trustedProxies =
    settings.apiHost === undefined ? settings.trustedProxies : [...settings.trustedProxies, apiAddress(settings)]
  const parts: Parts = {
    ...foundation,
    settings: {
      ...settings,
      trustedProxies,
      consoleFolder: fileURLToPath(new URL('../../console/dist/', import.meta.url)),
    },
    clusters,
    builder,
    repositories,
    disk,
    streams,
    deployments: engine,
    delivery,
    clock: systemClock,
  }
  return { parts, engine, delivery }
}

const patienceMs = 1000

/** The engine's capacity is known before the first request, unless the engine is slow. */
const learnCapacities = async ({ clusters, database, log }: Parts): Promise<void> => {
  const learning = clusters.all().map((cluster) =>
    learnCapacity(database, cluster).catch((error: unknown) => {
      log.debug({ err: error, cluster: cluster.key }, 'the capacity of a cluster is not known yet')
    }),
  )
  const patience = new AbortController()
  const late = systemClock.sleep(patienceMs, patience.signal).catch(() => {})
  await Promise.race([Promise.all(learning), late])
  patience.abort()
}

/** The kind of the default clusters' engine. */
type EngineKind = 'docker' | 'fake' | 'none'

/** Opened before the other parts: the directory, a running router and a running database. */
export interface Opened {
  settings: Settings
  log: Log
  database: Database
  /** The router of this machine alone. */
  own: Router
}

/** Starts the rest; resolves when requests are answered. */
export const startParts = async (opened: Opened, options: { fake: boolean }): Promise<App> => {
  const { settings } = opened
  const kind: EngineKind = options.fake ? 'fake' : settings.docker ? 'docker' : 'none'
  const foundation = await createFoundation(opened)
  await saveEngine(foundation.database, kind !== 'none')
  const url = `http://${settings.host}:${settings.port}`
  const sampleUrl = url + samplePath
  const disk = watchDisk(settings, foundation, kind === 'docker')
  const machine = createRuntimeParts(foundation, kind, sampleUrl)
  const { parts, engine, delivery } = await createParts(foundation, machine, disk)
  const learning = learnCapacities(parts)
  const organizationId = await createFirstOrganization(parts)
  const adminToken = await ensureAdminToken(parts, organizationId)
  const api = await createApi(parts, operations)
  if (settings.sample) await serveSample(api, await createSampleRepository(settings.dataDir, foundation.log))
  await learning
  await api.listen({ host: settings.host, port: settings.port }).catch((error) => refuseListen(settings, error))
  if (foundation.shared !== null) await leaveFollower(settings.dataDir, foundation.log)
  // For the guides: a reader of the token finds the server's address beside it.
  await writeFile(join(settings.dataDir, 'address'), `${url}\n`)
  const databaseKeeper = superviseDatabase(foundation)
  await engine.start()
  await delivery.start()
  await publishApi(foundation)
  const certificates = await startTls(foundation)
  const alone = settings.databaseUrl === undefined
  const previews = await startPreviews(parts, services, { alone })
  const managed = await startManagedClusters(parts, { alone })
  return {
    parts,
    url,
    sampleUrl,
    organizationId,
    adminToken,
    async stop() {
      await api.close()
      await managed.stop()
      await previews.stop()
      await engine.stop()
      await delivery.stop()
      await certificates?.stop()
      await parts.clusters.close()
      await parts.builder.close()
      await foundation.pullThrough.close()
      await disk.close()
      await databaseKeeper?.stop()
      await foundation.shared?.leave()
      await foundation.database.close()
      await releaseDataDirectory(settings.dataDir)
    },
  }
}
