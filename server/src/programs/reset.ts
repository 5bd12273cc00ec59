/**
 * `npm run reset`: deletes everything that this data directory owns: containers, networks, volumes and images on the
 * engine, the router, the database, the keys. Asks first, unless called with `--yes`; as another
 * user than the owner it deletes nothing.
 */
import { existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { createInterface } from 'node:readline/promises'
import { removeBuiltImages, removeCaches, removeImagesOf } from '../builds/built-images.ts'
import { createBuildContainers } from '../builds/engine/build-containers.ts'
import { removeGitPlace } from '../builds/git/place.ts'
import { connectionOf, openSecrets, readEngineRows } from '../clusters/engines.ts'
import { readWriter } from '../clusters/lines/writer.ts'
import { localKey } from '../clusters/local.ts'
import { createEngineImages } from '../images/engine-images.ts'
import { createEngine, type Engine } from '../lib/docker/docker-engine.ts'
import { defaultConnection, type EngineConnection } from '../lib/docker/engine-connection.ts'
import { createLog } from '../lib/log.ts'
import { createOutbound } from '../lib/net/outbound.ts'
import { systemClock } from '../lib/time/clock.ts'
import { createRouter } from '../router/control/client.ts'
import { createDockerRuntime } from '../runtimes/docker/docker.ts'
import type { Runtime } from '../runtimes/runtime.ts'
import { readSettings, type Settings } from '../settings/settings.ts'
import { connect, type Database } from '../store/database.ts'
import { readOwnerId } from '../store/installation.ts'
import { createSealer } from '../store/keys/seal.ts'
import { removePostgres, startPostgres } from '../store/postgres/postgres.ts'
import { checkOwner, isFake } from '../wiring/data-directory.ts'
import { buildFolder } from '../wiring/docker-machine.ts'
import { endControlPlane } from '../wiring/process-file.ts'

interface ConnectedEngine {
  clusterId: string
  organizationId: string
  /** As the user wrote it. */
  url: string
  connection: EngineConnection
}

/** The engines that credentials name. Rejects without the master key, where there is one. */
const readConnectedEngines = async (
  database: Database,
  { masterKeyFile, outboundAllow }: Settings,
): Promise<ConnectedEngine[]> => {
  const rows = await readEngineRows(database)
  if (rows.length === 0) return []
  const sealer = await createSealer({ database, masterKeyFile })
  const { checkMachine } = createOutbound({ allow: [...outboundAllow] })
  return Promise.all(
    rows.map(async (row) => {
      const connection = connectionOf(row.spec, await openSecrets(sealer, row), checkMachine)
      const { clusterId, organizationId } = row
      return { clusterId, organizationId, url: row.spec.engine_url, connection }
    }),
  )
}

const settings = readSettings()
const log = createLog('error')

/** Rejects without a terminal to ask on. */
const confirm = async (): Promise<boolean> => {
  if (process.argv.includes('--yes')) return true
  if (!process.stdin.isTTY)
    throw new Error('this asks for confirmation and there is no terminal: npm run reset -- --yes does not ask.')
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  const { dataDir, backupFolder } = settings
  const hasBackups = backupFolder.startsWith(`${dataDir}/`) && existsSync(backupFolder)
  const folder = hasBackups ? `${dataDir}, the backups in it too,` : dataDir
  const answer = await terminal.question(`Delete everything in ${folder} and everything it deployed? Type yes: `)
  terminal.close()
  return answer.trim() === 'yes'
}

const removeDeployed = async (runtime: Runtime): Promise<void> => {
  const signal = AbortSignal.timeout(120_000)
  const owned = await runtime.owned()
  const services = new Map([...owned.instances, ...owned.volumes].map((each) => [each.serviceId, each]))
  for (const service of services.values())
    await runtime.converge(service, { state: 'absent', graceMs: 2000 }, null, signal)
  for (const environmentId of owned.environments) await runtime.removeEnvironment(environmentId, signal)
  await runtime.marks.clear(signal)
  await runtime.close()
}

const removePulledImages = async (engine: Engine, organizationIds: readonly string[]): Promise<void> => {
  const images = createEngineImages(engine)
  for (const id of organizationIds) for (const tag of await images.tagsOf(id)) await images.untag(tag, true)
}

interface Owner {
  id: string
  /** By their keys, the marks that this database wrote on clusters. */
  generations: ReadonlyMap<string, ReadonlySet<string>>
  /** Who this data directory is in those marks. */
  writer: string
  /** Keys of the clusters on which nothing is changed until an operator decides. */
  held: ReadonlySet<string>
  /** Keys of the images that were built. */
  contentKeys: string[]
  organizationIds: string[]
  /** Leftovers of their steps. */
  stepIds: string[]
  caches: string[]
  engines: ConnectedEngine[]
}

const engineKeysMissing = (error: Error): [] => {
  process.stdout.write(`Services on other machines are left there: ${error.message}\n`)
  return []
}

const readOwner = async (): Promise<Owner | null> => {
  const { dataDir, databaseUrl } = settings
  const database = connect(databaseUrl ?? (await startPostgres({ dataDir, log })).connectionString, log)
  try {
    const images = await database.query<{ key: string }>('select content_key as key from image')
    const steps = await database.query<{ id: string }>('select image_id as id from build_step order by created_at')
    // A database of an earlier version has none.
    const caches = await database.query<{ volume: string }>('select volume from build_cache').catch(() => [])
    const organizations = await database.query<{ id: string }>(
      `select id from node where kind = 'organization' union select organization_id from release`,
    )
    // A database of an earlier version has none.
    const marks = await database
      .query<{ cluster: string; mark: string }>(
        `select cluster, generation || ' ' || nonce as mark from cluster_generation`,
      )
      .catch(() => [])
    const held = await database.query<{ cluster: string }>('select cluster from cluster_conflict').catch(() => [])
    const byCluster = Map.groupBy(marks, ({ cluster }) => cluster)
    return {
      id: await readOwnerId(database),
      generations: new Map([...byCluster].map(([key, rows]) => [key, new Set(rows.map(({ mark }) => mark))])),
      writer: await readWriter(database, dataDir, databaseUrl !== undefined),
      held: new Set(held.map(({ cluster }) => cluster)),
      contentKeys: images.map(({ key }) => key),
      stepIds: steps.map(({ id }) => id),
      caches: caches.map(({ volume }) => volume),
      organizationIds: organizations.map(({ id }) => id),
      engines: await readConnectedEngines(database, settings).catch(engineKeysMissing),
    }
  } catch {
    // A database that was never migrated: nothing was deployed from here.
    return null
  } finally {
    await database.close()
  }
}

/**
 * Whether another control plane has worked on an engine since this data directory did, if it ever did: then this one is a
 * copy, such as a restored backup, and the objects on the engine are not its own. A copy knows the last mark, but did not
 * write it.
 */
const isOfAnother = async (owner: Owner, runtime: Runtime, key: string): Promise<boolean> => {
  const [newest] = await runtime.marks.list(key, AbortSignal.timeout(10_000))
  if (newest === undefined || newest.generation === 0) return false
  const isKnown = owner.generations.get(key)?.has(`${newest.generation} ${newest.nonce}`) === true
  const isOwn = isKnown && newest.writer === owner.writer && !owner.held.has(key)
  if (!isOwn)
    process.stdout.write(
      'The services there are left as they are: another control plane with a copy of this database has deployed them, or this one is a copy.\n',
    )
  return !isOwn
}

const removeHere = async (owner: Owner): Promise<void> => {
  const connection = defaultConnection(settings.dockerHost)
  const runtime = createDockerRuntime({ ownerId: owner.id, connection, log, clock: systemClock })
  if (await isOfAnother(owner, runtime, localKey)) return runtime.close()
  await removeDeployed(runtime)
  const engine = createEngine(connection)
  await createBuildContainers(engine, buildFolder(settings.dataDir, null), systemClock).sweep()
  await removeBuiltImages(engine, owner.contentKeys, owner.stepIds)
  await removeCaches(engine, owner.caches)
  await removePulledImages(engine, owner.organizationIds)
  await engine.close()
}

const removeThere = async (owner: Owner, { clusterId, organizationId, connection }: ConnectedEngine): Promise<void> => {
  const runtime = createDockerRuntime({ ownerId: owner.id, connection, log, clock: systemClock })
  if (await isOfAnother(owner, runtime, clusterId)) return runtime.close()
  await removeDeployed(runtime)
  const engine = createEngine(connection)
  try {
    await createBuildContainers(engine, buildFolder(settings.dataDir, clusterId), systemClock).sweep()
    await removeImagesOf(engine, organizationId, owner.stepIds)
    await removeCaches(engine, owner.caches)
  } finally {
    await engine.close()
  }
}

const removeEverywhere = async (owner: Owner): Promise<void> => {
  for (const engine of owner.engines)
    await removeThere(owner, engine).catch((error: Error) => {
      process.stdout.write(`Services on ${engine.url} are left there: ${error.message}\n`)
    })
}

const reset = async (): Promise<void> => {
  const { dataDir, routerHost: host, routerPort: port, databaseUrl, docker } = settings
  await endControlPlane(dataDir)
  const owner = await readOwner()
  if (owner !== null && !(await isFake(dataDir)) && !process.argv.includes('--fake')) {
    if (docker) await removeHere(owner)
    await removeEverywhere(owner)
  }
  await createRouter({ dataDir, host, port, log }).stop()
  if (databaseUrl === undefined) await removePostgres({ dataDir, log })
  await removeGitPlace(dataDir)
  await rm(dataDir, { recursive: true, force: true })
  process.stdout.write(`${dataDir} and everything it deployed have been deleted.\n`)
}

/** A file of another user, however deep, would stop the deletion when the services are gone. */
const isThere = (): Promise<boolean> => checkOwner(settings.dataDir, Number.POSITIVE_INFINITY)

try {
  if (!(await isThere()) && settings.databaseUrl === undefined)
    process.stdout.write(`There is no data directory ${settings.dataDir}: nothing to delete.\n`)
  else if (await confirm()) await reset()
  else {
    process.stdout.write('Nothing was deleted: the answer was not yes.\n')
    process.exitCode = 1
  }
} catch (error) {
  process.stderr.write(`Not deleted: ${(error as Error).message}\n`)
  process.exitCode = 1
}
