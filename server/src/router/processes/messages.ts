/** Messages between the router's first process and the others. Neither checks them: they trust each other. */
import type { AnyRoute, Target } from '../router.ts'
import type { State } from '../serving.ts'
import type { TlsEntry } from '../tls/tls-store.ts'

/** How many processes share the ports: `least` from the start, more as their load requires. */
export interface ProcessNumbers {
  least: number
  most: number
}

/** All data that a process needs before it accepts a connection. */
export interface Beginning {
  routes: readonly AnyRoute[]
  trustedProxies: readonly string[]
  /** Null: TLS is off. */
  tls: {
    folder: string
    port: number
    hstsSeconds: number
    ownDomain: string
    /** Base64: a client that resumes a session may reach any process. */
    ticketKeys: string
    entries: readonly (readonly [string, TlsEntry])[]
  } | null
}

export type Order =
  | { kind: 'begin'; beginning: Beginning }
  /** With a listening socket, which is shared from now on. */
  | { kind: 'accept'; over: 'http' | 'https' }
  /** All routes of these services, which replace the former ones. */
  | { kind: 'routes'; services: readonly (readonly [string, readonly AnyRoute[]])[] }
  | { kind: 'tls'; host: string; entry: TlsEntry | null }
  /** Limits for all processes together are divided by so many. */
  | { kind: 'share'; processes: number }
  /** Answered with the number of remaining requests. */
  | { kind: 'drain'; targets: readonly Target[]; timeoutMs: number }
  | { kind: 'idle' }
  | { kind: 'state' }
  /** Asks for a new report of the services that requests wait for. */
  | { kind: 'wanted' }
  /** So many clients are asked to connect again. */
  | { kind: 'shed'; connections: number }
  /** No new connection is accepted; it ends when its clients have left. */
  | { kind: 'leave' }
  /** The same, and it ends when no request is in progress, or after its time. */
  | { kind: 'close'; graceMs: number }

/** Sent once a second. */
export interface Pulse extends State {
  busy: number
}

export type Notice =
  | { kind: 'ready' }
  | { kind: 'answer'; id: number; value?: unknown }
  | { kind: 'pulse'; pulse: Pulse }
  /** Requests wait for this service. */
  | { kind: 'wanted'; serviceId: string }

export interface Numbered {
  id: number
  order: Order
}
