/** What the router does about TLS, and what it says of that to clients. */
import type { TlsBook } from './book.ts'

/** Absent without a port for TLS. */
export interface Secure {
  book: Pick<TlsBook, 'has' | 'answerTo'>
  /** Where clients find it; known once it listens. */
  port: number
  /** Of the header Strict-Transport-Security; 0: none. */
  hstsSeconds: number
  /** The names below it are the platform's, and so are their certificates; '': there are none. */
  ownDomain: string
}

export const isEncrypted = (socket: object | undefined): boolean =>
  (socket as { encrypted?: unknown } | undefined)?.encrypted === true

/** [] if nothing is to be said. */
export const hstsHeader = ({ secure }: { readonly secure?: Secure }, socket: object | undefined): string[] =>
  secure !== undefined && secure.hstsSeconds > 0 && isEncrypted(socket)
    ? ['strict-transport-security', `max-age=${secure.hstsSeconds}`]
    : []
