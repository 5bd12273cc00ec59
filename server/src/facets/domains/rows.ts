/** Custom domains as rows: which names are valid, which service has one, and the routes that follow from it. */
import { conflict, invalidField } from '../../lib/errors.ts'
import { hostName } from '../../lib/net/domain-name.ts'
import { isWildcard, withoutStar } from '../../router/table/wildcard.ts'
import { isRoutedSql } from '../../store/cluster-rows.ts'
import { type Queryable, sqlState } from '../../store/database.ts'
import { reservedSql } from '../../store/reserved-hosts.ts'
import { timestampSql } from '../../store/tree.ts'

export interface CustomDomain {
  id: string
  created_at: string
  updated_at: string
  domain: string
  generate_certificate: boolean
  use_cdn: boolean
  /** The target for a CNAME of the domain; null while the service has no public port. */
  validation_domain: string | null
  certificate: Certificate | null
  /** Whether our router serves it, and so has its certificate. */
  is_routed: boolean
  /** Why the organization may not have it any more: it is not served; null if it may. */
  refusal: string | null
}

/** State of a host's certificate. */
export interface Certificate {
  state: (typeof certificateStates)[number]
  expires_at: string | null
  /** Why there is none, or no newer one. */
  reason: string | null
  /** When the next one is ordered, or this one again. */
  next_attempt_at: string | null
  source: (typeof certificateSources)[number]
}

export const certificateStates = ['WAITING', 'ORDERING', 'ISSUED', 'EXPIRED'] as const
export const certificateSources = ['ACME', 'UPLOADED'] as const

const orderedSql = `jsonb_build_object('source', 'ACME',
    'state', case when t.chain is null then case when t.order_url is null then 'WAITING' else 'ORDERING' end
      when t.not_after > clock_timestamp() then 'ISSUED' else 'EXPIRED' end,
    'expires_at', ${timestampSql('t.not_after')}, 'reason', t.problem ->> 'message',
    'next_attempt_at', case when t.next_at > '-infinity' then ${timestampSql('t.next_at')} end)`

const uploadedSql = `jsonb_build_object('source', 'UPLOADED',
    'state', case when u.not_after > clock_timestamp() then 'ISSUED' else 'EXPIRED' end,
    'expires_at', ${timestampSql('u.not_after')}, 'next_attempt_at', null,
    'reason', case when u.not_after <= clock_timestamp() then 'The uploaded certificate has expired: upload the next one.'
      when u.not_after - clock_timestamp() < least(interval '14 days', (u.not_after - u.not_before) / 3)
      then 'The uploaded certificate expires soon: upload the next one.' end)`

/** SQL for the certificate of a host, or of its wildcard, as JSON: the one that is served; null if none is wanted. */
export const certificateSql = (host: string): string => `(select found from (
    select ${uploadedSql} as found, case when u.not_after > clock_timestamp() then 0 else 2 end as rank, true as is_own
      from uploaded_certificate u where u.host = ${host}
    union all select ${orderedSql}, case when t.chain is not null and t.not_after > clock_timestamp() then 1 else 3 end,
      t.host = ${host} from certificate t where t.host in (${host}, '*.' || substr(${host}, strpos(${host}, '.') + 1))
  ) known order by rank, is_own desc limit 1)`

const reservedFor = {
  platform: 'must not be a name that this server assigns to services or uses itself',
  operator:
    'must not be a name that belongs to the operator of this server, or is above or below one: only its first organization may use it',
}

type Domain = Omit<CustomDomain, 'refusal'> & { reserved: keyof typeof reservedFor | null }

const validationSql = `(select r.host from route r where r.service_id = d.service_id
    and r.is_default and r.custom_domain_id is null)`

const columns = `d.id, ${timestampSql('d.created_at')} as created_at, ${timestampSql('d.updated_at')} as updated_at,
  d.domain, d.generate_certificate, d.use_cdn, ${validationSql} as validation_domain,
  ${certificateSql('d.domain')} as certificate, ${isRoutedSql('d.service_id')} as is_routed,
  ${reservedSql('d.domain', 'd.organization_id')} as reserved`

export const readDomains = async (
  db: Queryable,
  serviceId: string,
  id: string | null = null,
): Promise<CustomDomain[]> => {
  const rows = await db.query<Domain>(
    `select ${columns} from custom_domain d where d.service_id = $1 and ($2::uuid is null or d.id = $2)
     order by d.created_at, d.id`,
    [serviceId, id],
  )
  return rows.map(({ reserved, ...row }) => ({
    ...row,
    refusal: reserved === null ? null : `The domain is not served: it ${reservedFor[reserved]}.`,
  }))
}

export type DomainToCheck = Pick<CustomDomain, 'domain' | 'use_cdn' | 'is_routed' | 'validation_domain' | 'refusal'>

const toCheckSql = `select d.domain, d.use_cdn, ${validationSql} as validation_domain,
  ${isRoutedSql('d.service_id')} as is_routed, null as refusal
  from custom_domain d where ${reservedSql('d.domain', 'd.organization_id')} is null order by d.domain limit $1`

/** Domains of all organizations, without those that are not served: for the operator. */
export const readDomainsToCheck = (db: Queryable, most: number): Promise<DomainToCheck[]> =>
  db.query<DomainToCheck>(toCheckSql, [most])

const label = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/
const field = '/domain'

/** `zones`: below which wildcards are possible. */
interface WildcardSettings {
  acme?: { dns?: { zones: readonly string[] } | undefined } | undefined
}

/** A wildcard includes all names of its level, so the operator configures where that is possible. */
const refuseWildcard = (wildcard: string, { acme }: WildcardSettings): void => {
  const zones = acme?.dns?.zones
  if (zones === undefined)
    throw invalidField(
      field,
      'must be a single host name: wildcards need a DNS provider, which the operator of this server sets up (SLIPWAY_ACME_DNS_PROVIDER)',
    )
  const name = withoutStar(wildcard)
  if (!zones.some((zone) => name === zone || name.endsWith(`.${zone}`)))
    throw invalidField(
      field,
      'must be a single host name: the operator of this server has not allowed wildcards below it (SLIPWAY_ACME_DNS_ZONES)',
    )
}

/** The normalized form of a domain; throws a 400 for names that cannot be used. */
export const completeDomain = (sent: string, settings: WildcardSettings): string => {
  const name = sent.trim()
  const domain = isWildcard(name) ? `*.${hostName(name.slice(2))}` : hostName(name)
  const labels = withoutStar(domain).split('.')
  const isName = domain.length <= 253 && labels.length > 1 && labels.every((one) => label.test(one))
  if (!isName || /^\d+$/.test(labels.at(-1)!))
    throw invalidField(field, 'must be a host name, such as www.shop.example')
  // Such names belong to the platform: those assigned to new services must never be taken.
  if (domain.split('.').length === 2 && labels.at(-1) === 'localhost')
    throw invalidField(
      field,
      'must have at least three labels: names directly under localhost are assigned to services',
    )
  if (isWildcard(domain)) refuseWildcard(domain, settings)
  return domain
}

const refuseReserved = async (tx: Queryable, organizationId: string, domain: string): Promise<void> => {
  const [row] = await tx.query<Pick<Domain, 'reserved'>>(`select ${reservedSql('$1', '$2')} as reserved`, [
    domain,
    organizationId,
  ])
  if (row!.reserved !== null) throw invalidField(field, reservedFor[row!.reserved])
}

/** A wildcard and the names that it covers belong to one organization. */
const refuseOverlap = async (tx: Queryable, organizationId: string, domain: string): Promise<void> => {
  await tx.query(`select pg_advisory_xact_lock(hashtext('custom_domain'))`)
  const own = isWildcard(domain) ? 'd.domain' : '$2'
  const [found] = await tx.query(
    `select 1 from custom_domain d where d.organization_id <> $1
       and ('*.' || substr(${own}, strpos(${own}, '.') + 1)) = ${isWildcard(domain) ? '$2' : 'd.domain'} limit 1`,
    [organizationId, domain],
  )
  if (found !== undefined) throw conflict('domain_taken', 'This domain belongs to a wildcard, or has names, of others.')
}

const orTaken = (error: unknown): never => {
  if (sqlState(error) === '23505') throw conflict('domain_taken', 'This domain is already used by a service.')
  throw error
}

export type DomainRequest = {
  domain: string
  generate_certificate: boolean
  use_cdn: boolean
}

export const insertDomain = async (
  tx: Queryable,
  ids: { id: string; organizationId: string; serviceId: string },
  domainRequest: DomainRequest,
): Promise<void> => {
  const values = [
    ids.id,
    ids.organizationId,
    ids.serviceId,
    domainRequest.domain,
    domainRequest.generate_certificate,
    domainRequest.use_cdn,
  ]
  await refuseReserved(tx, ids.organizationId, domainRequest.domain)
  await refuseOverlap(tx, ids.organizationId, domainRequest.domain)
  const sql = `insert into custom_domain (id, organization_id, service_id, domain, generate_certificate, use_cdn)
    values ($1, $2, $3, $4, $5, $6)`
  await tx.query(sql, values).catch(orTaken)
}

export const updateDomain = async (
  tx: Queryable,
  { id, organizationId }: { id: string; organizationId: string },
  domainRequest: DomainRequest,
): Promise<void> => {
  await refuseReserved(tx, organizationId, domainRequest.domain)
  await refuseOverlap(tx, organizationId, domainRequest.domain)
  const sql = `update custom_domain set domain = $2, generate_certificate = $3, use_cdn = $4,
    updated_at = clock_timestamp() where id = $1`
  await tx
    .query(sql, [id, domainRequest.domain, domainRequest.generate_certificate, domainRequest.use_cdn])
    .catch(orTaken)
  // It was checked for the former name. Deleted after the domain itself is locked, in the same order as an upload.
  await tx.query('delete from uploaded_certificate where id = $1 and host <> $2', [id, domainRequest.domain])
}

/** Points the routes of a service's custom domains at its default public port; removes them if it has none. */
export const routeDomains = async (tx: Queryable, serviceId: string): Promise<void> => {
  await tx.query('delete from route where service_id = $1 and custom_domain_id is not null', [serviceId])
  await tx.query(
    `insert into route (host, organization_id, environment_id, service_id, port, protocol, is_default, custom_domain_id)
     select d.domain, r.organization_id, r.environment_id, r.service_id, r.port, r.protocol, false, d.id
     from custom_domain d join route r on r.service_id = d.service_id and r.is_default and r.custom_domain_id is null
     where d.service_id = $1 and ${reservedSql('d.domain', 'd.organization_id')} is null`,
    [serviceId],
  )
}

/** The same, and notifies the router at the end of the transaction. */
export const routeDomainsNow = async (tx: Queryable, serviceId: string): Promise<void> => {
  await routeDomains(tx, serviceId)
  await tx.query(`select pg_notify('slipway_routes', $1)`, [serviceId])
}
