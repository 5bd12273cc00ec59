/**
 * What a program listens on, from the kernel's table of TCP sockets of its network namespace, and the explanation of a
 * port that does not answer. Pure. The table may come from the container itself: it is parsed, and used only for a
 * sentence to its owner.
 */

export interface Listener {
  /** Who can connect: everyone, one address of its own, or only programs in the same container. */
  reach: 'any' | 'own' | 'loopback'
  host: string
  port: number
}

const listening = '0A'
const mostListed = 5

/** As the kernel prints it: words of four bytes, each in little-endian order. */
const bytesOf = (hex: string): number[] =>
  (hex.match(/.{8}/g) ?? []).flatMap((word) =>
    (word.match(/../g) ?? []).reverse().map((byte) => Number.parseInt(byte, 16)),
  )

const dotted = (bytes: readonly number[]): string => bytes.join('.')

const hostOf = (bytes: readonly number[]): string => {
  if (bytes.length === 4) return dotted(bytes)
  const isMapped = bytes.slice(0, 10).every((byte) => byte === 0) && bytes[10] === 255 && bytes[11] === 255
  if (isMapped) return dotted(bytes.slice(12))
  const isLow = bytes.slice(0, 15).every((byte) => byte === 0)
  if (isLow && bytes[15]! < 2) return bytes[15] === 0 ? '::' : '::1'
  return 'an IPv6 address'
}

const reachOf = (host: string): Listener['reach'] => {
  if (host === '0.0.0.0' || host === '::') return 'any'
  return host.startsWith('127.') || host === '::1' ? 'loopback' : 'own'
}

/** The engine's own name server listens in every container. */
const isOfEngine = ({ host }: Listener): boolean => host === '127.0.0.11'

/** Listening sockets of `/proc/net/tcp` and `/proc/net/tcp6`, without repeats, by port. */
export const parseListeners = (text: string): Listener[] => {
  const found = new Map<string, Listener>()
  for (const line of text.split('\n')) {
    const match = /^\s*\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} ([0-9A-F]{2}) /.exec(line)
    if (match === null || match[3] !== listening) continue
    const host = hostOf(bytesOf(match[1]!))
    const listener = { reach: reachOf(host), host, port: Number.parseInt(match[2]!, 16) }
    if (!isOfEngine(listener)) found.set(`${host} ${listener.port}`, listener)
  }
  return [...found.values()].sort((a, b) => a.port - b.port)
}

const list = (words: readonly (string | number)[]): string => {
  const all = [...new Set(words)]
  const shown = all.slice(0, mostListed)
  return shown.length === 1 ? String(shown[0]) : `${shown.slice(0, -1).join(', ')} and ${shown.at(-1)}`
}

export interface PortFinding {
  kind: 'loopback' | 'ipv6' | 'elsewhere' | 'nothing'
  /** Whole sentences. */
  text: string
}

const isReached = ({ reach }: Listener): boolean => reach !== 'loopback'

/** Whether only `[::]` has this port, which may serve IPv4 too: the table does not show that. */
export const mayBeIpv6Only = (port: number, listeners: readonly Listener[]): boolean => {
  const here = listeners.filter((each) => each.port === port && isReached(each))
  return here.length > 0 && here.every(({ host }) => host === '::')
}

/**
 * Why a port does not answer; null if something listens there. `exposed`: other ports that the image names.
 * `refusesIpv4`: a connection over IPv4 was refused after the table was read.
 */
export const explainPort = (
  port: number,
  listeners: readonly Listener[],
  exposed: readonly number[] = [],
  refusesIpv4 = false,
): PortFinding | null => {
  const here = listeners.filter((each) => each.port === port)
  if (refusesIpv4 && mayBeIpv6Only(port, listeners)) {
    const text = `The program listens on [::]:${port} for IPv6 only, but is reached over IPv4: make it listen on 0.0.0.0 too, or on [::] without the option IPV6_V6ONLY.`
    return { kind: 'ipv6', text }
  }
  if (here.some(isReached)) return null
  const [inside] = here
  if (inside !== undefined) {
    const text = `The program listens on ${inside.host}:${port} only, which nothing outside its container reaches: make it listen on 0.0.0.0.`
    return { kind: 'loopback', text }
  }
  const others = listeners.filter(isReached).map((each) => each.port)
  if (others.length > 0) {
    const text = `Nothing listens on port ${port}; the program listens on ${list(others)}. Correct \`internal_port\`, or make the program listen on ${port}.`
    return { kind: 'elsewhere', text }
  }
  const inner = listeners.map((each) => `${each.host}:${each.port}`)
  if (inner.length > 0) {
    const text = `Nothing listens on port ${port}; the program listens on ${list(inner)} only, which nothing outside its container reaches.`
    return { kind: 'nothing', text }
  }
  const hint = exposed.length === 0 ? '' : ` Its image exposes ${list(exposed)}.`
  return { kind: 'nothing', text: `Nothing listens on port ${port} yet.${hint}` }
}
