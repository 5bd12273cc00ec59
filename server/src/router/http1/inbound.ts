/** A request as the exchange sees it, whichever version of HTTP it came over, and the way back to its client. */
import type { Rules } from '../access/rules.ts'

import type { Origin } from '../exchange/headers.ts'
import type { PageName } from '../exchange/pages.ts'
import type { BodySink } from './body.ts'
import type { ResponseHead } from './response-head.ts'

/** The destination of a request's body; its bytes are framed as in HTTP/1.1. */
export interface RequestSink extends BodySink {
  /** Latin-1, before and behind the bytes. */
  onBodyText(text: string): void
  /** All that has arrived was given. */
  onBodyTurn(): void
  onBodyEnd(): void
}

export interface Answerer {
  onClientGone(): void
  /** The written bytes have been sent. */
  onClientDrain(): void
}

export interface Inbound extends Origin {
  readonly method: string
  /** Normalized. */
  readonly host: string
  readonly path: string
  /** 0: none; -1: of unknown length. */
  readonly bodyLength: number
  /** Bytes of the body so far, without its framing. */
  readonly receivedBytes: number
  /** The client waits for `100 Continue` before it sends the body. */
  readonly expectsContinue: boolean
  /** About what its head keeps in memory. */
  readonly headBytes: number
  readonly isHeadSent: boolean
  /** The head for the target, as text. */
  headForTarget(path: string): string
  /** Sets the party whose share the request takes. */
  belongTo(party: string): void
  /** From now on this answerer gets the client's events. */
  answerBy(answerer: Answerer): void
  /** The longest silence in the middle of this request; 0: the default; `Infinity`: no limit. */
  allowSilence(ms: number): void
  /** Nothing of the body is given, and little of it read, before this. `onBodyTurn` follows in any case. */
  takeBody(sink: RequestSink): void
  pauseBody(): void
  resumeBody(): void
  /** The rest of it is not needed. */
  leaveBody(): void
  sendContinue(): void
  sendHints(links: readonly string[]): void
  /**
   * `passed`: its headers if they differ from those of the head. Returns whether chunks should be passed in their
   * framing.
   */
  respond(head: ResponseHead, passed: string[] | null, rules: Rules): boolean
  pass(bytes: Buffer, from: number, to: number): void
  /** Sends the bytes passed so far. False: `onClientDrain` follows. */
  flush(): boolean
  end(trailers: readonly string[]): void
  /** Ends a response that cannot be completed. */
  breakOff(): void
  /** `why`: as for `renderPage`. */
  sendPage(name: PageName, added: readonly string[], why?: string): void
  /** A response of our own; headers are flat. */
  sendPlain(status: number, headers: readonly string[], body: string): void
}
