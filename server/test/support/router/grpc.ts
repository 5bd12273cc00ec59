/** Parts of the tests: programs that speak HTTP/2 as gRPC does, and a client of theirs. */
import { once } from 'node:events'
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2'
import type { AddressInfo, Socket } from 'node:net'
import type { TestContext } from 'node:test'
import type { Target } from '../../../src/router/router.ts'

export interface GrpcProgram {
  server: Http2Server
  target: Target
  streams: { stream: ServerHttp2Stream; headers: IncomingHttpHeaders }[]
  sessions: Set<ServerHttp2Session>
  /** Ends at once, whatever is under way. */
  close(): void
}

/** Echoes what it gets with its name; `/late` sends its head with the first byte only, `/hang` nothing at all. */
export const echo = (name: string) => (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
  const head = { ':status': 200, 'content-type': 'application/grpc', 'x-version': name }
  if (headers[':path'] === '/hang') return
  if (headers[':path'] === '/not-found') return stream.respond({ ...head, 'grpc-status': '5' }, { endStream: true })
  stream.respond(head, { waitForTrailers: true })
  stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0', 'x-trailer-bin': 'AAE' }))
  stream.pipe(stream)
}

export const serveGrpc = async (
  t: TestContext,
  handler: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void,
  settings: { maxConcurrentStreams?: number } = {},
): Promise<GrpcProgram> => {
  const server = createServer({ settings })
  const sessions = new Set<ServerHttp2Session>()
  const sockets = new Set<Socket>()
  const streams: GrpcProgram['streams'] = []
  server.on('connection', (socket: Socket) => sockets.add(socket.once('close', () => sockets.delete(socket))))
  server.on('session', (session) => {
    sessions.add(session.once('close', () => sessions.delete(session)))
    session.on('error', () => {})
  })
  server.on('stream', (stream, headers) => {
    stream.on('error', () => {})
    streams.push({ stream, headers })
    handler(stream, headers)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = (): void => {
    server.close()
    for (const socket of sockets) socket.destroy()
  }
  t.after(close)
  return {
    server,
    sessions,
    streams,
    target: { host: '127.0.0.1', port: (server.address() as AddressInfo).port },
    close,
  }
}

export const openClient = (t: TestContext, port: number): ClientHttp2Session => {
  const session = connect(`http://127.0.0.1:${port}`)
  session.on('error', () => {})
  t.after(() => session.destroy())
  return session
}

export interface GrpcAnswer {
  headers: IncomingHttpHeaders
  /** The headers, if the answer has only headers. */
  trailers: IncomingHttpHeaders
  body: string
  rstCode: number
}

export const openStream = (
  session: ClientHttp2Session,
  path: string,
  more: OutgoingHttpHeaders = {},
): ClientHttp2Stream => {
  const authority = 'a.localhost'
  const grpc = { 'content-type': 'application/grpc', te: 'trailers' }
  const stream = session.request({ ':method': 'POST', ':path': path, ':authority': authority, ...grpc, ...more })
  return stream.on('error', () => {})
}

/** Resolves when nothing more comes, whether that was an error or not. */
export const ended = (stream: ClientHttp2Stream): Promise<void> => {
  const { promise, resolve } = Promise.withResolvers<void>()
  if (stream.destroyed) resolve()
  stream.once('close', resolve)
  return promise
}

export const readStream = async (stream: ClientHttp2Stream): Promise<GrpcAnswer> => {
  let [headers, trailers]: IncomingHttpHeaders[] = [{}, undefined as never]
  let body = ''
  stream.on('response', (received) => {
    headers = received
  })
  stream.on('trailers', (received) => {
    trailers = received
  })
  stream.setEncoding('latin1').on('data', (chunk) => {
    body += chunk
  })
  await ended(stream)
  return { headers: headers!, trailers: trailers ?? headers!, body, rstCode: stream.rstCode ?? 0 }
}

export const callGrpc = (session: ClientHttp2Session, path: string, body: string, more?: OutgoingHttpHeaders) => {
  const stream = openStream(session, path, more)
  stream.end(body)
  return readStream(stream)
}
