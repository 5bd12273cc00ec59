/** How long the body of a request may take to arrive. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { archiveType } from './operations/operation.ts'
import { answerParserError } from './parser-error.ts'

const usualMs = 30_000

/** Its body is streamed, and has the server's own limit. */
export const isLong = ({ routeOptions, match }: FastifyRequest): boolean =>
  routeOptions.config?.isLong === true || match?.operation.consumes === archiveType

/** Answers 408 if the body of a request that is not long has not arrived in time. */
export const limitBodyTime = (request: FastifyRequest, reply: FastifyReply, withinMs = usualMs): void => {
  const { raw } = request
  const { 'content-length': length, 'transfer-encoding': encoding } = request.headers
  const isEmpty = encoding === undefined && (length === undefined || length === '0')
  if (isEmpty) return
  const late = setTimeout(() => {
    if (raw.complete || isLong(request)) return
    // A second answer would be taken for the answer to the next request.
    if (reply.raw.headersSent) raw.socket.destroy()
    else answerParserError(Object.assign(new Error('late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), raw.socket)
  }, withinMs)
  raw.once('end', () => clearTimeout(late))
  raw.once('close', () => clearTimeout(late))
}
