/**
 * Host names that no service may take because this installation uses them: the one list, made from the settings at
 * each start. The SQL function `reserved_for` (migration 0042) decides for a host and an organization; all code that
 * assigns a host to a service calls it.
 */
import { isIP } from 'node:net'
import type { Queryable } from './database.ts'

export interface NamesInSettings {
  /** The domain of services' names. */
  domain?: string | undefined
  apiHost?: string | undefined
  publicUrl?: string | undefined
  consoleUrl?: string | undefined
  corsOrigins?: readonly string[] | undefined
  oidc?: { issuer: string } | undefined
}

interface ReservedHost {
  host: string
  /** See migration 0042. */
  use: 'PLATFORM' | 'SERVICES' | 'OPERATOR'
}

/** Addresses and single labels cannot be custom domains. */
const isName = (host: string): boolean => host.includes('.') && isIP(host) === 0 && !host.startsWith('[')

const hostIn = (url: string | undefined): string | undefined =>
  url === undefined ? undefined : (URL.parse(url)?.hostname.replace(/\.$/, '') ?? undefined)

/** Pure; sorted, without duplicates. */
export const reservedHosts = (settings: NamesInSettings): ReservedHost[] => {
  const { domain, apiHost, publicUrl, consoleUrl, corsOrigins = [], oidc } = settings
  const named: [ReservedHost['use'], (string | undefined)[]][] = [
    ['PLATFORM', [apiHost, hostIn(publicUrl), hostIn(consoleUrl)]],
    ['SERVICES', [domain]],
    ['OPERATOR', [...corsOrigins.map(hostIn), hostIn(oidc?.issuer)]],
  ]
  const texts = named.flatMap(([use, hosts]) =>
    hosts.flatMap((host) => (host !== undefined && isName(host) ? [`${use} ${host.toLowerCase()}`] : [])),
  )
  return [...new Set(texts)].sort().map((text) => {
    const [use, host] = text.split(' ') as [ReservedHost['use'], string]
    return { host, use }
  })
}

/** SQL: 'platform' or 'operator' for a host that this organization may not have, else null. */
export const reservedSql = (host: string, organizationId: string): string => `reserved_for(${host}, ${organizationId})`

/** SQL: whether this very host is the API's, the console's, or one that the settings trust. */
export const isTakenByPlatformSql = (host: string): string =>
  `exists (select from reserved_host where reserved_host.host = ${host} and use <> 'SERVICES')`

/** Replaces the list; false if it was the same. */
export const saveReserved = async (tx: Queryable, hosts: readonly ReservedHost[]): Promise<boolean> => {
  const before = await tx.query<ReservedHost>('select host, use from reserved_host order by use, host')
  const isSame =
    before.length === hosts.length &&
    hosts.every((each, n) => before[n]!.host === each.host && before[n]!.use === each.use)
  if (isSame) return false
  await tx.query('delete from reserved_host')
  await tx.query(
    `insert into reserved_host (host, use) select host, use from json_to_recordset($1::json) as r (host text, use text)`,
    [JSON.stringify(hosts)],
  )
  return true
}
