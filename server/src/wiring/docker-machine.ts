/** The work of one Docker engine for this server: services run there, images are held and built there. */
import { join } from 'node:path'
import type { ImageBuilder } from '../builds/builder.ts'
import { removeCaches, removeImagesOf } from '../builds/built-images.ts'
import { createDiskReserve, stoppedPull } from '../builds/engine/disk-reserve.ts'
import { createImageBuilder } from '../builds/image-builder.ts'
import type { Sources } from '../builds/sources.ts'
import type { EngineUse } from '../clusters/engines.ts'
import { readRegistryLogins } from '../deployments/credentials/registry-credentials.ts'
import { createOrganizationImages } from '../images/organization-images.ts'
import type { PullThrough } from '../images/pull-through.ts'
import { createEngine } from '../lib/docker/docker-engine.ts'
import { type EngineConnection, isLocalEngine } from '../lib/docker/engine-connection.ts'
import type { Log } from '../lib/log.ts'
import type { Outbound } from '../lib/net/outbound.ts'
import { systemClock } from '../lib/time/clock.ts'
import type { Router } from '../router/router.ts'
import { createDockerRuntime } from '../runtimes/docker/docker.ts'
import type { Runtime } from '../runtimes/runtime.ts'
import type { Settings } from '../settings/settings.ts'
import type { Database, Queryable } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'

interface DockerMachineParts {
  settings: Settings
  database: Database
  sealer: Sealer
  ownerId: string
  outbound: Outbound
  pullThrough: PullThrough
  /** The one router: it routes to the services of every engine. */
  router: Router
  sources: Sources
  log: Log
}

export interface DockerTarget {
  connection: EngineConnection
  /** The address at which an engine on another machine publishes ports for this server; null for this machine's. */
  serviceAddress: string | null
  /** Id of the cluster; null for the engine of this machine. */
  clusterId: string | null
  organizationId: string | null
}

export interface DockerMachine extends EngineUse {
  /** Closes the rest with itself. */
  runtime: Runtime
  builder: ImageBuilder
}

/** The folder where builds on an engine list the objects that they create there. */
export const buildFolder = (dataDir: string, clusterId: string | null): string =>
  clusterId === null ? join(dataDir, 'builds') : join(dataDir, 'cluster-builds', clusterId)

const clearEngine = async (connection: EngineConnection, db: Queryable, organizationId: string): Promise<void> => {
  const steps = await db.query<{ id: string }>(
    'select image_id as id from build_step where organization_id = $1 order by created_at',
    [organizationId],
  )
  const caches = await db.query<{ volume: string }>('select volume from build_cache where organization_id = $1', [
    organizationId,
  ])
  const stepIds = steps.map(({ id }) => id)
  const volumes = caches.map(({ volume }) => volume)
  const engine = createEngine(connection)
  try {
    await removeImagesOf(engine, organizationId, stepIds)
    await removeCaches(engine, volumes)
  } finally {
    await engine.close()
  }
}

export const openDockerMachine = (parts: DockerMachineParts, target: DockerTarget): DockerMachine => {
  const { settings, database, sealer, ownerId, outbound, pullThrough, router, sources, log } = parts
  const { connection, clusterId, organizationId } = target
  const elsewhere = target.serviceAddress ?? undefined
  const common = { connection, elsewhere, log, clock: systemClock }
  const registryLogins = (organizationId: string, host: string) =>
    readRegistryLogins(database, sealer, organizationId, host)
  const engine = createEngine(connection)
  const isLocal = elsewhere === undefined && isLocalEngine(connection)
  const disk = createDiskReserve({ engine, isLocal, reserveMb: settings.diskReserveMb, refusal: stoppedPull })
  const images = createOrganizationImages({
    ...common,
    ...{ outbound, pullThrough, registryLogins },
    engineImages: settings.engineImages,
    maxMb: settings.imageMaxMb,
    disk,
  })
  const runtime = createDockerRuntime({ ...common, ownerId, images, router })
  const builder = createImageBuilder({
    ...common,
    ...{ database, images, registryLogins, outbound },
    folder: buildFolder(settings.dataDir, clusterId),
    preparation: sources.prepare(),
    downloadBytes: settings.preparation.contextBytes,
    concurrency: settings.buildConcurrency,
    cacheMb: settings.keeping.buildCacheMb,
    cacheDays: settings.keeping.buildCacheDays,
    allowed: settings.outboundAllow,
    dns: settings.buildDns,
    diskReserveMb: settings.diskReserveMb,
    tools: settings.tools,
  })
  const close = async (): Promise<void> => {
    await Promise.all([builder.close(), images.close()])
    await Promise.all([runtime.close(), engine.close()])
  }
  const clear = async (): Promise<void> => {
    if (organizationId !== null) await clearEngine(connection, database, organizationId)
  }
  return { runtime: { ...runtime, close }, builder, clear }
}
