/**
 * A process that answers like a hostile chart repository, git host and Docker engine that want to block their client:
 * large texts of very many values. Started with the paths of a certificate and its key; prints its two ports.
 */
import { readFileSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'

const megabytes = (count: number): number => count * 2 ** 20
const filled = (begin: string, unit: string, end: string, bytes: number): Buffer =>
  Buffer.from(begin + unit.repeat(Math.floor((bytes - begin.length - end.length) / unit.length)) + end)

const charts = (bytes: number): Record<string, Buffer> => ({
  '/lines/index.yaml': filled('entries:\n', '\n', '', bytes),
  '/lists/index.yaml': filled('{"entries":{},"x":[[]', ',[]', ']}', bytes),
  '/items/index.yaml': filled('entries:\n', '  - \n', '', bytes),
  // As many values as are parsed.
  '/objects/index.yaml': filled(`{"entries":{},"x":[${'{},'.repeat(298_000)}{}],"y":"`, 'y', '"}', bytes),
})

const answers: Record<string, Buffer> = charts(megabytes(31))
const hosts = filled('[{}', ',{}', ']', megabytes(4))
const engine = filled('{"x":[{}', ',{}', ']}', megabytes(60))

const listener: RequestListener = ({ url = '/' }, response) => {
  const { pathname } = new URL(url, 'http://peer.invalid')
  response.setHeader('content-type', 'application/json')
  response.end(answers[pathname] ?? (pathname.includes('/api/') ? hosts : engine))
}

const [, , cert, key] = process.argv
const servers = [
  createServer(listener),
  createTlsServer({ cert: readFileSync(cert!), key: readFileSync(key!) }, listener),
]
const ports = await Promise.all(
  servers.map((server) => {
    const { promise, resolve } = Promise.withResolvers<number>()
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port))
    return promise
  }),
)
process.stdout.write(`${ports.join(' ')}\n`)
