/**
 * Which web pages may call this API from a browser: those whose origin the operator lists, exactly; none by default.
 * Promises that every answer to such a page can be read by it, errors too, and that a page of another origin learns
 * nothing. Cookies of such a page prove nothing here (console/sessions.ts), so none is invited to send any. Keeps no state.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ApiError } from '../lib/errors.ts'
import { words } from '../lib/words.ts'

export interface Cors {
  addHeaders(request: FastifyRequest, reply: FastifyReply): void
  /** Answers the preflight request of a browser for a listed origin; false if the request is not one. */
  answerPreflight(request: FastifyRequest, reply: FastifyReply): boolean
  /** Throws a 403 for a websocket that a page of an unlisted origin opens. */
  checkSocket(request: FastifyRequest): void
}

const methods = 'GET, HEAD, POST, PUT, PATCH, DELETE'
const usualHeaders = 'authorization, content-type, accept, idempotency-key, if-none-match, last-event-id, x-request-id'
const readable = words(
  'etag x-request-id x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset retry-after links',
  'slipway-not-applied idempotent-replayed content-disposition',
).join(', ')
/** The longest that every browser keeps an answer. */
const keepSeconds = 7200

const headerNames = /^[\w-]{1,64}( *, *[\w-]{1,64}){0,31}$/

/** A listed page may send headers that we do not know (tracing, a version): nothing here reads them. */
const allowedHeaders = (asked: string | undefined): string =>
  asked !== undefined && headerNames.test(asked) ? asked : usualHeaders

export const ownOrigin = ({ protocol, host }: FastifyRequest): string => `${protocol}://${host}`

export const createCors = (origins: readonly string[]): Cors => {
  const listed = new Set(origins)
  const originOf = ({ headers }: FastifyRequest): string | undefined =>
    headers.origin !== undefined && listed.has(headers.origin) ? headers.origin : undefined
  return {
    addHeaders(request, reply) {
      if (listed.size === 0) return
      const origin = originOf(request)
      reply.header('vary', 'Origin')
      if (origin !== undefined)
        reply.headers({ 'access-control-allow-origin': origin, 'access-control-expose-headers': readable })
    },
    answerPreflight(request, reply) {
      const { method, headers } = request
      if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false
      if (originOf(request) === undefined) return false
      reply
        .code(204)
        .headers({
          'access-control-allow-methods': methods,
          'access-control-allow-headers': allowedHeaders(headers['access-control-request-headers']),
          'access-control-max-age': String(keepSeconds),
          vary: 'Origin, Access-Control-Request-Headers',
        })
        .send()
      return true
    },
    checkSocket(request) {
      const { origin, authorization } = request.headers
      // Pages cannot set this header: its sender is a program, whatever origin it claims.
      if (listed.size === 0 || origin === undefined || authorization !== undefined) return
      if (listed.has(origin) || origin === ownOrigin(request)) return
      throw new ApiError(
        403,
        'origin_not_allowed',
        'Web pages of this origin may not connect: add it to SLIPWAY_CORS_ORIGINS.',
      )
    },
  }
}
