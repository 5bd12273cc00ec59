/**
 * Ports of this machine by which services are reached without a host name. Promises that each belongs to one service,
 * and that a service keeps those of its deployed version until another version runs.
 */
import { keySql } from '../../clusters/local.ts'
import type { Workload, WorkloadPort } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'

export interface PublishedPort {
  serviceId: string
  protocol: 'TCP' | 'UDP'
  port: number
}

type OpenedPort = WorkloadPort & { protocol: PublishedPort['protocol']; externalPort: number }

const isOpened = (port: WorkloadPort): port is OpenedPort =>
  port.publiclyAccessible && (port.protocol === 'TCP' || port.protocol === 'UDP') && port.externalPort !== undefined

export const openedPorts = (ports: Workload['ports']): OpenedPort[] => ports.filter(isOpened)

const columns = 'service_id as "serviceId", protocol, port'

export const readPublishedPorts = (db: Queryable, serviceId: string): Promise<PublishedPort[]> =>
  db.query<PublishedPort>(`select ${columns} from outside_port where service_id = $1`, [serviceId])

export const readPublishedPortsOf = (db: Queryable, clusterKey: string): Promise<PublishedPort[]> =>
  db.query<PublishedPort>(
    `select ${columns} from outside_port o join node c on c.id = o.cluster_id where ${keySql('c')} = $1`,
    [clusterKey],
  )

/** Takes these ports for a service, unless another has them; returns the ones that it has then. */
export const claimPorts = async (
  db: Queryable,
  serviceId: string,
  ports: readonly Pick<PublishedPort, 'protocol' | 'port'>[],
): Promise<PublishedPort[]> =>
  ports.length === 0
    ? []
    : db.query<PublishedPort>(
        `insert into outside_port (protocol, port, service_id)
         select w.protocol, w.port, $1 from json_to_recordset($2::json) as w (protocol text, port integer)
         order by w.protocol, w.port on conflict (protocol, port) do update set service_id = excluded.service_id
           where outside_port.service_id = excluded.service_id
         returning ${columns}`,
        [serviceId, JSON.stringify(ports)],
      )

/** Releases ports that neither the configuration nor the deployed version of a service has. */
export const releaseUnusedPorts = (db: Queryable, serviceId: string): Promise<unknown> =>
  db.query(
    `delete from outside_port o
     using node n left join service_state s on s.service_id = n.id left join release r on r.id = s.current_release_id
     where o.service_id = $1 and n.id = $1
       and not coalesce(n.spec -> 'ports', '[]') @> jsonb_build_array(jsonb_build_object(
         'protocol', o.protocol, 'external_port', o.port, 'publicly_accessible', true))
       and not coalesce(r.workload -> 'ports', '[]') @> jsonb_build_array(jsonb_build_object(
         'protocol', o.protocol, 'externalPort', o.port))`,
    [serviceId],
  )
