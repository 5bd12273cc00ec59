/**
 * Which addresses the server may connect to on a user's behalf. Pure: text and numbers in, a verdict out; names are
 * resolved elsewhere. Only the operator can widen it, with SLIPWAY_OUTBOUND_ALLOW.
 */
import { isIPv4, isIPv6 as isNodeIPv6 } from 'node:net'

export interface Address {
  family: 4 | 6
  value: bigint
}

interface Network {
  family: 4 | 6
  base: bigint
  prefix: number
}

/** SLIPWAY_OUTBOUND_ALLOW, parsed. `hosts` and `hostPorts` contain names and addresses in canonical spelling. */
export interface AllowList {
  classes: ReadonlySet<string>
  networks: readonly Network[]
  hosts: ReadonlySet<string>
  hostPorts: ReadonlySet<string>
}

export interface OutboundTarget {
  /** As the WHATWG URL parser spells it, without brackets. */
  host: string
  port: number
}

/** `guarded`: refused unless that exact address is listed. */
type AddressClass = 'public' | 'private' | 'loopback' | 'guarded'

/** Text without two colons is not an IPv6 address; Node's own pattern takes some ms to compile. */
const isIPv6 = (text: string): boolean => /:.*:/.test(text) && isNodeIPv6(text)

const parse4 = (text: string): bigint => text.split('.').reduce((value, part) => (value << 8n) | BigInt(part), 0n)

/** The eight groups of an IPv6 address that `isIPv6` accepts; a dotted tail counts as two groups. */
const groups6 = (text: string): bigint => {
  const dotted = text.match(/^(.*:)(\d+\.\d+\.\d+\.\d+)$/)
  if (dotted) {
    const tail = parse4(dotted[2]!)
    return groups6(`${dotted[1]}${(tail >> 16n).toString(16)}:${(tail & 0xffffn).toString(16)}`)
  }
  const [head = '', tail] = text.split('::') as [string, string?]
  const left = head === '' ? [] : head.split(':')
  const right = tail === undefined || tail === '' ? [] : tail.split(':')
  const zeros = new Array(tail === undefined ? 0 : 8 - left.length - right.length).fill('0')
  return [...left, ...zeros, ...right].reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n)
}

const mappedBase = 0xffffn

/**
 * Parses an address in any spelling; the zone is dropped, `::ffff:1.2.3.4` is treated as the IPv4 address; undefined
 * for a name.
 */
export const parseAddress = (text: string): Address | undefined => {
  const bare = text.replace(/^\[(.*)\]$/, '$1').replace(/%.*$/, '')
  if (isIPv4(bare)) return { family: 4, value: parse4(bare) }
  if (!isIPv6(bare)) return undefined
  const value = groups6(bare)
  return value >> 32n === mappedBase ? { family: 4, value: value & 0xffffffffn } : { family: 6, value }
}

/** One spelling for each address, so that texts can be compared. */
export const formatAddress = ({ family, value }: Address): string => {
  if (family === 4) return [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 0xffn).join('.')
  const groups = Array.from({ length: 8 }, (_, index) => ((value >> BigInt(112 - index * 16)) & 0xffffn).toString(16))
  return groups.join(':')
}

/** `10.0.0.0/8`; undefined for anything else. */
export const parseNetwork = (text: string): Network | undefined => {
  const [base = '', prefix = '', ...rest] = text.split('/')
  const address = parseAddress(base)
  if (address === undefined || rest.length > 0 || !/^\d{1,3}$/.test(prefix)) return undefined
  const bits = address.family === 4 ? 32 : 128
  return Number(prefix) > bits ? undefined : { family: address.family, base: address.value, prefix: Number(prefix) }
}

export const isWithin = ({ family, base, prefix }: Network, address: Address): boolean => {
  if (family !== address.family) return false
  const shift = BigInt((family === 4 ? 32 : 128) - prefix)
  return base >> shift === address.value >> shift
}

// First match wins. RFC 6890 and its registry, plus the addresses where clouds serve a machine's credentials.
const ranges: [string, AddressClass, string][] = [
  ['100.100.100.200/32', 'guarded', 'a cloud metadata address'],
  ['168.63.129.16/32', 'guarded', 'a cloud metadata address'],
  ['fd00:ec2::254/128', 'guarded', 'a cloud metadata address'],
  ['fd20:ce::254/128', 'guarded', 'a cloud metadata address'],
  ['169.254.0.0/16', 'guarded', 'a link-local address'],
  ['fe80::/10', 'guarded', 'a link-local address'],
  ['0.0.0.0/8', 'guarded', 'an unspecified address'],
  ['::/128', 'guarded', 'an unspecified address'],
  ['127.0.0.0/8', 'loopback', 'a loopback address'],
  ['::1/128', 'loopback', 'a loopback address'],
  ['10.0.0.0/8', 'private', 'a private address'],
  ['100.64.0.0/10', 'private', 'a private address'],
  ['172.16.0.0/12', 'private', 'a private address'],
  ['192.168.0.0/16', 'private', 'a private address'],
  ['198.18.0.0/15', 'private', 'a private address'],
  ['fc00::/7', 'private', 'a private address'],
  ['fec0::/10', 'private', 'a private address'],
  ['224.0.0.0/4', 'guarded', 'a multicast address'],
  ['ff00::/8', 'guarded', 'a multicast address'],
  ['240.0.0.0/4', 'guarded', 'a reserved address'],
  ['192.0.0.0/24', 'guarded', 'a reserved address'],
  ['192.0.2.0/24', 'guarded', 'a reserved address'],
  ['192.88.99.0/24', 'guarded', 'a reserved address'],
  ['198.51.100.0/24', 'guarded', 'a reserved address'],
  ['203.0.113.0/24', 'guarded', 'a reserved address'],
  ['2001::/32', 'guarded', 'a reserved address'],
  ['2001:db8::/32', 'guarded', 'a reserved address'],
]

const readNetworks = () => ({
  table: ranges.map(([text, kind, label]) => ({ network: parseNetwork(text)!, kind, label })),
  nat64: parseNetwork('64:ff9b::/96')!,
  sixToFour: parseNetwork('2002::/16')!,
  global6: parseNetwork('2000::/3')!,
})
let read: ReturnType<typeof readNetworks> | undefined
/** Read with the first address: a start needs none. */
const networks = () => {
  read ??= readNetworks()
  return read
}

/** The IPv4 address that a translating (NAT64 and similar) network would actually connect to. */
const embedded = (address: Address): Address | undefined => {
  const { nat64, sixToFour } = networks()
  if (isWithin(nat64, address)) return { family: 4, value: address.value & 0xffffffffn }
  if (isWithin(sixToFour, address)) return { family: 4, value: (address.value >> 80n) & 0xffffffffn }
  return undefined
}

export const classify = (address: Address): { kind: AddressClass; label: string } => {
  const inner = embedded(address)
  if (inner !== undefined) return classify(inner)
  const { table, global6 } = networks()
  const found = table.find(({ network }) => isWithin(network, address))
  if (found !== undefined) return { kind: found.kind, label: found.label }
  if (address.family === 6 && !isWithin(global6, address)) return { kind: 'guarded', label: 'a reserved address' }
  return { kind: 'public', label: 'a public address' }
}

/**
 * Canonical spelling of a host: an address spelled out, a name in lower case and ASCII. Undefined when it is neither.
 */
export const canonicalHost = (text: string): string | undefined => {
  const literal = parseAddress(text)
  if (literal !== undefined) return formatAddress(literal)
  try {
    const { hostname } = new URL(`http://${text}/`)
    const address = parseAddress(hostname)
    return address === undefined ? hostname : formatAddress(address)
  } catch {
    return undefined
  }
}

/** Splits `host`, `host:port`, `[v6]:port` or a bare v6 address. */
export const splitHostPort = (text: string): { host: string; port: number | null } | undefined => {
  const match = isIPv6(text) ? [text, text, undefined] : text.match(/^(\[[^\]]*\]|[^:@/?#\\\s]+)(?::(\d{1,5}))?$/)
  const host = match ? canonicalHost(match[1]!) : undefined
  const port = match?.[2] === undefined ? null : Number(match[2])
  return host === undefined || host === '' || port === 0 || (port ?? 1) > 65535 ? undefined : { host, port }
}

/**
 * Parses the entries of SLIPWAY_OUTBOUND_ALLOW: `private`, `loopback`, a network, a host, host:port. Throws on others.
 */
export const parseAllowList = (entries: readonly string[]): AllowList => {
  const list = {
    classes: new Set<string>(),
    networks: [] as Network[],
    hosts: new Set<string>(),
    hostPorts: new Set<string>(),
  }
  for (const entry of entries.map((text) => text.trim()).filter((text) => text !== '')) {
    const network = entry.includes('/') ? parseNetwork(entry) : undefined
    const place = entry.includes('/') ? undefined : splitHostPort(entry)
    if (entry === 'private' || entry === 'loopback') list.classes.add(entry)
    else if (network !== undefined) list.networks.push(network)
    else if (place === undefined)
      throw new Error(
        `SLIPWAY_OUTBOUND_ALLOW: "${entry}" is not private, loopback, a network (10.0.0.0/8), a host or host:port`,
      )
    else if (place.port === null) list.hosts.add(place.host)
    else list.hostPorts.add(`${place.host} ${place.port}`)
  }
  return list
}

const isListed = (host: string, port: number, allow: AllowList): boolean =>
  allow.hosts.has(host) || allow.hostPorts.has(`${host} ${port}`)

/** Whether that exact address is listed: alone, with this port, or as a network of one address. */
const isExactlyListed = (address: Address, port: number, allow: AllowList): boolean =>
  isListed(formatAddress(address), port, allow) ||
  allow.networks.some((net) => net.prefix === (net.family === 4 ? 32 : 128) && isWithin(net, address))

const isWidened = (kind: AddressClass, address: Address, target: OutboundTarget, allow: AllowList): boolean =>
  allow.classes.has(kind) ||
  isExactlyListed(address, target.port, allow) ||
  isListed(target.host, target.port, allow) ||
  allow.networks.some((network) => isWithin(network, address))

const remedy = 'the operator can allow it in SLIPWAY_OUTBOUND_ALLOW'

/** Targets that are refused even if their network is allowed: parts of this server, and containers on its engine. */
export type Kept = 'own' | 'container' | null
const keptWords = { own: 'is a part of this server', container: 'points to a container on this machine' }

/** Why this address may not be connected to for this target, as a clause for a message; null when it may. */
export const refuseAddress = (
  address: Address,
  target: OutboundTarget,
  allow: AllowList,
  kept: Kept = null,
): string | null => {
  const { kind, label } = classify(address)
  if (kept !== null && !isExactlyListed(address, target.port, allow)) return `it ${keptWords[kept]}; ${remedy}`
  if (kind === 'guarded' && !isExactlyListed(address, target.port, allow))
    return `it points to ${label}; ${remedy} as that exact address`
  if ((kind === 'private' || kind === 'loopback') && !isWidened(kind, address, target, allow))
    return `it points to ${label}; ${remedy}, or the class "${kind}"`
  return null
}

const guardedPorts = new Set([22, 25, 2375, 2376, 5432, 6379])

/** Why this port may not be used; null when it may. `address` is the address of the target's host. */
export const refusePort = ({ host, port }: OutboundTarget, allow: AllowList, address?: Address): string | null => {
  if (!guardedPorts.has(port) || allow.hostPorts.has(`${host} ${port}`)) return null
  if (address !== undefined && allow.hostPorts.has(`${formatAddress(address)} ${port}`)) return null
  return `port ${port} is not a web port; ${remedy} as host:port`
}

/** The URL, or why the text is not a URL that may be called, whatever its host resolves to. */
export const parseUrl = (text: string): URL | string => {
  if (text.length > 2048) return 'it is longer than 2048 characters'
  if (!URL.canParse(text)) return 'it is not an absolute URL'
  const url = new URL(text)
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return 'it must begin with http:// or https://'
  if (url.username !== '' || url.password !== '' || /^[a-z]+:[/\\]*[^/\\?#]*@/i.test(text))
    return 'it must not contain a user name or password'
  if (url.hostname.endsWith('.')) return 'its host must not end with a dot'
  if (url.port === '0') return 'port 0 cannot be used'
  return url
}

export const targetOf = (url: URL): OutboundTarget => ({
  host: canonicalHost(url.hostname) ?? url.hostname,
  port: url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port),
})
