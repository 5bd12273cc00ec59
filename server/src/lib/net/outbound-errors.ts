/** The two ways in which an outgoing request fails, and the part of the request that failed. */

/** The policy forbids it. The message may be shown to the caller: it names the setting and contains no sent value. */
export class OutboundRefused extends Error {
  constructor(reason: string) {
    super(`this address cannot be used: ${reason}`)
    this.name = 'OutboundRefused'
  }
}

/** The parts of a request, in the order in which they happen. */
export type Phase = 'resolve' | 'connect' | 'tls' | 'answer' | 'body'

/** The part that one request has reached. */
export interface Progress {
  phase: Phase
}

/** It was tried and failed. `code` is `unresolved`, `timeout`, `connection`, `too_large` or `aborted`. */
export class OutboundFailed extends Error {
  readonly code: string
  /** The part that failed; null where it is not known, or does not matter. */
  readonly phase: Phase | null

  constructor(code: string, message: string, cause?: unknown, phase: Phase | null = null) {
    super(message, { cause })
    this.name = 'OutboundFailed'
    this.code = code
    this.phase = phase
  }
}

const lateWords: Readonly<Record<Phase, string>> = {
  resolve: 'the host name was not resolved in time',
  connect: 'no connection could be made in time',
  tls: 'the TLS handshake did not complete in time',
  answer: 'the connection was accepted, but there was no answer in time',
  body: 'the answer stopped before it was complete',
}

const brokenWords: Readonly<Record<Phase, string>> = {
  resolve: 'the host name could not be resolved',
  connect: 'the connection failed',
  tls: 'the TLS handshake failed',
  answer: 'the connection was closed before an answer came',
  body: 'the connection was closed before the answer was complete',
}

export const tooLate = ({ phase }: Progress, cause?: unknown): OutboundFailed =>
  new OutboundFailed('timeout', lateWords[phase], cause, phase)

/** An error of the connection, named by the part that it ended. */
export const explainFailure = (error: unknown, progress: Progress): Error => {
  if (error instanceof OutboundRefused || error instanceof OutboundFailed) return error
  const { code = '', message = '' } = error as { code?: string; message?: string }
  if (/TIMEOUT|ETIMEDOUT/.test(code)) return tooLate(progress, error)
  const cause = /^[A-Z][A-Z0-9_]{2,60}$/.test(code) ? code : message.slice(0, 120)
  return new OutboundFailed('connection', `${brokenWords[progress.phase]} (${cause})`, error, progress.phase)
}
