/** Which addresses the network of an environment has, and who assigns them: we, or the engine. Pure. */
import { createHash } from 'node:crypto'

/** The engine's form of a network's addresses. */
export interface IpamConfig {
  Subnet?: string
  Gateway?: string
  IPRange?: string
}

/** Addresses of a network that we assign; the engine assigns others to containers without one. */
export interface Subnet {
  gateway: string
  /** Both ends included, as numbers. */
  first: number
  last: number
}

const toNumber = (address: string): number =>
  address.split('.').reduce((number, part) => number * 256 + Number(part), 0)

export const addressAt = (number: number): string =>
  [24, 16, 8, 0].map((bits) => Math.floor(number / 2 ** bits) % 256).join('.')

export const rangeOf = (subnet: string): Pick<Subnet, 'first' | 'last'> | null => {
  const [address = '', bits = ''] = subnet.split('/')
  if (!/^\d{1,3}(\.\d{1,3}){3}$/.test(address) || !/^\d{1,2}$/.test(bits) || Number(bits) > 32) return null
  const size = 2 ** (32 - Number(bits))
  const number = toNumber(address)
  const start = number - (number % size)
  return { first: start, last: start + size - 1 }
}

/** A bridge of Linux has at most 1023 containers, so a larger one would be useless. */
const subnetBits = 22
const subnetSize = 2 ** (32 - subnetBits)
const subnetCount = 2 ** (subnetBits - 10)
const begin = toNumber('10.192.0.0')

/** The free /22 networks of 10.192.0.0/10, starting at a position that depends on the environment. */
export const freeSubnets = (environmentId: string, taken: readonly string[], wanted: number): string[] => {
  const ranges = taken.flatMap((subnet) => rangeOf(subnet) ?? [])
  const start = createHash('sha256').update(environmentId).digest().readUInt16BE(0)
  const found: string[] = []
  for (let step = 0; step < subnetCount && found.length < wanted; step += 1) {
    const first = begin + ((start + step) % subnetCount) * subnetSize
    const last = first + subnetSize - 1
    if (!ranges.some((other) => other.first <= last && first <= other.last))
      found.push(`${addressAt(first)}/${subnetBits}`)
  }
  return found
}

/** A quarter of the addresses is for containers without a fixed one; the two parts never overlap. */
export const layOut = (subnet: string): Required<IpamConfig> => {
  const { first } = rangeOf(subnet)!
  return {
    Subnet: subnet,
    Gateway: addressAt(first + 1),
    IPRange: `${addressAt(first + (subnetSize * 3) / 4)}/${subnetBits + 2}`,
  }
}

/** The addresses that we assign in a network of this configuration; null if we did not lay it out. */
export const subnetOf = (configs: readonly IpamConfig[] | null | undefined): Subnet | null => {
  const [config] = configs?.length === 1 ? configs : []
  const range = rangeOf(config?.Subnet ?? '')
  if (config === undefined || range === null || range.last - range.first !== subnetSize - 1) return null
  const ours = layOut(config.Subnet!)
  if (config.Gateway !== ours.Gateway || config.IPRange !== ours.IPRange) return null
  return { gateway: ours.Gateway, first: range.first + 2, last: range.first + (subnetSize * 3) / 4 - 1 }
}

const hexWord = (hex: string): number[] => (hex.match(/../g) ?? []).map((pair) => Number.parseInt(pair, 16)).reverse()

/** Networks in the kernel's table of routes (`/proc/net/route`); very wide ones are ignored. */
export const parseRoutes = (table: string): string[] =>
  table.split('\n').flatMap((line) => {
    const [, destination = '', , , , , , mask = ''] = line.split('\t')
    if (!/^[0-9A-F]{8}$/.test(destination) || !/^[0-9A-F]{8}$/.test(mask)) return []
    const bits = hexWord(mask).reduce((sum, byte) => sum + byte.toString(2).replaceAll('0', '').length, 0)
    return bits < 8 ? [] : [`${hexWord(destination).join('.')}/${bits}`]
  })
