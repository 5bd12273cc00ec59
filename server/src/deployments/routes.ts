/** From host names and instances to what the router is told. Pure, but for reading the host names. */
import type { Route, Target } from '../router/router.ts'
import type { Instance } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'

/** One host name of a service and the port of its program that it leads to. */
export interface Host {
  host: string
  serviceId: string
  port: number
}

export const readHosts = (db: Queryable, serviceId: string): Promise<Host[]> =>
  db.query<Host>(`select host, service_id as "serviceId", port from route where service_id = $1 order by host`, [
    serviceId,
  ])

/** Routes of a service's hosts; each leads to the port it names on every instance that has it. */
export const routesFor = (hosts: readonly Host[], state: Route['state'], instances: readonly Instance[]): Route[] =>
  hosts.map(({ host, serviceId, port }) => ({
    host,
    serviceId,
    protocol: 'HTTP',
    state,
    targets: instances.flatMap((instance) => instance.endpoints[port] ?? []),
  }))

export const forgetRoutes: Route[] = []

/** Every address that requests may be under way to. */
export const targetsOf = (instances: readonly Instance[]): Target[] =>
  instances.flatMap((instance) => Object.values(instance.endpoints))
