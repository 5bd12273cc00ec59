/** What this machine knows about networks: which it has, and whether a bridge of the engine is here. */
import { access, readFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { networkInterfaces } from 'node:os'
import { parseRoutes } from './subnets.ts'

/** Also networks of other engines whose bridges have no container: those are only in the table of routes. */
export const ownSubnets = async (): Promise<string[]> => [
  ...Object.values(networkInterfaces()).flatMap((all) => (all ?? []).flatMap(({ cidr }) => cidr ?? [])),
  ...parseRoutes(await readFile('/proc/net/route', 'latin1').catch(() => '')),
]

/** Only an address of this machine can be listened at; unlike the list of interfaces, this sees idle bridges. */
const isOwnAddress = (address: string): Promise<boolean> =>
  new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen({ port: 0, host: address, exclusive: true }, () => server.close(() => resolve(true)))
  })

const bridgeOf = (networkId: string): string => `br-${networkId.slice(0, 12)}`

const hasLink = (name: string): Promise<boolean> =>
  access(`/sys/class/net/${name}`).then(
    () => true,
    () => false,
  )

/**
 * Whether this machine reaches the containers of a network at their own addresses: its bridge, by the name that the
 * engine makes of its id, and its gateway are here. An engine elsewhere, in a virtual machine, or without root has them
 * elsewhere.
 */
export const isBridgeHere = async (networkId: string, gateway: string): Promise<boolean> =>
  (await hasLink(bridgeOf(networkId))) && (await isOwnAddress(gateway))

/** The default bridge of an engine of this machine is here too: without it, nothing is known. */
export const isBridgeGone = async (networkId: string): Promise<boolean> =>
  networkId !== '' && !(await hasLink(bridgeOf(networkId))) && (await hasLink('docker0'))
