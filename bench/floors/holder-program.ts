/** The least that holds requests: all that come wait until the parent process says so, then each is answered 200. */
import { type AddressInfo, createServer, type Socket } from 'node:net'

const waiting = new Set<Socket>()
const server = createServer({ noDelay: true }, (socket) => {
  socket.on('error', () => {}).on('close', () => waiting.delete(socket))
  socket.once('data', () => {
    if (waiting.size === 0) process.send?.('wanted')
    waiting.add(socket)
  })
})
server.listen({ host: '127.0.0.1', port: 0, backlog: 1024 }, () =>
  process.send?.((server.address() as AddressInfo).port),
)
process.on('message', () => {
  for (const socket of waiting) socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
})
process.on('disconnect', () => process.exit(0))
