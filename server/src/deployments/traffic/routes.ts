/** By which names and ports the world reaches a service: its rows, and what of them the version that runs has. */
import { keySql } from '../../clusters/local.ts'
import type { Exposure } from '../../runtimes/ingress.ts'
import type { Workload } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import { openedPorts, type PublishedPort, readPublishedPorts } from './published-ports.ts'

/** One host name of a service and the port of its program that it leads to. */
export interface Host {
  host: string
  serviceId: string
  port: number
  protocol: 'HTTP' | 'GRPC'
}

/** Where a service is reached. Of its published ports, those count that its version has. */
export interface Outlets {
  hosts: readonly Host[]
  outside: readonly PublishedPort[]
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
  const [hosts, outside] = await Promise.all([readHosts(db, serviceId), readPublishedPorts(db, serviceId)])
  return { hosts, outside }
}

/** A version from before a port was changed goes on answering at its host: where it has one web port, at that. */
const portAt = (port: number, ports: Workload['ports']): number => {
  if (ports.some(({ internalPort }) => internalPort === port)) return port
  const web = ports.filter(({ protocol, publiclyAccessible }) => publiclyAccessible && /^(HTTP|GRPC)$/.test(protocol))
  return web.length === 1 ? web[0]!.internalPort : port
}

/** Of a service that is to be published with a version that has these ports. */
export const exposureFor = ({ hosts, outside }: Outlets, ports: Workload['ports']): Exposure => ({
  hosts: hosts.map(({ host, port, protocol }) => ({ host, internalPort: portAt(port, ports), protocol })),
  ports: openedPorts(ports)
    .filter((port) => outside.some((each) => each.protocol === port.protocol && each.port === port.externalPort))
    .map(({ protocol, externalPort, internalPort }) => ({ protocol, externalPort, internalPort })),
})

export const readExposure = async (db: Queryable, serviceId: string, ports: Workload['ports']): Promise<Exposure> =>
  exposureFor(await readOutlets(db, serviceId), ports)
