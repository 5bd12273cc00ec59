/** From host names, outside ports and instances to what the router is told. Pure, but for reading and telling. */
import { keySql } from '../clusters/local.ts'
import {
  type AnyRoute,
  isStreamRoute,
  PortUnavailable,
  type Route,
  type Router,
  type StreamRoute,
  type Target,
} from '../router/router.ts'
import type { Instance, Workload } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'
import { type OutsidePort, openedPorts, readOutsidePorts } from './outside-ports.ts'

/** One host name of a service and the port of its program that it leads to. */
export interface Host {
  host: string
  serviceId: string
  port: number
  protocol: Route['protocol']
}

/** Where a service is reached. Of its outside ports, those count that its version has. */
export interface Outlets {
  hosts: readonly Host[]
  outside: readonly OutsidePort[]
}

const columns = 'host, service_id as "serviceId", port, protocol'

const readHosts = (db: Queryable, serviceId: string): Promise<Host[]> =>
  db.query<Host>(`select ${columns} from route where service_id = $1 order by host`, [serviceId])

/** Of all services of a cluster. */
export const readHostsOf = (db: Queryable, clusterKey: string): Promise<Host[]> =>
  db.query<Host>(
    `select ${columns} from route join service_state s using (service_id) join node c on c.id = s.cluster_id
     where ${keySql('c')} = $1 order by host`,
    [clusterKey],
  )

export const readOutlets = async (db: Queryable, serviceId: string): Promise<Outlets> => {
  const [hosts, outside] = await Promise.all([readHosts(db, serviceId), readOutsidePorts(db, serviceId)])
  return { hosts, outside }
}

const targetsAt = (instances: readonly Instance[], port: number): Target[] =>
  instances.flatMap((instance) => instance.endpoints[port] ?? [])

const streamsFor = (
  outside: readonly OutsidePort[],
  ports: Workload['ports'],
  state: StreamRoute['state'],
  instances: readonly Instance[],
): StreamRoute[] =>
  openedPorts(ports).flatMap(({ protocol, externalPort, internalPort }) =>
    outside
      .filter((each) => each.protocol === protocol && each.port === externalPort)
      .map(({ port, serviceId }) => ({
        port,
        serviceId,
        protocol,
        state,
        targets: targetsAt(instances, internalPort),
      })),
  )

/** A version from before a port was changed goes on answering at its host: where it has one web port, at that. */
const portAt = (port: number, ports: Workload['ports']): number => {
  if (ports.some(({ internalPort }) => internalPort === port)) return port
  const web = ports.filter(({ protocol, publiclyAccessible }) => publiclyAccessible && /^(HTTP|GRPC)$/.test(protocol))
  return web.length === 1 ? web[0]!.internalPort : port
}

/**
 * Routes of a service; each leads to the port it names on every instance that has it. `ports` are those of the version
 * that is routed to. A stopped service says so at its host names; its outside ports are closed.
 */
export const routesFor = (
  { hosts, outside }: Outlets,
  ports: Workload['ports'],
  state: Route['state'],
  instances: readonly Instance[],
): AnyRoute[] => [
  ...hosts.map(({ host, serviceId, port, protocol }) => ({
    host,
    serviceId,
    protocol,
    state,
    targets: targetsAt(instances, portAt(port, ports)),
  })),
  ...(state === 'stopped' ? [] : streamsFor(outside, ports, state, instances)),
]

export const forgetRoutes: AnyRoute[] = []

/** Every address that requests may be under way to. */
export const targetsOf = (instances: readonly Instance[]): Target[] =>
  instances.flatMap((instance) => Object.values(instance.endpoints))

/**
 * Tells the router all routes of a service but those whose ports cannot be had, and answers what was said of those:
 * for when the rest must not wait for them.
 */
export const routeWhatCan = async (
  router: Router,
  serviceId: string,
  routes: readonly AnyRoute[],
): Promise<PortUnavailable[]> => {
  const refused: PortUnavailable[] = []
  for (let rest = [...routes]; ; ) {
    try {
      await router.setService(serviceId, rest)
      return refused
    } catch (error) {
      if (!(error instanceof PortUnavailable)) throw error
      const left = rest.filter((route) => !isStreamRoute(route) || route.port !== error.port)
      if (left.length === rest.length) throw error
      refused.push(error)
      rest = left
    }
  }
}
