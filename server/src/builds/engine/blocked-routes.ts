/**
 * Networks that a build must not reach: all addresses of this machine, those that the engine uses for its networks now
 * or later, and link-local addresses, where clouds serve secrets. Pure: IPv4 networks as numbers.
 */

export interface Network {
  base: number
  bits: number
}

/** The pools from which the engine takes the subnets of new networks: pieces of `bits` in `pool`. */
export interface Pool {
  pool: Network
  bits: number
}

const full = 2 ** 32

export const parseNetwork = (text: string): Network | null => {
  const [, a, b, c, d, length = '32'] = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?:\/(\d{1,2}))?$/.exec(text) ?? []
  const parts = [a, b, c, d].map(Number)
  const bits = Number(length)
  if (!parts.every((part) => part <= 255) || bits > 32) return null
  return widen({ base: parts.reduce((sum, part) => sum * 256 + part, 0), bits: 32 }, bits)
}

export const formatNetwork = ({ base, bits }: Network): string =>
  `${[24, 16, 8, 0].map((shift) => Math.floor(base / 2 ** shift) % 256).join('.')}/${bits}`

/** The network of `bits` around it. */
export const widen = ({ base, bits }: Network, to: number): Network => {
  const size = 2 ** (32 - Math.min(bits, to))
  return { base: Math.floor(base / size) * size, bits: Math.min(bits, to) }
}

const holds = (outer: Network, inner: Network): boolean =>
  outer.bits <= inner.bits && widen(inner, outer.bits).base === outer.base

export const subtract = (network: Network, others: readonly Network[]): Network[] => {
  const touching = others.filter((other) => holds(other, network) || holds(network, other))
  if (touching.length === 0) return [network]
  if (touching.some((other) => holds(other, network))) return []
  const bits = network.bits + 1
  const half = full / 2 ** bits
  return [network.base, network.base + half].flatMap((base) => subtract({ base, bits }, touching))
}

/**
 * The networks that are in no other one. A step can read its routes: a subnet of an environment must not be among
 * them, so networks inside a range that is blocked as a whole are not listed.
 */
const outermost = (networks: readonly Network[]): Network[] => {
  const distinct = [...new Map(networks.map((network) => [formatNetwork(network), network])).values()]
  return distinct.filter((inner) => !distinct.some((outer) => outer !== inner && holds(outer, inner)))
}

export const usualPools: Pool[] = [
  ...Array.from({ length: 15 }, (_, index) => ({ pool: parseNetwork(`172.${17 + index}.0.0/16`)!, bits: 16 })),
  { pool: parseNetwork('192.168.0.0/16')!, bits: 20 },
]

/** The range for networks of environments (runtimes/docker/network/subnets.ts). */
const environments: Pool = { pool: parseNetwork('10.192.0.0/10')!, bits: 22 }

const always = ['169.254.0.0/16', '100.100.100.200/32', '168.63.129.16/32'].map((text) => parseNetwork(text)!)

export interface NetworkLayout {
  own: Network
  gateway: Network
  pools: readonly Pool[]
  networks: readonly Network[]
  addresses: readonly Network[]
  /** The networks that its interfaces are in, without the engine's. */
  neighbours: readonly Network[]
  /** The machine's resolvers, and what the operator allows. */
  allowed: readonly Network[]
}

export const blockedRoutes = (around: NetworkLayout): string[] => {
  const { own, gateway, pools, networks, addresses, neighbours, allowed } = around
  // The engine never uses a subnet that overlaps one of the machine's: those stay reachable.
  const spared = (bits: number) => [...neighbours.map((each) => widen(each, bits)), ...allowed, own]
  const ranges = [
    ...[...pools, environments].flatMap(({ pool, bits }) => subtract(pool, spared(bits))),
    ...networks.flatMap((network) => subtract(network, [...allowed, own])),
  ]
  return outermost([...always, gateway, ...addresses, ...ranges]).map(formatNetwork)
}
