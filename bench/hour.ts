/** The lines that a program prints in an hour at 1,000 a second, given to a reader as fast as it takes them. */
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { type WebSocket, WebSocketServer } from 'ws'

const lines = 3_600_000
/** Lines of one message. The server sends each by itself, which for so many would take the browser some minutes. */
const atOnce = 100
const startedAt = 1_700_000_000_000
const mostBuffered = 1_000_000

export const lastLine = `line ${lines - 1} `

const message = (first: number): string =>
  JSON.stringify(
    Array.from({ length: atOnce }, (_, at) => ({
      created_at: startedAt + first + at,
      message: `line ${first + at} of a program that says something of ordinary length each time`,
      pod_name: `instance-${at % 3}`,
      severity_text: at % 50 === 0 ? 'ERROR' : 'INFO',
    })),
  )

/** The reader's connection says when it has taken what was sent: nothing piles up on either side. */
const sendAll = async (socket: WebSocket): Promise<void> => {
  for (let first = 0; first < lines && socket.readyState === socket.OPEN; first += atOnce) {
    const taken = new Promise((resolve) => socket.send(message(first), resolve))
    if (socket.bufferedAmount > mostBuffered) await taken
  }
}

export interface Hour {
  url: string
  close(): Promise<void>
}

/** A server whose readers each get all of them. */
export const startHour = async (): Promise<Hour> => {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 })
  server.on('connection', (socket) => void sendAll(socket))
  await once(server, 'listening')
  return {
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    async close() {
      for (const socket of server.clients) socket.terminate()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
