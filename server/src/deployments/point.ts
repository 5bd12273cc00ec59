/** Where traffic goes during a deployment: pointing the router at instances, and waiting for what is under way. */
import { DeploymentError } from '../lib/errors.ts'
import { type AnyRoute, isStreamRoute, PortUnavailable, type Route } from '../router/router.ts'
import type { Instance, Workload } from '../runtimes/runtime.ts'
import { dropPorts, holdPorts, openedPorts } from './outside-ports.ts'
import { readOutlets, routesFor, routeWhatCan, targetsOf } from './routes.ts'
import type { ServiceRun } from './service-run.ts'

export const drainTimeoutMs = 30_000

type Version = Pick<Workload, 'ports'>

const routesOf = async (
  { parts, service }: ServiceRun,
  { ports }: Version,
  state: Route['state'],
  instances: readonly Instance[],
): Promise<AnyRoute[]> => routesFor(await readOutlets(parts.database, service.id), ports, state, instances)

/** Traffic goes to these instances of a version; fails when the router cannot open one of its ports. */
export const point = async (
  run: ServiceRun,
  version: Version,
  state: 'up' | 'starting',
  instances: readonly Instance[],
): Promise<AnyRoute[]> => {
  const routes = await routesOf(run, version, state, instances)
  await run.cluster.ingress.setService(run.service.id, routes).catch((error: unknown) => {
    if (!(error instanceof PortUnavailable)) throw error
    const sentence = `${error.message[0]!.toUpperCase()}${error.message.slice(1)}.`
    throw new DeploymentError('port_unavailable', sentence, { cause: error })
  })
  return routes
}

/** The same for a version that served before: what it can have of its ports is enough. */
export const pointBack = async (run: ServiceRun, version: Version, instances: readonly Instance[]): Promise<void> => {
  const { parts, cluster, service } = run
  const routes = await routesOf(run, version, 'up', instances)
  for (const { message } of await routeWhatCan(cluster.ingress, service.id, routes))
    parts.log.warn({ serviceId: service.id }, message)
}

export const pointNowhere = async (run: ServiceRun): Promise<void> => {
  await run.cluster.ingress.setService(run.service.id, await routesOf(run, { ports: [] }, 'stopped', []))
}

/** An older release may come back to ports that were given up since. */
export const takePorts = async (run: ServiceRun, { ports }: Version): Promise<void> => {
  const { parts, service, log } = run
  const wanted = openedPorts(ports).map(({ protocol, externalPort: port }) => ({ protocol, port }))
  const held = await holdPorts(parts.database, service.id, wanted)
  const isHeld = (one: (typeof wanted)[number]) => held.some((h) => h.protocol === one.protocol && h.port === one.port)
  for (const one of wanted)
    if (!isHeld(one))
      log.line('switch', `The ${one.protocol} port ${one.port} now belongs to another service.`, 'error')
}

export const leavePorts = ({ parts, service }: ServiceRun): Promise<unknown> => dropPorts(parts.database, service.id)

/** One line for each address that leads to the new version now. */
export const tellRoutes = ({ cluster: { ingress }, log }: ServiceRun, routes: readonly AnyRoute[]): void => {
  for (const route of routes)
    log.line(
      'switch',
      isStreamRoute(route)
        ? `${route.protocol} traffic to ${ingress.address(route.port)} now goes to the new version.`
        : `Requests to ${ingress.url(route.host)} now go to the new version.`,
    )
}

/** Waits for what is under way to instances of other revisions than `keep`. */
export const drainOthers = async (run: ServiceRun, keep: string | null, signal: AbortSignal): Promise<void> => {
  const { runtime, ingress } = run.cluster
  const others = (await runtime.observe([run.ref])).filter((instance) => instance.revision !== keep)
  if (others.length === 0) return
  const { remaining } = await ingress.drain(targetsOf(others), drainTimeoutMs, signal)
  if (remaining > 0)
    run.log.line('drain', `${remaining} requests or connections to the old version were still open after 30 s.`)
}
