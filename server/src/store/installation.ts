/** Facts of this installation that all replicas share, created on first use. */
import { randomBytes } from 'node:crypto'
import { newId } from '../lib/ids.ts'
import type { Secret } from '../lib/secret.ts'
import { isKubernetesSql, isRoutedSql } from './cluster-rows.ts'
import type { Database, Queryable } from './database.ts'
import type { Sealer } from './keys/seal.ts'
import {
  isTakenByPlatformSql,
  type NamesInSettings,
  reservedHosts,
  reservedSql,
  saveReserved,
} from './reserved-hosts.ts'

/** Represents the installation where an organization is required. */
export const installationId = '00000000-0000-0000-0000-000000000000'

const fact = async (database: Database, name: string, make: () => Promise<string> | string): Promise<string> => {
  const read = async () =>
    (await database.query<{ value: string }>('select value from installation where name = $1', [name]))[0]?.value
  const found = await read()
  if (found !== undefined) return found
  await database.query('insert into installation (name, value) values ($1, $2) on conflict do nothing', [
    name,
    await make(),
  ])
  return (await read())!
}

/** SQL for the name by which users reach the published ports of this machine. */
export const publishedHostSql = `coalesce((select value from installation where name = 'outside_host'), 'localhost')`

/**
 * The same for the service with this id; null if that is the load balancer of a Kubernetes cluster instead of this
 * machine.
 */
export const publishedHostOfSql = (serviceId: string): string =>
  `case when ${isRoutedSql(serviceId)} then ${publishedHostSql} end`

export const savePublishedHost = async (database: Database, host: string): Promise<void> => {
  await database.query(
    `insert into installation (name, value) values ('outside_host', $1)
     on conflict (name) do update set value = excluded.value where installation.value <> excluded.value`,
    [host],
  )
}

const textSql = (name: string): string => `(select value from installation where name = '${name}')`

const serviceDomainSql = `coalesce(${textSql('domain')}, 'localhost')`

/**
 * SQL for the domain of a cluster's row: the hosts of a Kubernetes cluster resolve to its own ingress, so that they
 * are below a domain of its own, or below `localhost`.
 */
export const clusterDomainSql = (row: string): string => `case when ${isKubernetesSql(row)}
  then coalesce(${row}.spec #>> '{dns_provider,domain}', 'localhost') else ${serviceDomainSql} end`

const setText = (tx: Queryable, name: string, value: string | undefined): Promise<unknown> =>
  value === undefined
    ? tx.query('delete from installation where name = $1', [name])
    : tx.query(
        `insert into installation (name, value) values ($1, $2) on conflict (name) do update set value = excluded.value`,
        [name, value],
      )

/**
 * Names keep their labels, unless the platform uses such a name; custom domains that the platform uses are not routed.
 */
const renameHosts = async (tx: Queryable, before: string): Promise<void> => {
  await tx.query(
    `delete from route where custom_domain_id is not null and ${reservedSql('host', 'organization_id')} is not null`,
  )
  await tx.query(
    `update route set host = left(host, length(host) - length($1) - 1) || '.' || ${serviceDomainSql}
     where custom_domain_id is null and right(host, length($1) + 1) = '.' || $1 and ${isRoutedSql('route.service_id')}`,
    [before],
  )
  await tx.query(
    `update route set host = split_part(host, '.', 1) || '-' || substr(md5(service_id::text), 1, 6)
       || substr(host, strpos(host, '.'))
     where custom_domain_id is null and service_id in (
       select service_id from route where custom_domain_id is null and ${isTakenByPlatformSql('route.host')})`,
  )
  await tx.query(
    `insert into route (host, organization_id, environment_id, service_id, port, protocol, is_default, custom_domain_id)
     select d.domain, r.organization_id, r.environment_id, r.service_id, r.port, r.protocol, false, d.id
     from custom_domain d join route r on r.service_id = d.service_id and r.is_default and r.custom_domain_id is null
     where ${reservedSql('d.domain', 'd.organization_id')} is null and not exists (select from route o where o.custom_domain_id = d.id)
     on conflict do nothing`,
  )
  // Instances were started with hosts that have changed.
  await tx.query('update service_state set wanted_hash = null, wanted_version = wanted_version + 1')
  await tx.query(
    `select pg_notify('slipway_routes', id) from (select distinct service_id::text as id from route) routed`,
  )
}

/** The names of a cluster's services follow its domain; they keep their labels, unless those are taken there. */
export const nameHosts = async (tx: Queryable, clusterId: string): Promise<void> => {
  const renamed = await tx.query<{ id: string }>(
    `with wanted as (
       select r.host, r.service_id, split_part(r.host, '.', 1) as label, ${clusterDomainSql('c')} as domain
       from route r join service_state s using (service_id) join node c on c.id = s.cluster_id
       where c.id = $1 and r.custom_domain_id is null
     ), taken as (
       select distinct w.service_id from wanted w join route o on o.host = w.label || '.' || w.domain
       where o.service_id <> w.service_id
     )
     update route r set host = w.label || case when t.service_id is null then ''
         else '-' || substr(md5(w.service_id::text), 1, 6) end || '.' || w.domain
     from wanted w left join taken t using (service_id)
     where r.host = w.host and r.host <> w.label || '.' || w.domain
     returning r.service_id as id`,
    [clusterId],
  )
  const ids = [...new Set(renamed.map(({ id }) => id))]
  if (ids.length === 0) return
  // Instances were started with hosts that have changed.
  await tx.query(
    `update service_state set wanted_hash = null, wanted_version = wanted_version + 1
     where environment_id in (select environment_id from service_state where service_id = any($1))`,
    [ids],
  )
  await tx.query(`select pg_notify('slipway_routes', id) from unnest($1::text[]) id`, [ids])
}

/** SQL: whether the servers have a Docker engine of their own, which the default clusters are. */
export const hasEngineSql = `not exists (select from installation where name = 'docker' and value = 'off')`

export const saveEngine = async (database: Database, hasEngine: boolean): Promise<void> => {
  await setText(database, 'docker', hasEngine ? undefined : 'off')
}

/**
 * Saves the operator's names for services, for the API and for everything else that the settings name; all hosts of
 * services follow.
 */
export const saveNames = (
  database: Database,
  settings: NamesInSettings & { domain: string | undefined; apiHost: string | undefined },
): Promise<void> =>
  database.transaction(async (tx) => {
    await tx.query('lock table installation in exclusive mode')
    const [before] = await tx.query<{ domain: string; apiHost: string | null }>(
      `select ${serviceDomainSql} as domain, ${textSql('api_host')} as "apiHost"`,
    )
    const { domain, apiHost } = settings
    const isReservedAnew = await saveReserved(tx, reservedHosts(settings))
    if (!isReservedAnew && before!.domain === (domain ?? 'localhost') && before!.apiHost === (apiHost ?? null)) return
    await setText(tx, 'domain', domain)
    await setText(tx, 'api_host', apiHost)
    await renameHosts(tx, before!.domain)
  })

/** PEM, sealed at rest: the key of this installation's account at certificate authorities. */
export const readAccountKey = async (
  database: Database,
  sealer: Sealer,
  make: () => Promise<string>,
): Promise<Secret> => {
  const place = { table: 'installation', row: 'acme_account_key', column: 'value' }
  const sealed = await fact(database, 'acme_account_key', async () => sealer.seal(installationId, place, await make()))
  return sealer.open(installationId, place, sealed)
}

/** The label value on everything this installation creates on an engine. */
export const readOwnerId = (database: Database): Promise<string> => fact(database, 'owner', newId)

/** 32 random bytes, sealed at rest: the key of deployment fingerprints. */
export const readFingerprintKey = async (database: Database, sealer: Sealer): Promise<Buffer> => {
  const place = { table: 'installation', row: 'fingerprint_key', column: 'value' }
  const make = () => sealer.seal(installationId, place, randomBytes(32).toString('base64'))
  const sealed = await fact(database, 'fingerprint_key', make)
  return Buffer.from((await sealer.open(installationId, place, sealed)).reveal(), 'base64')
}
