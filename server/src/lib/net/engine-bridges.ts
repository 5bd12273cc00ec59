/**
 * The bridges of Docker engines on this machine. Addresses that users specify must not reach a container through us:
 * the host can reach every container of every organization, on ports that are closed to everyone else.
 */
import { networkInterfaces } from 'node:os'
import { type Address, isWithin, parseNetwork } from './address-policy.ts'

/** As engines name them: `docker0`, and `br-` with the beginning of the network's id. */
const isBridge = (name: string): boolean => /^(docker\d*|br-[0-9a-f]{12})$/.test(name)
/** Asking the kernel costs more than everything else here, and there may be a delivery every millisecond. */
const keptMs = 1000

export type Interfaces = () => Record<string, { cidr: string | null }[] | undefined>

export const createEngineBridges = (interfaces: Interfaces = networkInterfaces) => {
  let networks: NonNullable<ReturnType<typeof parseNetwork>>[] = []
  let readAt = Number.NEGATIVE_INFINITY
  return (address: Address): boolean => {
    if (performance.now() - readAt > keptMs) {
      networks = Object.entries(interfaces())
        .filter(([name]) => isBridge(name))
        .flatMap(([, all]) => (all ?? []).flatMap(({ cidr }) => parseNetwork(cidr ?? '') ?? []))
      readAt = performance.now()
    }
    return networks.some((network) => isWithin(network, address))
  }
}
