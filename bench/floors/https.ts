/**
 * The least that answers over TLS: Node's own https server with the handler that stands behind the router on our side,
 * which this process serves over plain HTTP too. Arguments: files of certificate and key. Prints both ports as JSON.
 */
import { readFileSync } from 'node:fs'
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo, Server } from 'node:net'

const [certificate = '', key = ''] = process.argv.slice(2).map((path) => readFileSync(path, 'utf8'))
const handler: RequestListener = (req, res) => {
  req.resume()
  res.setHeader('content-type', 'text/plain').end('hello, world\n')
}
const listen = (server: Server): Promise<number> =>
  new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port))
  })
const https = await listen(createHttpsServer({ cert: certificate, key, minVersion: 'TLSv1.2' }, handler))
const http = await listen(createHttpServer(handler))
process.stdout.write(`${JSON.stringify({ https, http })}\n`)
process.on('disconnect', () => process.exit(0))
