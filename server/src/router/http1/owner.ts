/** The owner of a connection of HTTP/1.1: the code that accepted it. */
import type { Socket } from 'node:net'
import type { OwnCounts } from '../counts.ts'
import type { Shares } from '../shares.ts'
import type { IsTrusted } from '../sources.ts'
import type { Secure } from '../tls/secure.ts'
import type { Http1Client } from './client.ts'

/** What the connections of clients share with all other traffic of this process. */
export interface ClientTraffic {
  readonly isTrusted: IsTrusted
  readonly counts: OwnCounts
  /** The shares of this process's descriptors. */
  readonly shares: Shares
  stopping: boolean
  /** So many connections of HTTP/1.1 should end with their next response, because other processes have fewer. */
  shed: number
  /** Absent: TLS is off. */
  readonly secure?: Secure
}

export interface ClientLimits {
  headerBytes: number
  /** For the whole head of a request, from its first byte. */
  headersTimeoutMs: number
  /**
   * How long a client may neither send nor receive anything in the middle of a request, if its service does not allow
   * more.
   */
  silenceMs: number
  /** Between two requests. */
  idleMs: number
}

export interface ClientOwner {
  readonly traffic: ClientTraffic
  readonly limits: ClientLimits
  /** The head of a request has been read. */
  serve(client: Http1Client): void
  /** The connection begins like HTTP/2: it is no longer ours. */
  onPreface(client: Http1Client, socket: Socket, bytes: Buffer): void
  /** It asks for another protocol: it is no longer ours. `bytes` are those after the request. */
  onUpgrade(client: Http1Client, socket: Socket, bytes: Buffer): void
  /** A request is over. */
  onLeave(): void
  onGone(client: Http1Client): void
}
