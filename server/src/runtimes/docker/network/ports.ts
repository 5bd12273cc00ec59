/**
 * Ports for containers that cannot be reached at their own addresses: chosen by us, so that they survive a restart by
 * the engine. Ports in use on this machine are detected by trying them, those on another machine by its engine, which
 * refuses the start.
 */
import { createSocket } from 'node:dgram'
import { createServer } from 'node:net'
import { DeploymentError } from '../../../lib/errors.ts'
import type { WorkloadPort } from '../../runtime.ts'
import type { HostPorts } from '../describe.ts'

// Below the ephemeral range of Linux, or outgoing connections would use them; and below the default ports of routes.
const first = 15_000
const count = 15_000

export const isOurs = (port: number): boolean => port >= first && port < first + count

export interface Ports {
  /** Picks free ports and keeps them for `name` until released. */
  take(name: string, ports: readonly WorkloadPort[]): Promise<HostPorts>
  /** Keeps ports that a container already has: while it is down, between two starts, no socket uses them. */
  keep(name: string, ports: HostPorts): void
  release(name: string): void
}

const isFreeTcp = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => resolve(true)))
  })

const isFreeUdp = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = createSocket('udp4')
    socket.once('error', () => resolve(false))
    socket.bind({ port, address: '127.0.0.1', exclusive: true }, () => socket.close(() => resolve(true)))
  })

/** A port has one number for both transports, so that an internal port has one endpoint over either. */
export const isFreeHere = async (port: number, udp: boolean): Promise<boolean> =>
  (await isFreeTcp(port)) && (!udp || (await isFreeUdp(port)))

export const createPorts = (isFree = isFreeHere): Ports => {
  const holders = new Map<number, string>()
  let next = Math.floor(Math.random() * count)

  const takeOne = async (name: string, udp: boolean): Promise<number> => {
    for (let tries = 0; tries < count; tries += 1) {
      const port = first + (next++ % count)
      if (holders.has(port)) continue
      holders.set(port, name)
      if (await isFree(port, udp)) return port
      holders.delete(port)
    }
    throw new DeploymentError('no_free_port', `No port between ${first} and ${first + count - 1} is free.`)
  }

  const release = (name: string): void => {
    for (const [port, holder] of holders) if (holder === name) holders.delete(port)
  }

  return {
    take: async (name, ports) => {
      const taken: HostPorts = {}
      for (const { internalPort } of ports) {
        if (taken[internalPort] !== undefined) continue
        const udp = ports.some((port) => port.internalPort === internalPort && port.protocol === 'UDP')
        taken[internalPort] = await takeOne(name, udp)
      }
      return taken
    },
    keep: (name, ports) => {
      for (const port of Object.values(ports)) holders.set(port, name)
    },
    release,
  }
}
