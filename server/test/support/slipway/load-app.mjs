// The application under load: answers its version on /, after 300 ms on /slow, a POST's body back, and echoes
// websocket messages. On SIGTERM it finishes what is under way and closes its websockets with 1012.
import { createServer } from 'node:http'
import { WebSocketServer } from 'ws'
import { version } from './version.mjs'

const answer = (response, body) => {
  response.writeHead(200, { 'content-type': 'text/plain', 'x-version': version })
  response.end(body)
}

const server = createServer((request, response) => {
  if (request.method === 'POST') {
    const chunks = []
    request.on('data', (chunk) => chunks.push(chunk)).on('end', () => answer(response, Buffer.concat(chunks)))
  } else if (request.url === '/slow') setTimeout(() => answer(response, version), 300)
  else answer(response, version)
})
const sockets = new WebSocketServer({ server })
sockets.on('connection', (socket) => socket.on('message', (message) => socket.send(`${version} ${message}`)))
server.listen(8080)
console.log(`version ${version} listens`)

process.on('SIGTERM', () => {
  for (const socket of sockets.clients) socket.close(1012)
  server.close(() => process.exit(0))
  server.closeIdleConnections()
})
