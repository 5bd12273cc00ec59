import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Endpoint {
  port: number
  close(): void
}

/** Answers every request on 127.0.0.1 with `body`, or hangs up while `silent` says so. Port 0 is any free one. */
export const listen = (port: number, body: string, silent: () => boolean): Promise<Endpoint> => {
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
