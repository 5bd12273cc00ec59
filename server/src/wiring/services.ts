/** Wires the parts, and starts and stops them in order. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type AdminToken, ensureAdminToken } from '../api/auth/admin-token.ts'
import type { Parts } from '../api/parts.ts'
import { createApi } from '../api/server.ts'
import { startAllBackups } from '../backups/backups.ts'
import { startTidying } from '../backups/places/tidy-places.ts'
import { findTool } from '../builds/tools.ts'
import { learnCapacity } from '../clusters/capacity.ts'
import { createClusters } from '../clusters/clusters.ts'
import { readWriter } from '../clusters/lines/writer.ts'
import { readGitCredentials } from '../deployments/credentials/git-credentials.ts'
import {
  readRegistryCredentials,
  readRegistryLogins,
  readRegistryPlace,
} from '../deployments/credentials/registry-credentials.ts'
import { createDeploymentEngine, type DeploymentEngine } from '../deployments/engine.ts'
import { ownPortsOf } from '../deployments/traffic/port-claims.ts'
import { listedImages } from '../images/listed-image.ts'
import { createImagePush } from '../images/push.ts'
import { createKeyedLock } from '../lib/concurrency/keyed-lock.ts'
import { createEngine } from '../lib/docker/docker-engine.ts'
import { defaultConnection } from '../lib/docker/engine-connection.ts'
import { systemClock } from '../lib/time/clock.ts'
import { createDisk, type Disk, type DiskParts } from '../limits/disk.ts'
import { startManagedClusters } from '../resources/cluster/managed/worker.ts'
import { deployableKinds, operations, services } from '../resources/index.ts'
import { createFirstOrganization } from '../resources/organization/organization.ts'
import { startPreviews } from '../resources/previews/previews.ts'
import { createHelmTool } from '../runtimes/kubernetes/helm/tool.ts'
import type { Settings } from '../settings/settings.ts'
import { readFingerprintKey, saveEngine } from '../store/installation.ts'
import { startPostgres } from '../store/postgres/postgres.ts'
import { createStreams } from '../streams/changes.ts'
import { createSecretManagers } from '../variables/external/managers.ts'
import { loadAllVariables } from '../variables/rows.ts'
import { createDelivery } from '../webhooks/deliver.ts'
import { enqueueDeploymentEvent } from '../webhooks/outbox.ts'
import { createLoop, type Loop, type WorkParts } from '../work/loop.ts'
import { wireDoctor } from './doctor.ts'
import { createRuntimeParts, type EngineKind, type RuntimeParts } from './engines.ts'
import { createFoundation, type Foundation, type Opened } from './foundation.ts'
import { refuseListen } from './listen-addresses.ts'
import { releaseDataDirectory } from './process-file.ts'
import { leaveFollower } from './route-follower.ts'
import { createSampleRepository, samplePath, serveSample } from './sample-repository.ts'
import { apiAddress, publishApi, startTls } from './tls.ts'

/** Monitors the disks of this installation: the data directory's, and the engine's if it is on this machine. */
const watchDisk = (
  { dataDir: data, dockerHost, limits, diskReserveMb }: Settings,
  { log, work }: Omit<WorkParts, 'clock'>,
  hasEngine: boolean,
): Disk => {
  const common = { diskGb: limits.diskGb, reserveMb: diskReserveMb, clock: systemClock, log, work }
  if (!hasEngine) return createDisk({ ...common, images: null, folders: async () => ({ data }) })
  const connection = defaultConnection(dockerHost)
  const engine = createEngine(connection)
  const isLocal = connection.kind === 'local'
  let root: string | undefined
  const folders: DiskParts['folders'] = async () => {
    if (isLocal && root === undefined)
      root = await engine.call<{ DockerRootDir?: string }>('GET', '/info').then(
        ({ DockerRootDir }) => DockerRootDir,
        () => undefined,
      )
    return root === undefined ? { data } : { data, engine: root }
  }
  const images: DiskParts['images'] = (signal) =>
    engine.call('GET', '/images/json', { query: { all: true }, signal, keep: listedImages })
  const disk = createDisk({ ...common, images, folders })
  return {
    ...disk,
    async close() {
      await disk.close()
      await engine.close()
    },
  }
}

export interface App {
  parts: Parts
  /** Address of the API: `http://host:port`. */
  url: string
  sampleUrl: string
  organizationId: string
  adminToken: AdminToken
  stop(): Promise<void>
}

const pingEveryMs = 2000
const pingTimeoutMs = 2000

/** Our own PostgreSQL is restarted when it dies, as long as we run; an external one is not ours to manage. */
const superviseDatabase = ({ settings: { databaseUrl, dataDir }, database, log, work }: Foundation): Loop | null =>
  databaseUrl !== undefined
    ? null
    : createLoop(
        { work, log, clock: systemClock },
        {
          name: 'keep PostgreSQL',
          periodMs: pingEveryMs,
          waits: true,
          failed: 'PostgreSQL could not be started',
          async run(signal) {
            try {
              await database.ping(pingTimeoutMs)
            } catch (error) {
              if (signal.aborted) return
              log.warn({ err: error }, 'PostgreSQL does not answer: restarting it')
              await startPostgres({ dataDir, log })
            }
          },
        },
      )

const createParts = async (foundation: Foundation, machine: RuntimeParts, disk: Disk, kind: EngineKind) => {
  const { settings, database, sealer, log, work } = foundation
  const { repositories, runtime, imageBuilder, engines, openKubernetes, builderOver } = machine
  const { ownerId, outbound } = foundation
  const registryLogins = (organizationId: string, host: string) =>
    readRegistryLogins(database, sealer, organizationId, host)
  const helm = createHelmTool(() => findTool('helm', settings.tools), join(settings.dataDir, 'helm'))
  const { runAs, ingressClass, certIssuer, ingressTls, argoNamespace } = settings.kubernetes
  const ingress = { className: ingressClass, issuer: certIssuer, hasCertificate: ingressTls }
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
    secretManagers: createSecretManagers({ database, sealer, outbound, clock: systemClock }),
    gitCredentials: (use) => readGitCredentials(database, sealer, use),
    registryCredentials: (organizationId, id) => readRegistryCredentials(database, sealer, organizationId, id),
    checkAddress: (url) => outbound.check(url),
    limits: settings.limits,
    keeping: settings.keeping,
    ports: { range: settings.portRange, own: ownPortsOf(settings) },
    databaseModules: settings.databaseModules,
    disk,
    fingerprintKey: await readFingerprintKey(database, sealer),
    environmentLock: createKeyedLock(),
    concurrency: settings.deployConcurrency,
    volumeSizes: settings.volumeSizes,
    memoryOvercommit: settings.memoryOvercommit,
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
    ...foundation,
    clock: systemClock,
    scheduleSeconds: settings.webhookSchedule,
    keptDays: settings.keeping.webhookDays,
  })
  const streams = createStreams(database)
  const trustedProxies =
    settings.apiHost === undefined ? settings.trustedProxies : [...settings.trustedProxies, apiAddress(settings)]
  const doctor = wireDoctor(foundation, clusters, kind)
  const parts: Parts = {
    ...foundation,
    doctor,
    settings: {
      ...settings,
      trustedProxies,
      consoleFolder: fileURLToPath(new URL('../../../console/dist/', import.meta.url)),
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
  return { parts, engine, delivery, doctor }
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

/** Loaded only where it is used: its encryption is not small. */
const startBackups = async (foundation: Foundation): Promise<Loop | null> => {
  const { startScheduledBackups } = await import('./own-backups.ts')
  return startScheduledBackups(foundation)
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
  const { parts, engine, delivery, doctor } = await createParts(foundation, machine, disk, kind)
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
  const tidying = startTidying(parts)
  const ownBackups = settings.ownBackups.to === undefined ? null : await startBackups(foundation)
  const writer = await readWriter(foundation.database, settings.dataDir, !alone)
  const backups = await startAllBackups({ ...parts, writer }, { alone })
  return {
    parts,
    url,
    sampleUrl,
    organizationId,
    adminToken,
    async stop() {
      await api.close()
      await tidying.stop()
      await ownBackups?.stop()
      await backups.stop()
      await managed.stop()
      await previews.stop()
      await engine.stop()
      await delivery.stop()
      await certificates?.stop()
      await parts.clusters.close()
      await parts.builder.close()
      await foundation.pullThrough.close()
      await disk.close()
      await doctor.close()
      await databaseKeeper?.stop()
      await foundation.shared?.leave()
      await foundation.database.close()
      await releaseDataDirectory(settings.dataDir)
    },
  }
}
