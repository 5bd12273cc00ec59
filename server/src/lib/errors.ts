/**
 * The three kinds of errors: the caller's (`ApiError`, answered with its status), a deployment's (`DeploymentError`,
 * recorded with the deployment and shown to its user), and our own (anything else: logged, answered with an opaque
 * 500).
 */
import { sanitizeText } from './sanitize-text.ts'

/** One invalid field of a request: `field` is a JSON pointer into the body (`/ports/0/internal_port`). */
export interface FieldError {
  field: string
  message: string
}

const reasons: Record<number, string> = {
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'Not Found',
  405: 'Method Not Allowed',
  406: 'Not Acceptable',
  409: 'Conflict',
  413: 'Payload Too Large',
  414: 'URI Too Long',
  415: 'Unsupported Media Type',
  429: 'Too Many Requests',
  431: 'Request Header Fields Too Large',
  500: 'Internal Server Error',
  503: 'Service Unavailable',
}

/** The reason phrase of an HTTP status, the `error` field of every error body. */
export const reasonPhrase = (status: number): string => reasons[status] ?? 'Error'

/** An error that the caller can fix. `message` is English, at most 500 characters, and never contains a sent value. */
export class ApiError extends Error {
  readonly status: number
  readonly code: string
  readonly details: FieldError[] | undefined
  readonly headers: Record<string, string>

  constructor(
    status: number,
    code: string,
    message: string,
    more: { details?: FieldError[]; headers?: Record<string, string>; cause?: unknown } = {},
  ) {
    super(message.slice(0, 500), { cause: more.cause })
    this.name = 'ApiError'
    this.status = status
    this.code = code
    this.details = more.details
    this.headers = more.headers ?? {}
  }
}

export const badRequest = (message: string, details?: FieldError[], code = 'invalid_request'): ApiError =>
  new ApiError(400, code, message, { details })

export const invalidField = (field: string, message: string): ApiError =>
  badRequest(`${field.slice(1).replaceAll('/', '.')}: ${message}`, [{ field, message }])

export const notFound = (): ApiError => new ApiError(404, 'not_found', 'Not found.')

export const conflict = (code: string, message: string): ApiError => new ApiError(409, code, message)

export const forbidden = (message: string): ApiError => new ApiError(403, 'forbidden', message)

/** 503: safe to retry after `retryAfterSeconds`. */
export const unavailable = (code: string, message: string, retryAfterSeconds = 2, cause?: unknown): ApiError =>
  new ApiError(503, code, message, { headers: { 'retry-after': String(retryAfterSeconds) }, cause })

/** The action after a deployment's error: `retry` the step at once, `wait` and retry, or `stop` because it is final. */
export type NextMove = 'retry' | 'wait' | 'stop'

/**
 * Why a deployment failed: one plain sentence for its user, and the last lines that explain it (a build's output,
 * a container's log), already scrubbed of secrets.
 */
export class DeploymentError extends Error {
  readonly code: string
  readonly next: NextMove
  readonly lines: string[]

  constructor(code: string, message: string, more: { next?: NextMove; lines?: string[]; cause?: unknown } = {}) {
    super(sanitizeText(message), { cause: more.cause })
    this.name = 'DeploymentError'
    this.code = code
    this.next = more.next ?? 'stop'
    this.lines = (more.lines ?? []).map(sanitizeText)
  }
}
