/** Follows the routes that other servers set, for a router whose own server is away. */
import { createServers } from './clusters/servers.ts'
import { createSharedRouter } from './clusters/shared-router.ts'
import { createLog } from './lib/log.ts'
import { systemClock } from './lib/time/clock.ts'
import { createRouter } from './router/control/client.ts'
import type { Settings } from './settings.ts'
import { connect } from './store/database.ts'
import { createWorkRegistry } from './work/registry.ts'

export interface Following {
  /** The router goes on with the table that it has. */
  stop(): Promise<void>
}

/** Begins to follow, every `againMs` until the database answers. */
export const follow = ({ dataDir, routerHost: host, routerPort: port, databaseUrl }: Settings, againMs: number) => {
  const log = createLog('info')
  const database = connect(databaseUrl!, log)
  const parts = { database, log, work: createWorkRegistry(systemClock), clock: systemClock }
  // It is not started: without a router there is nothing to keep up to date.
  const own = createRouter({ dataDir, host, port, log })
  const shared = createSharedRouter({ ...parts, own, servers: createServers(parts) })
  const ending = new AbortController()
  const begin = async (): Promise<void> => {
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
  const began = begin().catch(() => {})
  return {
    async stop() {
      ending.abort()
      await began
      await shared.leave()
      await database.close()
    },
  } satisfies Following
}
