/**
 * Responses with the same bytes for every client: made once, each also compressed, and answered with a 304 to clients
 * that have them. Bodies in memory are shared by all connections, so that a slow client keeps none of its own.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'

export type Encoding = 'br' | 'gzip' | 'identity'

/** Bytes in memory, or a file of so many bytes. */
export type Body = Buffer | { path: string; bytes: number }

export interface Document {
  type: string
  /** Without quotes. */
  etag: string
  /** `identity` is always there. */
  bodies: ReadonlyMap<Encoding, Body>
}

/** A quarter of a second for 4 MB, in a thread; higher ones take seconds and save little. */
const brotliQuality = 5

export const etagOf = (bytes: Buffer | string): string =>
  createHash('sha256').update(bytes).digest('base64url').slice(0, 22)

export const createDocument = async (type: string, content: Buffer | string): Promise<Document> => {
  const bytes = Buffer.from(content as string)
  const [br, gzipped] = await Promise.all([
    promisify(brotliCompress)(bytes, {
      params: { [constants.BROTLI_PARAM_QUALITY]: brotliQuality, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length },
    }),
    promisify(gzip)(bytes),
  ])
  const bodies = new Map<Encoding, Body>([
    ['br', br],
    ['gzip', gzipped],
    ['identity', bytes],
  ])
  return { type, etag: etagOf(bytes), bodies }
}

const isAccepted = (header: string | undefined, encoding: Encoding): boolean =>
  (header ?? '').split(',').some((each) => {
    const [name = '', ...parameters] = each.split(';').map((part) => part.trim().toLowerCase())
    return name === encoding && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter))
  })

const encodingFor = ({ bodies }: Document, { headers }: FastifyRequest): Encoding =>
  (['br', 'gzip'] as const).find(
    (encoding) => bodies.has(encoding) && isAccepted(headers['accept-encoding'], encoding),
  ) ?? 'identity'

const hasIt = ({ headers }: FastifyRequest, etag: string): boolean =>
  (headers['if-none-match'] ?? '').split(',').some((each) => each.trim() === etag || each.trim() === '*')

/** `vary`: the request headers that decide which response this address has, besides Accept-Encoding. */
export const sendDocument = (
  request: FastifyRequest,
  reply: FastifyReply,
  document: Document,
  vary: readonly string[] = [],
): FastifyReply => {
  const etag = `W/"${document.etag}"`
  const before = reply.getHeader('vary')
  const names = [...(before === undefined ? [] : [String(before)]), ...vary, 'Accept-Encoding']
  reply.headers({ vary: names.join(', '), etag })
  if (hasIt(request, etag)) return reply.code(304).send()
  const encoding = encodingFor(document, request)
  const body = document.bodies.get(encoding)!
  const length = Buffer.isBuffer(body) ? body.length : body.bytes
  reply.headers({ 'content-type': document.type, 'content-length': length })
  if (encoding !== 'identity') reply.header('content-encoding', encoding)
  if (request.method === 'HEAD') return reply.send()
  return reply.send(Buffer.isBuffer(body) ? body : createReadStream(body.path))
}
