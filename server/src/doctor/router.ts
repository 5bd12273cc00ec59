/** The router: whether its process answers, and whether its table has the hosts of all running services. */
import { failed, listed, topic, warning } from '../lib/finding.ts'
import { askHealth } from '../router/control/control-client.ts'
import { pathsOf } from '../router/control/protocol.ts'
import { type AnyRoute, isStreamRoute, type Router } from '../router/router.ts'
import { isRoutedSql } from '../store/cluster-rows.ts'
import type { Queryable } from '../store/database.ts'

export interface RouterFacts {
  /** Null: no router runs. */
  pid: number | null
  hosts: number
  /** Hosts of running services that its table lacks. */
  missing: readonly string[]
  logFile: string
}

/** Services that are being changed are left out: their hosts follow at the end. */
const wantedSql = `select r.host from service_state s join route r using (service_id)
  where s.desired = 'RUNNING' and s.running_state = 'RUNNING' and s.current_release_id is not null
    and r.created_at < clock_timestamp() - interval '2 minutes' and ${isRoutedSql('s.service_id')}
    and not exists (select from deployment d where d.environment_id = s.environment_id and d.state in ('QUEUED', 'RUNNING'))`

const hostsOf = (routes: readonly AnyRoute[]): Set<string> =>
  new Set(routes.flatMap((route) => (isStreamRoute(route) ? [] : [route.host])))

export const readRouter = async (
  database: Queryable,
  router: Pick<Router, 'routes'>,
  dataDir: string,
): Promise<RouterFacts> => {
  const { controlSocket, log: logFile } = pathsOf(dataDir)
  const health = await askHealth(controlSocket).catch(() => null)
  if (health === null) return { pid: null, hosts: 0, missing: [], logFile }
  const [routes, wanted] = await Promise.all([router.routes(), database.query<{ host: string }>(wantedSql)])
  const known = hostsOf(routes)
  const missing = wanted.map(({ host }) => host).filter((host) => !known.has(host))
  return { pid: health.pid, hosts: known.size, missing, logFile }
}

const routerTopic = topic('router', 'Router')

export const judgeRouter = ({ pid, hosts, missing, logFile }: RouterFacts) => {
  if (pid === null)
    return routerTopic.judge(
      [
        failed(
          'The router does not answer: no request reaches a service.',
          `Its log is ${logFile}. The server restarts it within seconds; if it does not, restart the server.`,
        ),
      ],
      '',
    )
  return routerTopic.judge(
    missing.length === 0
      ? []
      : [
          warning(
            `The router does not know ${missing.length} hosts of running services: ${listed(missing)}.`,
            'They follow within a minute; if they do not, look for the reconciler in the log, and deploy the services again.',
          ),
        ],
    `Process ${pid} serves ${hosts} hosts.`,
  )
}
