/** How an attempt can fail. */
const resets: ReadonlySet<unknown> = new Set(['CLOSED', 'ECONNRESET', 'EPIPE'])

export const codeOf = (error: Error): unknown => (error as NodeJS.ErrnoException).code

export const clientGone = new Error('the client disconnected')
/** The response is not passed on, because the request is repeated. */
export const unwanted = new Error('the response is discarded')

export class LateError extends Error {
  constructor() {
    super('it took too long')
  }
}

/** The target closed its connection in the middle of an exchange. */
export class ClosedError extends Error {
  readonly code = 'CLOSED'

  constructor() {
    super('its connection was closed')
  }
}

/** The target sent something that is not a response. `fault`: why, as the end of a sentence. */
export class MalformedError extends Error {
  readonly fault: string

  constructor(fault: string) {
    super(`its response is not valid HTTP: ${fault}`)
    this.fault = fault
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

export const isReset = (error: Error): boolean => resets.has(codeOf(error))
export const isSilence = (error: Error): boolean => error instanceof LateError
