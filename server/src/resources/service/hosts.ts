/**
 * Host names of services: `<service>-<environment>`, below `localhost`, the operator's domain or their cluster's; assigned once and kept
 * when names change.
 */
import { createHash } from 'node:crypto'
import { dnsLabel } from '../../deployments/desired/workload.ts'
import { routeDomains } from '../../facets/domains/rows.ts'
import type { PortProtocol } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import { clusterDomainSql } from '../../store/installation.ts'
import { isTakenByPlatformSql } from '../../store/reserved-hosts.ts'
import type { Port } from './parts.ts'

// Room for a leading `p65535-` and a trailing suffix within the 63 characters of a DNS label.
const maxLabel = 48

export const hostLabel = (service: string, environment: string, id: string): string => {
  const label = [dnsLabel(service), dnsLabel(environment)].filter((part) => part !== '').join('-')
  const short = label.slice(0, maxLabel).replace(/-+$/, '')
  return /^[a-z0-9]/.test(short) && !/^p\d+-/.test(short) ? short : `s-${short || id.slice(-8)}`.replace(/-+$/, '')
}

interface WantedRoute {
  host: string
  port: number
  protocol: PortProtocol
  isDefault: boolean
}

/** One host per public web port, and the label itself for the default one. Pure. */
export const routesOf = (label: string, ports: readonly Port[], domain = 'localhost'): WantedRoute[] =>
  ports
    .filter((port) => port.publicly_accessible && (port.protocol === 'HTTP' || port.protocol === 'GRPC'))
    .flatMap(({ internal_port: port, protocol, is_default: isDefault }) => [
      ...(isDefault ? [{ host: `${label}.${domain}`, port, protocol, isDefault: true }] : []),
      { host: `p${port}-${label}.${domain}`, port, protocol, isDefault: false },
    ])

const suffixOf = (id: string, attempt: number): string =>
  createHash('sha256').update(`${id} ${attempt}`).digest('hex').slice(0, 6)

const insert = `insert into route (host, organization_id, environment_id, service_id, port, protocol, is_default)
  select w.host, $2, $3, $4, w.port, w.protocol, w.is_default
  from json_to_recordset($1::json) as w (host text, port integer, protocol text, is_default boolean)
  where not ${isTakenByPlatformSql('w.host')}
  on conflict (host) do update
    set port = excluded.port, protocol = excluded.protocol, is_default = excluded.is_default
    where route.service_id = excluded.service_id
  returning host`

interface RoutedService {
  id: string
  name: string
  organizationId: string
  environmentId: string
}

const currentLabel = async (tx: Queryable, serviceId: string): Promise<string | null> => {
  const [row] = await tx.query<{ host: string }>(
    'select host from route where service_id = $1 and custom_domain_id is null order by is_default desc limit 1',
    [serviceId],
  )
  return row === undefined ? null : row.host.replace(/^p\d+-/, '').split('.')[0]!
}

/** A label that is already taken gets a suffix. */
const writeOwnRoutes = async (tx: Queryable, service: RoutedService, ports: readonly Port[]): Promise<void> => {
  const [found] = await tx.query<{ environment: string | null; domain: string }>(
    `select e.name as environment, ${clusterDomainSql('c')} as domain
     from node e left join node c on c.id = (e.spec ->> 'cluster_id')::uuid where e.id = $1`,
    [service.environmentId],
  )
  const { environment, domain } = found!
  const current = await currentLabel(tx, service.id)
  const wish = hostLabel(service.name, environment ?? '', service.id)
  for (let attempt = 0; ; attempt += 1) {
    const label = current ?? (attempt === 0 ? wish : `${wish}-${suffixOf(service.id, attempt)}`)
    const wanted = routesOf(label, ports, domain)
    await tx.query('delete from route where service_id = $1 and not host = any($2)', [
      service.id,
      wanted.map((route) => route.host),
    ])
    if (wanted.length === 0) return
    const rows = wanted.map(({ isDefault, ...route }) => ({ ...route, is_default: isDefault }))
    const place = [service.organizationId, service.environmentId, service.id]
    const written = await tx.query(insert, [JSON.stringify(rows), ...place])
    if (written.length === wanted.length || current !== null) return
  }
}

/** Updates the rows of `route` to match the ports, including those of custom domains. */
export const writeRoutes = async (tx: Queryable, service: RoutedService, ports: readonly Port[]): Promise<void> => {
  await writeOwnRoutes(tx, service, ports)
  await routeDomains(tx, service.id)
}
