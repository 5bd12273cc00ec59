/** Addresses: of clients, of trusted proxies, and those from which a service may be reached. */
import { BlockList, isIP, isIPv4 } from 'node:net'

/** The entries of a comma-separated list of addresses and networks. */
export const listed = (text: string): string[] => text.split(',').map((entry) => entry.trim())

const familyOf = (address: string): 'ipv4' | 'ipv6' => (isIP(address) === 6 ? 'ipv6' : 'ipv4')

/** Without a zone, which has a meaning only on its own machine. */
const isAddress = (text: string): boolean => isIP(text) !== 0 && !text.includes('%')

/** Whether this is an address, or a network such as 10.0.0.0/8. */
export const isSource = (entry: string): boolean => {
  const [address = '', bits, ...more] = entry.split('/')
  if (!isAddress(address) || more.length > 0) return false
  const mostBits = familyOf(address) === 'ipv4' ? 32 : 128
  return bits === undefined || (/^(0|[1-9]\d{0,2})$/.test(bits) && Number(bits) <= mostBits)
}

const blockListOf = (entries: readonly string[]): BlockList => {
  const list = new BlockList()
  for (const entry of entries) {
    const [address = '', bits] = entry.split('/')
    const family = familyOf(address)
    if (bits === undefined) list.addAddress(address, family)
    else list.addSubnet(address, Number(bits), family)
  }
  return list
}

/** `10.0.0.1` for `::ffff:10.0.0.1`, the form that dual-stack sockets report. */
export const plainAddress = (address = ''): string => {
  const rest = address.startsWith('::ffff:') ? address.slice(7) : ''
  return isIPv4(rest) ? rest : address
}

/** False for text that is not an address. */
const isIn = (list: BlockList, address: string): boolean => list.check(address, familyOf(address))

export type IsTrusted = (address: string) => boolean

/** Addresses and networks (`10.0.0.0/8`) of proxies in front of us, whose X-Forwarded headers are trusted. */
export const trustProxies = (list: readonly string[]): IsTrusted => {
  const trusted = blockListOf(list)
  return list.length === 0 ? () => false : (address) => isIn(trusted, address)
}

/**
 * The address of the client: the socket's, or the one that trusted proxies report. The chain is read from its end,
 * where our own proxy has written; anything before the last untrusted address may be invented. Null if a trusted proxy
 * reports something that is not an address.
 */
export const clientAddress = (
  peer: string | undefined,
  chain: string | string[] | undefined,
  isTrusted: IsTrusted,
): string | null => {
  let address = plainAddress(peer)
  if (!isAddress(address)) return null
  const said = chain === undefined ? [] : String(chain).split(',')
  while (said.length > 0 && isTrusted(address)) {
    const next = plainAddress(said.pop()!.trim())
    if (!isAddress(next)) return null
    address = next
  }
  return address
}

export type MayReach = (address: string | null) => boolean

/** Null: everyone may. */
export const mayReach = (
  allow: readonly string[] | undefined,
  deny: readonly string[] | undefined,
): MayReach | null => {
  if (allow === undefined && deny === undefined) return null
  const allowed = allow && blockListOf(allow)
  const denied = deny && blockListOf(deny)
  return (address) => {
    if (address === null || !isAddress(address)) return false
    if (denied !== undefined && isIn(denied, address)) return false
    return allowed === undefined || isIn(allowed, address)
  }
}
