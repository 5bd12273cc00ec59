/** Wires certificates, and the API's own host. */
import { isIP } from 'node:net'
import { createAccountKey, createAcmeAuthority } from '../certificates/acme.ts'
import { startCertificates } from '../certificates/certificates.ts'
import { createDnsChallenges } from '../certificates/dns/challenges.ts'
import { createCloudflare } from '../certificates/dns/cloudflare.ts'
import type { DnsProvider } from '../certificates/dns/provider.ts'
import { createUpdateProvider } from '../certificates/dns/rfc2136.ts'
import { createRoute53 } from '../certificates/dns/route53.ts'
import { createNameServers } from '../certificates/dns/visible.ts'
import type { SharedRouter } from '../clusters/shared-router.ts'
import type { Log } from '../lib/log.ts'
import type { Outbound } from '../lib/net/outbound.ts'
import { systemClock } from '../lib/time/clock.ts'
import { apiRouteId, type Router } from '../router/router.ts'
import type { DnsSettings } from '../settings/dns.ts'
import type { Settings } from '../settings/settings.ts'
import type { Database } from '../store/database.ts'
import { readAccountKey } from '../store/installation.ts'
import type { Sealer } from '../store/keys/seal.ts'
import type { WorkRegistry } from '../work/registry.ts'

interface TlsFoundation {
  settings: Settings
  log: Log
  work: WorkRegistry
  database: Database
  sealer: Sealer
  own: Router
  shared: SharedRouter | null
  outbound: Outbound
  acmeOutbound: Outbound
}

/** The address at which the router of this machine reaches the API, and from which it connects. */
export const apiAddress = ({ host }: Pick<Settings, 'host'>): string =>
  isIP(host) !== 0 && host !== '0.0.0.0' && host !== '::' ? host : '127.0.0.1'

/** The API at its own host; limits of bodies and times are the API's own. */
export const publishApi = async ({ settings, own }: Pick<TlsFoundation, 'settings' | 'own'>): Promise<void> => {
  const { apiHost: host, port } = settings
  const target = { host: apiAddress(settings), port }
  const policy = { bodyBytes: 0, readMs: 0, sendMs: 0 }
  const route = { serviceId: apiRouteId, protocol: 'HTTP' as const, state: 'up' as const, targets: [target], policy }
  await own.setService(apiRouteId, host === undefined ? [] : [{ ...route, host }])
}

const providerOf = (dns: DnsSettings, outbound: Outbound): DnsProvider => {
  if (dns.provider === 'cloudflare') return createCloudflare(outbound, dns.token)
  if (dns.provider === 'route53') return createRoute53(outbound, dns.keys, systemClock)
  return createUpdateProvider(dns.server, systemClock)
}

const challengesOf = ({ settings, database, log, acmeOutbound }: TlsFoundation) => {
  const { dns } = settings.acme
  if (dns === undefined) return null
  const nameServers = createNameServers(dns.resolvers)
  return createDnsChallenges({
    database,
    log,
    clock: systemClock,
    nameServers,
    provider: providerOf(dns, acmeOutbound),
  })
}

/** Null without TLS. */
export const startTls = async (foundation: TlsFoundation): Promise<{ stop(): Promise<void> } | null> => {
  const { settings, database, sealer, own, shared, acmeOutbound } = foundation
  const { routerTlsPort, acme, domain, apiHost, limits } = settings
  if (routerTlsPort === undefined) return null
  const accountKey = () => readAccountKey(database, sealer, createAccountKey)
  return startCertificates({
    ...foundation,
    router: own,
    authority: createAcmeAuthority(acme, acmeOutbound, accountKey),
    ...{ challenge: acme.challenge, domain, apiHost, mostCertificates: limits.certificates },
    dns: challengesOf(foundation),
    alone: settings.databaseUrl === undefined,
    notifyOthers: async (host) => shared?.notifyTls(host),
    onNotified: (learn) => shared?.onTls(learn),
    clock: systemClock,
  })
}
