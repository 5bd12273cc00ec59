/** The two ways in which an outgoing request fails. */

/** The policy forbids it. The message may be shown to the caller: it names the setting and contains no sent value. */
export class OutboundRefused extends Error {
  constructor(reason: string) {
    super(`this address cannot be used: ${reason}`)
    this.name = 'OutboundRefused'
  }
}

/** It was tried and failed. `code` is `unresolved`, `timeout`, `connection`, `too_large` or `aborted`. */
export class OutboundFailed extends Error {
  readonly code: string

  constructor(code: string, message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'OutboundFailed'
    this.code = code
  }
}
