/**
 * What is wrong with this installation, and how to mend it: for the operator, by `/readyz?verbose`, the console and
 * `npm run doctor`. Each check reads its facts and judges them by a pure function.
 *
 * Promises: changes nothing; a check that fails or hangs delays no other, and is reported itself. Does not know: how its
 * findings are shown. When the process dies: nothing is lost.
 */
import type { Clusters } from '../clusters/clusters.ts'
import { localKey } from '../clusters/local.ts'
import { waitAtMost } from '../lib/concurrency/waiting.ts'
import { type Finding, type Topic, topic, warning } from '../lib/finding.ts'
import type { Log } from '../lib/log.ts'
import type { Outbound } from '../lib/net/outbound.ts'
import { seenClocks } from '../lib/net/seen-clocks.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Router } from '../router/router.ts'
import type { Settings } from '../settings/settings.ts'
import type { Database } from '../store/database.ts'
import type { WorkRegistry } from '../work/registry.ts'
import { judgeWork } from './background-work.ts'
import { judgeBackup, readLastBackup } from './backup.ts'
import { judgeCertificates, readCertificates } from './certificates.ts'
import { judgeClock, readDatabaseClock } from './clock.ts'
import { judgeDatabase, readDatabase } from './database.ts'
import { type DiskReader, judgeDisks, type Place, readDisks } from './disks.ts'
import { type EngineFacts, judgeClusters, judgeEngine, readClusters } from './engine.ts'
import { judgeKernel, readKernel } from './kernel.ts'
import { judgeMemory, readMachines, readOwnMemory } from './memory.ts'
import { judgeNames, readNames } from './names.ts'
import { judgePorts, readPorts } from './ports.ts'
import { judgeRouter, readRouter } from './router.ts'
import { judgeServers, readServers } from './servers.ts'

export interface DoctorParts {
  settings: Pick<
    Settings,
    | 'dataDir'
    | 'databaseUrl'
    | 'host'
    | 'port'
    | 'routerHost'
    | 'routerPort'
    | 'routerTlsPort'
    | 'portRange'
    | 'domain'
    | 'apiHost'
    | 'diskReserveMb'
    | 'memoryOvercommit'
  > & { ownBackups: Pick<Settings['ownBackups'], 'to'> }
  database: Database
  clusters: Pick<Clusters, 'all'>
  /** The router of this machine. */
  router: Pick<Router, 'routes'>
  outbound: Pick<Outbound, 'addressesOf'>
  work: WorkRegistry
  /** The engine of this machine. */
  engine(): Promise<EngineFacts>
  /** Where the engine keeps its data, if it is a folder of this machine. */
  engineRoot(): Promise<string | undefined>
  diskReader?: DiskReader | undefined
  clock: Clock
  log: Log
}

export interface Doctor {
  /** In the order in which they are shown. */
  look(): Promise<Finding[]>
}

const deadlineMs = 10_000
const mb = 2 ** 20

type Check = [about: Pick<Topic, 'id' | 'title'>, look: () => Promise<Finding>]

/** Its finding, or one that says why there is none. */
const runCheck = async ({ clock, log }: DoctorParts, [{ id, title }, look]: Check): Promise<Finding> => {
  const { judge } = topic(id, title)
  const again = 'Look again; if it stays so, the log of the server has the reason.'
  try {
    const found = await waitAtMost(clock, deadlineMs, look())
    return found ?? judge([warning(`This could not be checked within ${deadlineMs / 1000} s.`, again)], '')
  } catch (error) {
    log.warn({ err: error, check: id }, 'a check of the doctor failed')
    return judge([warning('This could not be checked.', again)], '')
  }
}

export const placesOf = (
  { dataDir, databaseUrl }: Pick<Settings, 'dataDir' | 'databaseUrl'>,
  engineRoot: string | undefined,
): Place[] => [
  { name: 'the data directory', path: dataDir },
  // It may be a link to a folder of another disk.
  ...(databaseUrl === undefined ? [{ name: 'the database', path: `${dataDir}/postgres` }] : []),
  ...(engineRoot === undefined ? [] : [{ name: 'the engine', path: engineRoot }]),
]

const checksOf = (parts: DoctorParts): Check[] => {
  const { settings, database, clusters, router, outbound, work, clock } = parts
  const { dataDir, databaseUrl, diskReserveMb, memoryOvercommit, portRange, routerTlsPort } = settings
  return [
    [{ id: 'engine', title: 'Engine' }, async () => judgeEngine(await parts.engine())],
    [
      { id: 'clusters', title: 'Clusters' },
      async () => judgeClusters(await readClusters({ database, clock, all: clusters.all }, localKey)),
    ],
    [
      { id: 'disks', title: 'Disks' },
      async () => {
        const places = placesOf(settings, await parts.engineRoot())
        return judgeDisks(await readDisks(places, parts.diskReader), diskReserveMb * mb)
      },
    ],
    [
      { id: 'memory', title: 'Memory' },
      async () => {
        const machines = await readMachines(database, clusters.all(), memoryOvercommit, localKey)
        return judgeMemory({ machines, own: await readOwnMemory() })
      },
    ],
    [{ id: 'database', title: 'Database' }, async () => judgeDatabase(await readDatabase(database))],
    [
      { id: 'servers', title: 'Servers' },
      async () => judgeServers(databaseUrl === undefined ? null : await readServers(database)),
    ],
    [{ id: 'router', title: 'Router' }, async () => judgeRouter(await readRouter(database, router, dataDir))],
    [{ id: 'ports', title: 'Ports' }, async () => judgePorts(await readPorts(database, settings))],
    [
      { id: 'names', title: 'Names' },
      async () => judgeNames(await readNames({ database, addressesOf: outbound.addressesOf, clock }, settings)),
    ],
    [
      { id: 'certificates', title: 'Certificates' },
      async () => judgeCertificates(await readCertificates(database), routerTlsPort !== undefined, clock.now()),
    ],
    [
      { id: 'clock', title: 'Clock' },
      async () => judgeClock({ databaseMs: await readDatabaseClock(database, clock), registriesMs: seenClocks() }),
    ],
    [{ id: 'kernel', title: 'Kernel limits' }, async () => judgeKernel(await readKernel(), portRange)],
    [{ id: 'work', title: 'Background work' }, async () => judgeWork(work.read())],
    [
      { id: 'backup', title: 'Backup' },
      async () => judgeBackup({ to: settings.ownBackups.to, last: await readLastBackup(database) }, clock.now()),
    ],
  ]
}

export const createDoctor = (parts: DoctorParts): Doctor => ({
  look: () => Promise.all(checksOf(parts).map((check) => runCheck(parts, check))),
})
