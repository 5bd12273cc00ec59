/**
 * One table of routes for the routers of several servers on one database: each change is sent to the other servers, so
 * that a request may come to any of them.
 *
 * Promises: when `setService` resolves, the routers of all live servers have the routes; a router that missed a change
 * has it within a minute; `drain` waits for requests in progress through any of them. When the process dies: its
 * router keeps serving the table that it has; the next start updates that first.
 */
import { createKeyedLock, withLock } from '../lib/concurrency/keyed-lock.ts'
import { type AnyRoute, apiRouteId, type Router, type Target } from '../router/router.ts'
import { areEqual, routeWhatCan } from '../router/routes.ts'
import { createLoop, type Loop } from '../work/loop.ts'
import type { Question, Servers, ServersParts } from './servers.ts'

export interface SharedRouter extends Router {
  /** Brings our own router up to date, and keeps it so. */
  follow(): Promise<void>
  /** The router keeps serving; it gets no more updates. */
  leave(): Promise<void>
  /** Makes other servers load a host's certificates and challenges; resolves when they have, or after a while. */
  notifyTls(host: string): Promise<void>
  /** Called when another server has called `notifyTls`. */
  onTls(learn: (host: string) => Promise<void>): void
}

interface SharedRouterParts extends ServersParts {
  own: Router
  servers: Servers
}

const everyMs = 60_000
/** For a router on another machine to be updated. */
const toldMs = 5000
const drainSlackMs = 2000
/** As many as fit into a notification. */
const targetsAtOnce = 100

const never = new AbortController().signal

interface RoutingRow {
  id: string
  /** Null: the service was never routed. */
  routes: AnyRoute[] | null
}

const routingSql = `select n.id, t.routes from node n left join routing t on t.service_id = n.id`

// For a deleted service there is nothing to store.
const writeSql = `insert into routing (service_id, routes) select id, $2 from node where id::text = $1
  on conflict (service_id) do update set routes = excluded.routes`

export const createSharedRouter = (parts: SharedRouterParts): SharedRouter => {
  const { own, servers, database, log } = parts
  /** By service: our own changes and those received from other servers do not overlap. */
  const turns = createKeyedLock()
  let looking: Loop | undefined
  let learnTls: ((host: string) => Promise<void>) | undefined

  /** Sets all routes except those whose port is taken here, which wait for the next check. */
  const setWhatCan = async (serviceId: string, routes: readonly AnyRoute[]): Promise<void> => {
    for (const { message } of await routeWhatCan(own, serviceId, routes))
      log.warn({ serviceId }, `${message}; retrying in a minute`)
  }
  const learn = (serviceId: string): Promise<void> =>
    withLock(turns, serviceId, never, async () => {
      const [found] = await database.query<RoutingRow>(`${routingSql} where n.id::text = $1`, [serviceId])
      if (found === undefined) await own.setService(serviceId, [])
      else if (found.routes !== null) await setWhatCan(serviceId, found.routes)
    })
  const learnAll = async (): Promise<void> => {
    const has = Map.groupBy(await own.routes(), ({ serviceId }) => serviceId)
    const told = await database.query<RoutingRow>(
      `${routingSql} where t.service_id is not null or n.id::text = any($1)`,
      [[...has.keys()]],
    )
    const known = new Map(told.map(({ id, routes }) => [id, routes]))
    for (const serviceId of new Set([...known.keys(), ...has.keys()])) {
      // The API's own host is configured by each server itself.
      if (serviceId === apiRouteId) continue
      const wanted = known.get(serviceId)
      const isRight = wanted === null || areEqual(wanted ?? [], has.get(serviceId) ?? [])
      if (!isRight) await learn(serviceId)
    }
  }
  const answer = async ({ service, idle, ms, tls, targets, timeoutMs }: Question): Promise<number> => {
    if (tls !== undefined) {
      await learnTls?.(String(tls))
      return 0
    }
    if (idle !== undefined) return (await own.idle([String(idle)], Number(ms))).length
    if (service !== undefined) {
      await learn(String(service))
      return 0
    }
    return (await own.drain(targets as Target[], Number(timeoutMs), never)).remaining
  }
  const drainOthers = async (targets: readonly Target[], timeoutMs: number, signal: AbortSignal): Promise<number> => {
    const others = await servers.others()
    const asked: Promise<number[]>[] = []
    for (let first = 0; first < targets.length; first += targetsAtOnce) {
      const question = { targets: targets.slice(first, first + targetsAtOnce), timeoutMs }
      asked.push(servers.ask(others, question, timeoutMs + drainSlackMs, signal))
    }
    return (await Promise.all(asked)).flat().reduce((sum, each) => sum + each, 0)
  }

  return {
    ...own,
    async setService(serviceId, routes) {
      await withLock(turns, serviceId, never, async () => {
        await own.setService(serviceId, routes)
        await database.query(writeSql, [serviceId, JSON.stringify(routes)])
      })
      await servers.ask(await servers.others(), { service: serviceId }, toldMs)
    },
    async routes() {
      const rows = await database.query<{ routes: AnyRoute[] }>('select routes from routing')
      return rows.flatMap(({ routes }) => routes)
    },
    async drain(targets, timeoutMs, signal) {
      const [here, elsewhere] = await Promise.all([
        own.drain(targets, timeoutMs, signal),
        drainOthers(targets, timeoutMs, signal),
      ])
      return { remaining: here.remaining + elsewhere }
    },
    async idle(serviceIds, ms) {
      const here = await own.idle(serviceIds, ms)
      const others = here.length === 0 ? [] : await servers.others()
      if (others.length === 0) return here
      const idle: string[] = []
      for (const serviceId of here) {
        const answers = await servers.ask(others, { idle: serviceId, ms }, toldMs)
        // A server that does not answer may have received requests.
        if (answers.length === others.length && answers.every((each) => each === 1)) idle.push(serviceId)
      }
      return idle
    },
    async follow() {
      await servers.start(answer, () => looking?.wake())
      looking = createLoop(parts, {
        name: 'routes of all servers',
        periodMs: everyMs,
        waits: true,
        failed: 'the router may lack routes of other servers',
        run: learnAll,
      })
      await learnAll().catch((error: unknown) => {
        log.warn({ err: error }, 'the router will be updated later')
        looking?.wake(1000)
      })
    },
    async notifyTls(host) {
      await servers.ask(await servers.others(), { tls: host }, toldMs)
    },
    onTls(learn) {
      learnTls = learn
    },
    async leave() {
      await looking?.stop()
      await servers.stop()
    },
  }
}
