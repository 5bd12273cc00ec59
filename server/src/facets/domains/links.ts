/**
 * Public addresses of services: one link per public port, and one per custom domain. TCP and UDP ports have the schemes
 * `tcp` and `udp`.
 */
import Type from 'typebox'
import { nodeInPath, type Operation, type Owner, operation, reading } from '../../api/operations/operation.ts'
import { Flag, Nullable, OneOf, Results, Text, Uuid, Whole } from '../../api/operations/schema.ts'
import { readClusterId } from '../../clusters/refs.ts'
import { type Kind, serviceTypes, typeOf } from '../../kinds.ts'
import { waitAtMost } from '../../lib/concurrency/waiting.ts'
import type { Ingress } from '../../runtimes/ingress.ts'
import { isRoutedSql } from '../../store/cluster-rows.ts'
import { type Facet, itemOf, ownerOf } from '../facet.ts'
import { Certificate } from './custom-domain.ts'
import { certificateSql, type Certificate as HostCertificate } from './rows.ts'

const Link = Type.Object({
  service_id: Uuid(),
  service_type: OneOf(serviceTypes),
  url: Text(2048),
  internal_port: Whole(1),
  external_port: Whole(1),
  is_qovery_domain: Flag(),
  is_platform_domain: Flag(),
  is_default: Flag(),
  certificate: Nullable(Certificate),
})

interface Row {
  /** Null for a port without one. */
  host: string | null
  protocol: string
  port: number
  isDefault: boolean
  isPlatform: boolean
  serviceId: string
  kind: Kind
  externalPort: number | null
  certificate: HostCertificate | null
  /** Whether our router serves it. */
  isRouted: boolean
}

const readSql = (ofRoute: string, ofNode: string): string =>
  `select l.* from (
     select r.host, r.protocol, r.port, r.is_default or r.custom_domain_id is not null as "isDefault",
       r.custom_domain_id is null as "isPlatform", r.service_id as "serviceId", n.kind,
       (select (p ->> 'external_port')::int from jsonb_array_elements(n.spec -> 'ports') p
        where (p ->> 'internal_port')::int = r.port limit 1) as "externalPort", ${certificateSql('r.host')} as certificate, ${isRoutedSql('n.id')} as "isRouted", n.created_at, r.is_default
     from route r join node n on n.id = r.service_id where ${ofRoute} and r.host not like '*.%'
     union all
     select null, p ->> 'protocol', (p ->> 'internal_port')::int, false, true, n.id, n.kind,
       (p ->> 'external_port')::int, null, true, n.created_at, false
     from node n, jsonb_array_elements(n.spec -> 'ports') p
     where ${ofNode} and n.name_scope = 'service' and p -> 'publicly_accessible' = 'true'
       and p ->> 'protocol' in ('TCP', 'UDP')
   ) l order by l.created_at, l.is_default desc, l.port, l.host`

const ofService = readSql('r.service_id = $1', 'n.id = $1')
const ofEnvironment = readSql('r.environment_id = $1 and n.parent_id = $1', 'n.parent_id = $1')

/** Null for a port whose load balancer has no address yet. */
const urlOf = ({ address, url }: Ingress, { host, protocol, externalPort }: Row): string | null => {
  if (host !== null) return url(host)
  const found = address(externalPort!)
  return found === null ? null : `${protocol.toLowerCase()}://${found}`
}

const lookMs = 3000

const toLink = (url: string, row: Row, hasTls: boolean) => ({
  service_id: row.serviceId,
  service_type: typeOf(row.kind),
  url,
  internal_port: row.port,
  external_port: row.externalPort ?? row.port,
  is_qovery_domain: row.isPlatform,
  is_platform_domain: row.isPlatform,
  is_default: row.isDefault,
  certificate: hasTls && row.isRouted ? row.certificate : null,
})

const links = (id: string, path: string, tag: string, summary: string, owner: Owner, sql: string): Operation =>
  operation({
    id,
    ...reading,
    path,
    tag,
    summary,
    area: 'projects',
    owner,
    answer: Results(Link),
    async run(context) {
      const { db, node, parts } = context
      const rows = await db.query<Row>(sql, [node.id])
      const clusterId = await readClusterId(db, node.kind === 'environment' ? node.id : node.parentId!)
      if (clusterId === null) return { results: [] }
      const { ingress } = await parts.clusters.of(clusterId)
      // A cluster itself reports the ports that it has opened.
      if (rows.some(({ host }) => host === null)) {
        const environmentId = node.kind === 'environment' ? node.id : node.parentId!
        const services = [...new Set(rows.map(({ serviceId }) => serviceId))]
        const looking = ingress.look(services.map((serviceId) => ({ environmentId, serviceId }))).catch(() => {})
        await waitAtMost(parts.clock, lookMs, looking)
      }
      const hasTls = parts.settings.routerTlsPort !== undefined
      const results = rows.flatMap((row) => {
        const url = urlOf(ingress, row)
        return url === null ? [] : [toLink(url, row, hasTls)]
      })
      return { results }
    },
  })

export const serviceLinks: Facet = (self) => [
  links(
    `list${self.noun}Links`,
    `${itemOf(self)}/link`,
    `${self.noun} Main Calls`,
    `List the public addresses of ${self.nounWithArticle}`,
    ownerOf(self),
    ofService,
  ),
]

export const environmentLinks: Operation = links(
  'listEnvironmentServicesLinks',
  '/environment/{environmentId}/link',
  'Environment Main Calls',
  'List the public addresses of all services of an environment',
  nodeInPath('environment', 'environmentId'),
  ofEnvironment,
)
