/** From which addresses a service may be reached. */
import { BlockList, isIP } from 'node:net'
import type { IsTrusted } from '../http/headers.ts'

/** The entries of a comma-separated list of addresses and networks. */
export const listed = (text: string): string[] => text.split(',').map((entry) => entry.trim())

const familyOf = (address: string): 'ipv4' | 'ipv6' | null => {
  const version = isIP(address)
  return version === 0 || address.includes('%') ? null : version === 6 ? 'ipv6' : 'ipv4'
}

/** Whether this is an address, or a network such as 10.0.0.0/8. */
export const isSource = (entry: string): boolean => {
  const [address = '', bits, ...more] = entry.split('/')
  const family = familyOf(address)
  if (family === null || more.length > 0) return false
  return bits === undefined || (/^(0|[1-9]\d{0,2})$/.test(bits) && Number(bits) <= (family === 'ipv4' ? 32 : 128))
}

const blockListOf = (entries: readonly string[]): BlockList => {
  const list = new BlockList()
  for (const entry of entries) {
    const [address = '', bits] = entry.split('/')
    const family = familyOf(address)!
    if (bits === undefined) list.addAddress(address, family)
    else list.addSubnet(address, Number(bits), family)
  }
  return list
}

const withoutMapping = (address: string): string => (address.startsWith('::ffff:') ? address.slice(7) : address)

/**
 * The address of whoever asks: the socket's, or what trusted proxies say of it. The chain is read from its end, where
 * ours has written; whatever stands before the last untrusted address may be invented. Null if a trusted proxy says
 * something that is not an address.
 */
export const clientAddress = (
  peer: string | undefined,
  chain: string | string[] | undefined,
  isTrusted: IsTrusted,
): string | null => {
  let address = withoutMapping(peer ?? '')
  if (familyOf(address) === null) return null
  const said = chain === undefined ? [] : String(chain).split(',')
  while (said.length > 0 && isTrusted(address)) {
    const next = withoutMapping(said.pop()!.trim())
    if (familyOf(next) === null) return null
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
    const family = address === null ? null : familyOf(address)
    if (family === null) return false
    if (denied?.check(address!, family)) return false
    return allowed === undefined || allowed.check(address!, family)
  }
}
