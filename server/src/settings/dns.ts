/** The settings of the DNS provider that certificates for wildcards need. */
import { isIP } from 'node:net'
import type { UpdateServer } from '../certificates/dns/rfc2136.ts'
import type { Route53Keys } from '../certificates/dns/route53.ts'
import { domainName } from '../lib/net/domain-name.ts'
import { Secret } from '../lib/secret.ts'
import type { Read } from './acme.ts'
import { oneOf, parts } from './values.ts'

const kinds = ['cloudflare', 'route53', 'rfc2136'] as const
type Kind = (typeof kinds)[number]

export type DnsSettings = {
  /** Name servers that are asked instead of those of the domain, with ports. */
  resolvers: readonly string[]
  /** Domains below which organizations may have wildcards. */
  zones: readonly string[]
} & (
  | { provider: 'cloudflare'; token: Secret }
  | { provider: 'route53'; keys: Route53Keys }
  | { provider: 'rfc2136'; server: UpdateServer }
)

const needs: Record<Kind, readonly string[]> = {
  cloudflare: ['SLIPWAY_ACME_DNS_TOKEN'],
  route53: ['SLIPWAY_ACME_DNS_ACCESS_KEY', 'SLIPWAY_ACME_DNS_SECRET_KEY'],
  rfc2136: ['SLIPWAY_ACME_DNS_SERVER', 'SLIPWAY_ACME_DNS_TSIG_NAME', 'SLIPWAY_ACME_DNS_TSIG_SECRET'],
}

/** Refused without TLS. */
export const dnsSettings = [
  ...['SLIPWAY_ACME_DNS_PROVIDER', 'SLIPWAY_ACME_DNS_RESOLVERS', 'SLIPWAY_ACME_DNS_ZONES'],
  ...Object.values(needs).flat(),
]

const secret =
  (pattern: RegExp, what: string) =>
  (value: string): { value: Secret } | string =>
    pattern.test(value) ? { value: new Secret(value) } : what

interface Place {
  host: string
  port: number
}

const placeIn = (text: string): Place | null => {
  const [, address, name = address, port = '53'] =
    /^(?:\[([0-9A-Fa-f:]+)\]|([0-9A-Za-z.-]+))(?::(\d{1,5}))?$/.exec(text) ?? []
  return name === undefined || Number(port) < 1 || Number(port) > 65_535 ? null : { host: name, port: Number(port) }
}

const server = (value: string): { value: Place } | string => {
  const place = placeIn(value)
  return place === null
    ? 'the address or name of a name server, such as 192.0.2.53 or ns.example.com:5353'
    : { value: place }
}

const servers = (value: string): { value: readonly string[] } | string => {
  const places = parts(value).map(placeIn)
  const fit = places.every((place) => place !== null && isIP(place.host) !== 0) && places.length <= 8
  const written = places.map((place) => (isIP(place?.host ?? '') === 6 ? `[${place!.host}]` : place?.host))
  return fit
    ? { value: Object.freeze(places.map((place, index) => `${written[index]}:${place!.port}`)) }
    : 'up to 8 addresses of name servers, such as 192.0.2.53 or 192.0.2.53:5353, separated by commas'
}

const zones = (value: string): { value: readonly string[] } | string => {
  const found = parts(value).map(domainName)
  const names = found.flatMap((each) => (typeof each === 'string' ? [] : [each.value]))
  return names.length === found.length
    ? { value: Object.freeze(names) }
    : 'domain names, such as shop.example.com, separated by commas'
}

const keyName = (value: string): { value: string } | string =>
  /^[0-9A-Za-z_]([0-9A-Za-z_.-]{0,200})$/.test(value) && value.split('.').every((label) => label.length < 64)
    ? { value: value.replace(/\.$/, '').toLowerCase() }
    : 'the name of a TSIG key'

/** Undefined without a provider: then the other variables are refused. */
export const readDns = (read: Read, problems: string[]): DnsSettings | undefined => {
  const provider = read<Kind | undefined>('SLIPWAY_ACME_DNS_PROVIDER', undefined, oneOf(kinds))
  const resolvers = read<readonly string[]>('SLIPWAY_ACME_DNS_RESOLVERS', Object.freeze([]), servers)
  const allowed = read<readonly string[]>('SLIPWAY_ACME_DNS_ZONES', Object.freeze([]), zones)
  const given: Record<string, unknown> = {
    SLIPWAY_ACME_DNS_TOKEN: read<Secret | undefined>(
      'SLIPWAY_ACME_DNS_TOKEN',
      undefined,
      secret(/^[\w-]{20,200}$/, 'an API token of Cloudflare'),
    ),
    SLIPWAY_ACME_DNS_ACCESS_KEY: read<string | undefined>('SLIPWAY_ACME_DNS_ACCESS_KEY', undefined, (value) =>
      /^\w{16,128}$/.test(value) ? { value } : 'the id of an access key of AWS',
    ),
    SLIPWAY_ACME_DNS_SECRET_KEY: read<Secret | undefined>(
      'SLIPWAY_ACME_DNS_SECRET_KEY',
      undefined,
      secret(/^[\w/+=]{16,200}$/, 'the secret of an access key of AWS'),
    ),
    SLIPWAY_ACME_DNS_SERVER: read<Place | undefined>('SLIPWAY_ACME_DNS_SERVER', undefined, server),
    SLIPWAY_ACME_DNS_TSIG_NAME: read<string | undefined>('SLIPWAY_ACME_DNS_TSIG_NAME', undefined, keyName),
    SLIPWAY_ACME_DNS_TSIG_SECRET: read<Secret | undefined>(
      'SLIPWAY_ACME_DNS_TSIG_SECRET',
      undefined,
      secret(/^[A-Za-z0-9+/]{16,1024}={0,2}$/, 'the secret of a TSIG key (HMAC-SHA256) in base64'),
    ),
  }
  if (provider === undefined) {
    if ([...Object.values(given)].some((value) => value !== undefined) || resolvers.length + allowed.length > 0)
      problems.push('SLIPWAY_ACME_DNS_PROVIDER must be set together with the other settings of a DNS provider.')
    return undefined
  }
  const missing = needs[provider].filter((name) => given[name] === undefined)
  if (missing.length > 0)
    problems.push(`${missing.join(' and ')} must be set with SLIPWAY_ACME_DNS_PROVIDER=${provider}.`)
  const needless = Object.keys(given).filter((name) => given[name] !== undefined && !needs[provider].includes(name))
  if (needless.length > 0)
    problems.push(`${needless.join(' and ')} must not be set with SLIPWAY_ACME_DNS_PROVIDER=${provider}.`)
  if (missing.length > 0) return undefined
  return Object.freeze({ resolvers, zones: allowed, ...credentialsOf(provider, given) }) as DnsSettings
}

const credentialsOf = (provider: Kind, given: Record<string, unknown>): object => {
  const accessKey = given.SLIPWAY_ACME_DNS_ACCESS_KEY
  const keys = Object.freeze({ accessKey, secretKey: given.SLIPWAY_ACME_DNS_SECRET_KEY })
  const tsig = { keyName: given.SLIPWAY_ACME_DNS_TSIG_NAME, keySecret: given.SLIPWAY_ACME_DNS_TSIG_SECRET }
  if (provider === 'cloudflare') return { provider, token: given.SLIPWAY_ACME_DNS_TOKEN }
  if (provider === 'route53') return { provider, keys }
  return { provider, server: Object.freeze({ ...(given.SLIPWAY_ACME_DNS_SERVER as Place), ...tsig }) }
}
