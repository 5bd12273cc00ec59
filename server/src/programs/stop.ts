/**
 * `npm stop`: stops the control plane, the router and the embedded database of this data directory. Deployed services
 * keep running.
 */

import { createLog } from '../lib/log.ts'
import { createRouter } from '../router/control/client.ts'
import { readSettings } from '../settings/settings.ts'
import { stopPostgres } from '../store/postgres/postgres.ts'
import { checkOwner } from '../wiring/data-directory.ts'
import { endControlPlane } from '../wiring/process-file.ts'

const settings = readSettings()
const log = createLog('warn')
const { dataDir, routerHost: host, routerPort: port } = settings

const stop = async (): Promise<string> => {
  if (!(await checkOwner(dataDir))) return `There is no data directory ${dataDir}: nothing to stop.`
  await endControlPlane(dataDir)
  await createRouter({ dataDir, host, port, log }).stop()
  if (settings.databaseUrl === undefined) await stopPostgres({ dataDir, log })
  return 'Slipway has stopped. Everything it deployed keeps running; npm start resumes managing it.'
}

try {
  process.stdout.write(`${await stop()}\n`)
} catch (error) {
  process.stderr.write(`Slipway cannot be stopped: ${(error as Error).message}\n`)
  process.exitCode = 1
}
