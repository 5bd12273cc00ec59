/** The current answers of a domain's name servers, without a cache in between. */
import { Resolver, resolve4, resolve6, resolveNs } from 'node:dns/promises'
import { zoneNames } from './provider.ts'

export interface NameServers {
  /** Addresses, with ports, of the servers that should know the name; [] if none is known. */
  of(name: string): Promise<string[]>
  /** The texts of this name; null if this server did not answer. */
  texts(server: string, name: string): Promise<string[] | null>
}

const mostServers = 16

const codeOf = (error: unknown): string => String((error as NodeJS.ErrnoException).code ?? '')

const orNone = (error: unknown): string[] => {
  if (['ENODATA', 'ENOTFOUND'].includes(codeOf(error))) return []
  throw error
}

const addressesOf = async (host: string): Promise<string[]> => {
  const [four, six] = await Promise.all([resolve4(host).catch(() => []), resolve6(host).catch(() => [])])
  // Machines without IPv6 would time out on every second address.
  return four.length > 0 ? four.slice(0, 2) : six.slice(0, 2).map((address) => `[${address}]`)
}

const authoritative = async (name: string): Promise<string[]> => {
  for (const zone of zoneNames(name)) {
    const hosts = await resolveNs(zone).catch(orNone)
    if (hosts.length > 0) return (await Promise.all(hosts.slice(0, mostServers).map(addressesOf))).flat()
  }
  return []
}

/** `fixed`: asked in place of the authoritative ones. */
export const createNameServers = (fixed: readonly string[]): NameServers => ({
  of: async (name) => (fixed.length > 0 ? [...fixed] : (await authoritative(name)).slice(0, mostServers)),
  async texts(server, name) {
    const resolver = new Resolver({ timeout: 3000, tries: 2 })
    resolver.setServers([server])
    try {
      return (await resolver.resolveTxt(name)).map((parts) => parts.join(''))
    } catch (error) {
      return ['ENODATA', 'ENOTFOUND'].includes(codeOf(error)) ? [] : null
    }
  },
})
