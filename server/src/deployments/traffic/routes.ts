/** The public names and ports of a service: its rows, and those that the running version has. */
import { keySql } from '../../clusters/local.ts'
import type { Policy } from '../../router/policy.ts'
import type { ExposedHost, Exposure } from '../../runtimes/ingress.ts'
import type { Workload, WorkloadPort } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import { reservedSql } from '../../store/reserved-hosts.ts'
import { openedPorts, type PublishedPort, readPublishedPorts } from './published-ports.ts'

/** One host name of a service and the port of its program that it is routed to. */
interface Host {
  host: string
  serviceId: string
  port: number
  protocol: 'HTTP' | 'GRPC'
  /** The service's own name or a domain of it, which has all its ports with a path; not the address of one port. */
  isMain: boolean
}

/** The public addresses of a service. Published ports count only if its version has them. */
export interface Outlets {
  hosts: readonly Host[]
  outside: readonly PublishedPort[]
}

const columns = `host, service_id as "serviceId", port, protocol,
  is_default or custom_domain_id is not null as "isMain"`

const readHosts = (db: Queryable, serviceId: string): Promise<Host[]> =>
  db.query<Host>(`select ${columns} from route where service_id = $1 order by host`, [serviceId])

/** For all services of a cluster. */
export const readHostsOf = (db: Queryable, clusterKey: string): Promise<Host[]> =>
  db.query<Host>(
    `select ${columns} from route join service_state s using (service_id) join node c on c.id = s.cluster_id
     where ${keySql('c')} = $1 order by host`,
    [clusterKey],
  )

export const readOutlets = async (db: Queryable, serviceId: string): Promise<Outlets> => {
  const [hosts, outside] = await Promise.all([readHosts(db, serviceId), readPublishedPorts(db, serviceId)])
  return { hosts, outside }
}

/** A version from before a port was changed keeps answering at its host: at its only web port, if it has one. */
const portAt = (port: number, ports: Workload['ports']): number => {
  if (ports.some(({ internalPort }) => internalPort === port)) return port
  const web = ports.filter(({ protocol, publiclyAccessible }) => publiclyAccessible && /^(HTTP|GRPC)$/.test(protocol))
  return web.length === 1 ? web[0]!.internalPort : port
}

const placeOf = ({ publicPath: path, publicPathRewrite: rewrite }: Partial<WorkloadPort>) => ({
  ...(path === undefined ? {} : { path }),
  ...(path === undefined || rewrite === undefined ? {} : { rewrite }),
})

/** A main host is routed to its own port, and below their prefixes to the other public ports that have any. */
const exposedHosts = ({ host, port, protocol, isMain }: Host, ports: Workload['ports']): ExposedHost[] => {
  const internalPort = portAt(port, ports)
  const own = ports.find((each) => each.internalPort === internalPort && each.protocol === protocol)
  const others = ports.filter(
    (each) =>
      isMain &&
      each !== own &&
      each.publiclyAccessible &&
      each.publicPath !== undefined &&
      each.publicPath !== own?.publicPath &&
      (each.protocol === 'HTTP' || each.protocol === 'GRPC'),
  )
  const at = (each: WorkloadPort) => ({ host, internalPort: each.internalPort, ...placeOf(each) })
  return [
    { host, internalPort, protocol, ...placeOf(own ?? {}) },
    ...others.map((each) => ({ ...at(each), protocol: each.protocol as Host['protocol'] })),
  ]
}

/** For a service that is published with a version that has these ports. */
export const exposureFor = ({ hosts, outside }: Outlets, ports: Workload['ports'], policy?: Policy): Exposure => ({
  hosts: hosts.flatMap((host) => exposedHosts(host, ports)),
  ...(policy === undefined ? {} : { policy }),
  ports: openedPorts(ports)
    .filter((port) => outside.some((each) => each.protocol === port.protocol && each.port === port.externalPort))
    .map(({ protocol, externalPort, internalPort }) => ({ protocol, externalPort, internalPort })),
})

/** The custom domains of a service that it may have. */
const readDomains = async (db: Queryable, serviceId: string): Promise<string[]> => {
  const sql = `select domain from custom_domain d where service_id = $1
    and ${reservedSql('d.domain', 'd.organization_id')} is null order by domain`
  return (await db.query<{ domain: string }>(sql, [serviceId])).map(({ domain }) => domain)
}

/** For a chart, which publishes its hosts itself. */
export const readChartExposure = async (db: Queryable, serviceId: string): Promise<Exposure> => ({
  hosts: [],
  ports: [],
  domains: await readDomains(db, serviceId),
})

export const readExposure = async (
  db: Queryable,
  serviceId: string,
  ports: Workload['ports'],
  policy?: Policy,
): Promise<Exposure> => exposureFor(await readOutlets(db, serviceId), ports, policy)
