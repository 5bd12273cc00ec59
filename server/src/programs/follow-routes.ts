/**
 * Keeps the router of this data directory up to date while its server is away, where several servers share a database:
 * requests may come to this router, and services are deployed by the other servers. Run when a server ends
 * (route-follower.ts); ends with the router, or when a server is back.
 */
import { once } from 'node:events'
import { createServers } from '../clusters/servers.ts'
import { createSharedRouter } from '../clusters/shared-router.ts'
import { createLog } from '../lib/log.ts'
import { systemClock } from '../lib/time/clock.ts'
import { createRouter } from '../router/control/client.ts'
import { openCall } from '../router/control/control-client.ts'
import { pathsOf } from '../router/control/protocol.ts'
import { readSettings } from '../settings/settings.ts'
import { connect } from '../store/database.ts'
import { createWorkRegistry } from '../work/registry.ts'

const leaveMs = 5000
const againMs = 1000

const { dataDir, routerHost: host, routerPort: port, databaseUrl } = readSettings()
const log = createLog('info')

/** Null without a router, and while a server updates it. */
const permit = await openCall(pathsOf(dataDir).controlSocket, 'GET', '/follow').catch(() => null)
if (permit?.statusCode !== 200 || databaseUrl === undefined) process.exit(0)
const ending = new AbortController()
const calledOff = once(permit.resume(), 'close').then(() => ending.abort())

const database = connect(databaseUrl, log)
const parts = { database, log, work: createWorkRegistry(systemClock), clock: systemClock }
// It is not started: without a router there is nothing to keep up to date.
const own = createRouter({ dataDir, host, port, log })
const shared = createSharedRouter({ ...parts, own, servers: createServers(parts) })

// Whatever sleeps is woken by one of the other servers.
own.wanted((serviceId) => {
  database.query(`select pg_notify('slipway_wanted', $1)`, [serviceId]).catch(() => {})
})

const follow = async (): Promise<void> => {
  for (;;) {
    try {
      await shared.follow()
      log.info('the server of this router is away: following the routes of the other servers')
      return
    } catch (error) {
      log.warn({ err: error }, 'the routes of the other servers cannot be read')
      await systemClock.sleep(againMs, ending.signal)
    }
  }
}

const following = follow().catch(() => {})
await calledOff
setTimeout(() => process.exit(0), leaveMs).unref()
await following
await shared.leave()
await database.close()
process.exit(0)
