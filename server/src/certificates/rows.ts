/** Certificates as rows: which hosts need one, what is due, and the results. */
import { isRoutedSql } from '../store/cluster-rows.ts'
import type { Database, Queryable } from '../store/database.ts'
import { installationId } from '../store/installation.ts'
import type { SealedPlace } from '../store/keys/seal.ts'
import { holdLease, type Leased, type LeaseTable, leaseEnd, leaseMs } from '../work/lease.ts'
import type { Challenge } from './authority.ts'
import { challengeName } from './dns/challenges.ts'
import { noteRecord } from './dns/rows.ts'

/** The certificate of a host, while it is leased. */
export interface Wanted extends Leased {
  host: string
  /** Null: the installation's own. */
  organizationId: string | null
  /** Whether one is served already. */
  isServed: boolean
  failures: number
  orderUrl: string | null
  orderedAt: Date | null
  /** Sealed. */
  orderKey: string | null
  challenge: Challenge | null
}

export interface Problem {
  code: 'dns' | 'provider' | 'limit' | 'silent' | 'limited' | 'refused' | 'certificate'
  message: string
}

const columns = `id, fence, host, organization_id as "organizationId", chain is not null as "isServed", failures,
  order_url as "orderUrl", ordered_at as "orderedAt", order_key as "orderKey", challenge`

export const certificateLeases: LeaseTable<Wanted> = {
  name: 'certificate',
  open: `lease_until > '-infinity'`,
  columns,
}

/** Orders of one organization at once. */
const perOrganization = 2

const claimSql = `
  with busy as (
    select organization_id, count(*) as orders from certificate where lease_until >= clock_timestamp() group by 1
  ), candidate as (
    select c.id, c.next_at, coalesce(b.orders, 0) + row_number() over (partition by c.organization_id order by c.next_at, c.id) as turn
    from certificate c left join busy b on b.organization_id is not distinct from c.organization_id
    where c.next_at <= $4 and c.lease_until < clock_timestamp()
  ), chosen as (
    select c.id from candidate x join certificate c using (id)
    where x.turn <= ${perOrganization} and c.lease_until < clock_timestamp()
    order by x.turn, x.next_at limit $3 for update of c skip locked
  )
  update certificate c set worker = $1, fence = fence + 1, lease_until = ${leaseEnd(2)}
  where c.id in (select id from chosen)
  returning ${columns}`

// A row under a lease becomes due when the lease expires.
const nextSql = `select (1000 * extract(epoch from least(
    (select min(next_at) from certificate where next_at > $1 and next_at < 'infinity') - $1,
    (select min(lease_until) from certificate where next_at <= $1 and lease_until >= clock_timestamp()) - clock_timestamp()
  )))::float8 as wait`

/** Claims rows that are due; `nextMs`: until the next one is, null if none waits. */
export const claimDue = async (
  database: Database,
  worker: string,
  room: number,
  now: Date,
): Promise<{ claimed: Wanted[]; nextMs: number | null }> => {
  const claimed = await database.query<Wanted>(claimSql, [worker, leaseMs, room, now])
  const [next] = await database.query<{ wait: number | null }>(nextSql, [now])
  return { claimed, nextMs: next!.wait }
}

/** The owner of the key that seals secrets of an organization, or of the installation. */
export const sealerOf = ({ organizationId }: Pick<Wanted, 'organizationId'>): string => organizationId ?? installationId

export const keyPlace = (id: string, column: 'order_key' | 'chain_key'): SealedPlace => ({
  table: 'certificate',
  row: id,
  column,
})

/** By the id of a custom domain. */
export const uploadedKeyPlace = (id: string): SealedPlace => ({
  table: 'uploaded_certificate',
  row: id,
  column: 'chain_key',
})

const wildcardSql = (host: string): string => `'*.' || substr(${host}, strpos(${host}, '.') + 1)`

const isServedSql = (host: string): string =>
  `exists (select from certificate o where o.host = ${host} and o.chain is not null)`

// Names of the platform have one wildcard for each level ($3) or one certificate each. While that is being turned on
// or off, the former ones are served until the new ones exist.
const hostsSql = `
  with named as (
    select r.host, r.organization_id, r.service_id, r.custom_domain_id
    from route r join custom_domain d on d.id = r.custom_domain_id where d.generate_certificate
      and ${isRoutedSql('r.service_id')}
  ), own as (
    select r.host, r.organization_id, r.service_id, r.is_default or not exists (
        select from route o where o.service_id = r.service_id and o.port = r.port and o.is_default) as is_alone
    from route r where r.custom_domain_id is null and $1::text is not null and right(r.host, length($1) + 1) = '.' || $1
      and ${isRoutedSql('r.service_id')}
    union all select $2::text, null, null, true where $2::text is not null
  ), single as (
    select host, organization_id, service_id from own
    where is_alone and not ($3 and right(host, length($1) + 1) = '.' || $1)
  ), wanted as (
    select * from named
    union all select host, organization_id, service_id, null from single
    union all select distinct ${wildcardSql('host')}, null::uuid, null::uuid, null::uuid from own
      where $3 and right(host, length($1) + 1) = '.' || $1
  ), kept as (
    select c.id from certificate c where c.chain is not null and c.custom_domain_id is null and (
      exists (select from own o join wanted w on w.host = ${wildcardSql('o.host')} where o.host = c.host
        and o.service_id is not distinct from c.service_id and not ${isServedSql('w.host')})
      or exists (select from single s where ${wildcardSql('s.host')} = c.host and not ${isServedSql('s.host')}))
  ), gone as (
    delete from certificate c where c.id not in (select id from kept) and not exists (
      select from wanted w where w.host = c.host
      and w.service_id is not distinct from c.service_id and w.custom_domain_id is not distinct from c.custom_domain_id)
    returning c.host
  )`

const missingSql = `${hostsSql}
  insert into certificate (host, organization_id, service_id, custom_domain_id, next_at, failures)
  select w.host, w.organization_id, w.service_id, w.custom_domain_id, coalesce(o.not_before, '-infinity'), coalesce(o.failures, 0)
  from wanted w left join lateral (select not_before, failures from certificate_order where host = w.host
    order by created_at desc limit 1) o on true
  where not exists (select from certificate c where c.host = w.host)
  on conflict do nothing`

/**
 * Keeps rows for exactly the hosts that need a certificate: a host with a new owner starts over. `hasDns`: whether
 * challenges can be answered by DNS records, so that wildcards are possible.
 */
export const followHosts = async (
  database: Database,
  { domain, apiHost, hasDns }: { domain: string | undefined; apiHost: string | undefined; hasDns: boolean },
): Promise<void> => {
  const values = [domain ?? null, apiHost ?? null, hasDns && domain !== undefined]
  await database.query(`${hostsSql} select count(*) from gone`, values)
  await database.query(missingSql, values)
}

const rememberDays = 8

/** Orders are kept for as long as limits count them. */
export const forgetOrders = async (database: Queryable, now: Date): Promise<void> => {
  await database.query(`delete from certificate_order where created_at < $1::timestamptz - $2 * interval '1 day'`, [
    now,
    rememberDays,
  ])
}

/** Hosts of an organization that have a certificate or an order. */
export const countCertificates = async (db: Queryable, organizationId: string): Promise<number> => {
  const [row] = await db.query<{ count: number }>(
    `select count(*)::int as count from (
       select host from certificate where organization_id = $1 and (chain is not null or order_url is not null)
       union select host from uploaded_certificate where organization_id = $1) hosts`,
    [organizationId],
  )
  return row!.count
}

interface Usage {
  /** Hosts of the organization that have a certificate or an order. */
  certificates: number
  /** Its orders of the last day. */
  orders: number
}

export const readUsage = async (db: Queryable, wanted: Wanted, now: Date): Promise<Usage> => {
  const [row] = await db.query<Usage>(
    `select (select count(*)::int from certificate c where c.organization_id is not distinct from $1 and c.id <> $2
         and (c.chain is not null or c.order_url is not null)) as certificates,
       (select count(*)::int from certificate_order o where o.organization_id is not distinct from $1
         and o.created_at > $3::timestamptz - interval '1 day') as orders`,
    [wanted.organizationId, wanted.id, now],
  )
  return row!
}

const hold = (database: Database, wanted: Wanted, sql: string, values: readonly unknown[]): Promise<unknown> =>
  holdLease(database, certificateLeases, wanted, (tx) => tx.query(sql, [wanted.id, ...values]))

/** Before the CA is asked, so that an order counts whatever the result. */
export const noteOrdering = async (
  database: Database,
  { host, organizationId }: Wanted,
  now: Date,
): Promise<string> => {
  const [row] = await database.query<{ id: string }>(
    `insert into certificate_order (host, organization_id, created_at, not_before)
     values ($1, $2, $3, $3::timestamptz + interval '1 minute') returning id`,
    [host, organizationId, now],
  )
  return row!.id
}

export const forgetOrder = async (database: Database, id: string): Promise<void> => {
  await database.query('delete from certificate_order where id = $1', [id])
}

export const noteOrder = (database: Database, wanted: Wanted, url: string, now: Date): Promise<unknown> =>
  hold(
    database,
    wanted,
    'update certificate set order_url = $2, ordered_at = $3, order_key = null, challenge = null where id = $1',
    [url, now],
  )

export const noteKey = (database: Database, wanted: Wanted, sealed: string): Promise<unknown> =>
  hold(database, wanted, 'update certificate set order_key = $2 where id = $1', [sealed])

export const noteChallenge = (database: Database, wanted: Wanted, challenge: Challenge): Promise<void> =>
  holdLease(database, certificateLeases, wanted, async (tx) => {
    await tx.query('update certificate set challenge = $2 where id = $1', [wanted.id, JSON.stringify(challenge)])
    const { kind, answer: value } = challenge
    if (kind === 'dns-01') await noteRecord(tx, { name: challengeName(wanted.host), value })
  })

interface Issued {
  chain: string
  sealedKey: string
  notBefore: Date
  notAfter: Date
  nextAt: Date
}

const withoutOrder = 'order_url = null, ordered_at = null, order_key = null, challenge = null'

export const noteIssued = (database: Database, wanted: Wanted, issued: Issued): Promise<unknown> =>
  hold(
    database,
    wanted,
    `update certificate set chain = $2, chain_key = $3, not_before = $4, not_after = $5, next_at = $6, problem = null,
       failures = 0, lease_until = '-infinity', ${withoutOrder} where id = $1`,
    [issued.chain, issued.sealedKey, issued.notBefore, issued.notAfter, issued.nextAt],
  )

interface Failed {
  problem: Problem
  nextAt: Date
  failures: number
  /** The order is of no further use. */
  isOver: boolean
}

export const noteFailed = async (database: Database, wanted: Wanted, failed: Failed): Promise<void> => {
  const { problem, nextAt, failures, isOver } = failed
  await holdLease(database, certificateLeases, wanted, async (tx) => {
    await tx.query(
      `update certificate set problem = $2, next_at = $3, failures = $4, lease_until = '-infinity'
         ${isOver ? `, ${withoutOrder}` : ''} where id = $1`,
      [wanted.id, JSON.stringify(problem), nextAt, failures],
    )
    await tx.query(
      `update certificate_order set not_before = $2, failures = $3 where id = (select id from certificate_order where host = $1
         order by created_at desc limit 1)`,
      [wanted.host, nextAt, failures],
    )
  })
}

/** Uploaded certificates, for hosts that are routed to the services of their domains. */
const uploadedSql = `select u.id, u.host, u.organization_id, u.chain, u.chain_key, u.not_after
  from uploaded_certificate u join route r on r.custom_domain_id = u.id and r.host = u.host`

/** The certificate that routers serve for a host; keys are sealed. */
export interface Served {
  /** Where the key is sealed: a row of this table. */
  table: 'certificate' | 'uploaded_certificate'
  id: string
  host: string
  organizationId: string | null
  chain: string | null
  chainKey: string | null
  challenge: Challenge | null
}

// An uploaded certificate takes precedence over an ordered one, unless only the uploaded one has expired.
const servedSql = `with uploaded as (${uploadedSql}), both_of as (
    select coalesce(c.host, u.host) as host, c.id as own_id, c.organization_id as own_organization, c.chain as own_chain,
      c.chain_key as own_key, c.challenge, u.id, u.organization_id, u.chain, u.chain_key,
      u.id is not null and (u.not_after > clock_timestamp() or c.chain is null or c.not_after < clock_timestamp()) as brought
    from certificate c full join uploaded u on u.host = c.host
    where $1::text is null or coalesce(c.host, u.host) = $1
  )
  select case when brought then 'uploaded_certificate' else 'certificate' end as table, case when brought then id else own_id end as id,
    host, case when brought then organization_id else own_organization end as "organizationId",
    case when brought then chain else own_chain end as chain,
    case when brought then chain_key else own_key end as "chainKey", challenge
  from both_of where brought or own_chain is not null or challenge is not null`

/** For one host, or for all. */
export const readServed = (db: Queryable, host: string | null): Promise<Served[]> => db.query<Served>(servedSql, [host])
