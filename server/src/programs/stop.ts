/**
 * `npm stop`: stops the control plane, the router and the embedded database of this data directory. Deployed services
 * keep running.
 */
import { createLog } from '../lib/log.ts'
import { endControlPlane } from '../process-file.ts'
import { createRouter } from '../router/control/client.ts'
import { readSettings } from '../settings.ts'
import { stopPostgres } from '../store/postgres/postgres.ts'

const settings = readSettings()
const log = createLog('warn')

await endControlPlane(settings.dataDir)
const { dataDir, routerHost: host, routerPort: port } = settings
await createRouter({ dataDir, host, port, log }).stop()
if (settings.databaseUrl === undefined) await stopPostgres({ dataDir, log })
process.stdout.write('Slipway has stopped. Everything it deployed keeps running; npm start resumes managing it.\n')
