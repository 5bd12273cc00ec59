/** What the router does about TLS, and what it says of that to clients. */
import type { TlsStore } from './tls-store.ts'

/** Absent without a port for TLS. */
export interface Secure {
  tlsStore: Pick<TlsStore, 'has' | 'answerTo'>
  /** The port for clients; known once it listens. */
  port: number
  /** For the header Strict-Transport-Security; 0: none. */
  hstsSeconds: number
  /** Names below it belong to the platform, and so do their certificates; '': there are none. */
  ownDomain: string
}

export const isEncrypted = (socket: object | undefined): boolean =>
  (socket as { encrypted?: unknown } | undefined)?.encrypted === true

/** [] if no header is needed. */
export const hstsHeader = ({ secure }: { readonly secure?: Secure }, socket: object | undefined): string[] =>
  secure !== undefined && secure.hstsSeconds > 0 && isEncrypted(socket)
    ? ['strict-transport-security', `max-age=${secure.hstsSeconds}`]
    : []
