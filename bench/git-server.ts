/** Serves the bare repositories of a folder over HTTP on loopback, read only, by `git http-backend`. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'

const cgiEnvironment = (root: string, request: IncomingMessage) => {
  const url = new URL(request.url ?? '/', 'http://localhost')
  return {
    PATH: process.env.PATH,
    GIT_PROJECT_ROOT: root,
    GIT_HTTP_EXPORT_ALL: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    REQUEST_METHOD: request.method,
    PATH_INFO: decodeURIComponent(url.pathname),
    QUERY_STRING: url.search.slice(1),
    CONTENT_TYPE: request.headers['content-type'] ?? '',
    HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
    GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
  }
}

/** Splits a CGI answer at its empty line: headers, then the body's first bytes. */
const sendHead = (response: ServerResponse, head: string): void => {
  let status = 200
  for (const line of head.split('\r\n')) {
    const [name = '', value = ''] = line.split(/:\s*/, 2)
    if (name.toLowerCase() === 'status') status = Number.parseInt(value, 10)
    else if (name !== '') response.setHeader(name, value)
  }
  response.writeHead(status)
}

const serve = (root: string, request: IncomingMessage, response: ServerResponse): void => {
  const child = spawn('git', ['http-backend'], {
    env: cgiEnvironment(root, request),
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  child.on('error', () => response.destroy())
  child.stdin.on('error', () => {})
  request.pipe(child.stdin)
  let seen = Buffer.alloc(0)
  child.stdout.on('data', function onHead(chunk: Buffer) {
    seen = Buffer.concat([seen, chunk])
    const end = seen.indexOf('\r\n\r\n')
    if (end < 0) return
    child.stdout.off('data', onHead)
    sendHead(response, seen.toString('latin1', 0, end))
    response.write(seen.subarray(end + 4))
    child.stdout.pipe(response)
  })
}

export const startGitServer = async (root: string): Promise<{ origin: string; stop(): Promise<void> }> => {
  const server = createServer((request, response) => serve(root, request, response)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  return {
    origin: `http://127.0.0.1:${port}`,
    async stop() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
