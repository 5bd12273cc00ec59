/** The router's own responses to a gRPC client: headers only, with a status the client understands. */
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2'
import { type PageName, renderPage } from '../exchange/pages.ts'

const unavailable = 14

/** How gRPC clients interpret the HTTP statuses of our pages. */
const statuses: Partial<Record<PageName, number>> = {
  unknown: 12,
  method: 12,
  protocol: 12,
  malformed: 13,
  path: 13,
  misdirected: 13,
  unasked: 12,
  elsewhere: 12,
  forbidden: 7,
  unauthorized: 16,
  tried: 8,
  silent: 4,
}

export const isGrpc = (headers: IncomingHttpHeaders): boolean =>
  /^application\/grpc($|[+;])/.test(headers['content-type'] ?? '')

export const grpcTrailers = (name: PageName, host: string): OutgoingHttpHeaders => {
  const { message } = JSON.parse(renderPage(name, host, undefined).body) as { message: string }
  return { 'grpc-status': String(statuses[name] ?? unavailable), 'grpc-message': encodeURI(message) }
}

export const grpcAnswer = (name: PageName, host: string): OutgoingHttpHeaders => ({
  ':status': 200,
  'content-type': 'application/grpc',
  ...grpcTrailers(name, host),
})
