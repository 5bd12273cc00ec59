import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Endpoint {
  port: number
  close(): void
}

/** Answers every request on 127.0.0.1 with `body`, or hangs up while `silent` says so. Port 0 is any free one. */
const listenTcp = (port: number, body: string, silent: () => boolean): Promise<Endpoint> => {
  const server = createServer((request, answer) => {
    if (silent()) return void request.socket.destroy()
    answer.setHeader('content-type', 'application/json')
    request.resume()
    request.on('end', () => answer.end(body))
  })
  const close = () => {
    server.close()
    server.closeAllConnections()
  }
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', () => resolve({ port: (server.address() as AddressInfo).port, close }))
  })
}

/** The same for every datagram. */
const listenUdp = async (port: number, body: string, silent: () => boolean): Promise<Endpoint> => {
  const socket = createSocket('udp4')
  socket.on('message', (_, from) => silent() || socket.send(body, from.port, from.address))
  socket.bind({ port, address: '127.0.0.1', exclusive: true })
  await once(socket, 'listening')
  return { port, close: () => socket.close() }
}

const tries = 5

/** One port number, over TCP and, where asked for, over UDP too. */
export const listen = async (port: number, udp: boolean, body: string, silent: () => boolean): Promise<Endpoint> => {
  for (let left = tries; ; left -= 1) {
    const tcp = await listenTcp(port, body, silent)
    if (!udp) return tcp
    try {
      const beside = await listenUdp(tcp.port, body, silent)
      return { port: tcp.port, close: () => void [tcp, beside].map((each) => each.close()) }
    } catch (error) {
      tcp.close()
      if (port !== 0 || left === 1) throw error
    }
  }
}
