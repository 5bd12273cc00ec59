/** Errors as responses: one body for every status, without internals. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ApiError, badRequest, reasonPhrase, unavailable } from '../lib/errors.ts'
import type { Log } from '../lib/log.ts'
import { sqlState } from '../store/database.ts'
import { prefersProblem, problemType } from './accept.ts'
import { notAppliedHeader } from './operations/not-applied.ts'

interface ErrorBody {
  status: number
  error: string
  message: string
  detail: string
  code: string
  request_id: string
  details?: { field: string; message: string }[]
}

const bodyOf = (error: ApiError, requestId: string): ErrorBody => ({
  status: error.status,
  error: reasonPhrase(error.status),
  message: error.message,
  detail: error.message,
  code: error.code,
  request_id: requestId,
  ...(error.details === undefined ? {} : { details: error.details }),
})

// Errors raised by the HTTP library itself.
const library: Record<string, [number, string, string]> = {
  FST_ERR_CTP_BODY_TOO_LARGE: [413, 'body_too_large', 'The body is larger than this server accepts.'],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: [415, 'unsupported_media_type', 'The body must be application/json in UTF-8.'],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: [400, 'invalid_request', 'The body does not match its Content-Length.'],
}

/** Any error as the caller may see it; an internal one is logged and becomes an opaque 500. */
export const toApiError = (error: unknown, log: Log, requestId: string): ApiError => {
  if (error instanceof ApiError) return error
  const known = library[(error as { code?: string }).code ?? '']
  if (known !== undefined) return new ApiError(...known)
  // The caller disconnected while sending its body: the response reaches no one, and nothing failed on our side.
  if (error instanceof Error && error.message === 'aborted' && 'statusCode' in error)
    return badRequest('The connection was closed before the whole body arrived.')
  const state = sqlState(error)
  if (state === '22P05' || state === '22021') return badRequest('The request contains text that cannot be stored.')
  if (state === '40P01' || state === '40001') return unavailable('busy', 'The server is busy: try again.', 1)
  log.error({ err: error, requestId }, 'a request failed')
  return new ApiError(500, 'internal', 'Internal error: quote the request id when you report it.')
}

/** Sends an error as the plain body, or as a problem document (RFC 9457) if the client asks for one. */
export const sendError = (request: FastifyRequest, reply: FastifyReply, error: ApiError): void => {
  const body = bodyOf(error, request.id)
  reply.removeHeader(notAppliedHeader).code(error.status).headers(error.headers)
  if (error.status === 413) reply.header('connection', 'close')
  if (!prefersProblem(request.headers.accept)) {
    reply.header('content-type', 'application/json; charset=utf-8').send(JSON.stringify(body))
    return
  }
  const address = {
    type: `urn:slipway:${error.code}`,
    title: body.error,
    instance: `urn:slipway:request:${request.id}`,
  }
  reply.header('content-type', `${problemType}; charset=utf-8`).send(JSON.stringify({ ...address, ...body }))
}
