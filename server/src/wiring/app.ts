/** Starts the router and the database, then all that works with them (services.ts). */

import { createLog, type Log } from '../lib/log.ts'
import { watchTurns } from '../lib/loop-turns.ts'
import { createRouter } from '../router/control/client.ts'
import type { Router } from '../router/router.ts'
import type { Settings } from '../settings/settings.ts'
import { connect, type Database, migrate } from '../store/database.ts'
import { startPostgres } from '../store/postgres/postgres.ts'
import { openDataDirectory } from './data-directory.ts'
import { tryAddresses } from './listen-addresses.ts'
import { claimDataDirectory } from './process-file.ts'
import { type App, startParts } from './services.ts'

export type { App }

const openDatabase = async (settings: Settings, log: Log): Promise<Database> => {
  const connectionString =
    settings.databaseUrl ?? (await startPostgres({ dataDir: settings.dataDir, log })).connectionString
  const database = connect(connectionString, log)
  await migrate(database)
  return database
}

const createOwnRouter = (settings: Settings, log: Log): Router => {
  const { dataDir, routerHost: host, routerPort: port, routerTlsPort: tlsPort, hstsSeconds } = settings
  const { trustedProxies, routerProcesses: processes, domain: ownDomain } = settings
  return createRouter({ dataDir, host, port, log, trustedProxies, tlsPort, hstsSeconds, ownDomain, processes })
}

export const startApp = async (settings: Settings, options: { fake: boolean }): Promise<App> => {
  await openDataDirectory(settings.dataDir, options.fake ? 'fake' : 'docker')
  await claimDataDirectory(settings.dataDir)
  await tryAddresses(settings)
  const log = createLog(settings.logLevel)
  watchTurns((turn) => log.warn(turn, 'the event loop was blocked: nothing else was done meanwhile'))
  const own = createOwnRouter(settings, log)
  const [database] = await Promise.all([openDatabase(settings, log), own.start()])
  return startParts({ settings, log, database, own }, options)
}
