/** The program behind the proxies of figure 9: 13 bytes for every request. Prints its port. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

const server = createServer({ keepAliveTimeout: 60_000 }, (req, res) => {
  req.resume()
  res.setHeader('content-type', 'text/plain').end('hello, world\n')
})
server.listen(0, '127.0.0.1', 4096, () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`))
process.on('disconnect', () => process.exit(0))
