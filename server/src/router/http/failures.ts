/** How an attempt can fail, by the errors of undici and ours. */
const resets: ReadonlySet<unknown> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE'])
const silences: ReadonlySet<unknown> = new Set(['UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT', 'LATE'])
const refusals: ReadonlySet<unknown> = new Set(['UND_ERR_INVALID_ARG', 'UND_ERR_NOT_SUPPORTED'])

export const codeOf = (error: Error): unknown => (error as NodeJS.ErrnoException).code

export const clientGone = new Error('the client disconnected')
/** The response is not passed on, because the request is repeated. */
export const unwanted = new Error('the response is discarded')

/** A limit of time was reached. */
export class LateError extends Error {
  readonly code = 'LATE'

  constructor() {
    super('it took too long')
  }
}

/** A request's body, or a response's headers, are larger than allowed. */
export class TooLarge extends Error {
  readonly of: 'body' | 'headers'

  constructor(of: TooLarge['of']) {
    super(`the ${of} exceeded the limit`)
    this.of = of
  }
}

/** The connection broke. */
export const isReset = (error: Error): boolean => resets.has(codeOf(error))
/** Nothing came in time. */
export const isSilence = (error: Error): boolean => silences.has(codeOf(error))
/** Nothing is wrong with the target: another attempt would end the same. */
export const isRefusal = (error: Error): boolean => refusals.has(codeOf(error))
