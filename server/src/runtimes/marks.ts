/**
 * Marks that a control plane leaves on an engine or cluster, by which it recognizes its own line: a generation of its
 * database, counted up. They contain no user data. Marks of several clusters of one installation on one engine are
 * separated by `scope`, the key of the cluster.
 */
import { createHash } from 'node:crypto'

export interface Mark {
  /** 1 or more; 0 is a challenge, by which a control plane asks whether another one is at work. */
  generation: number
  /** Random: two databases that counted to the same number differ in it. */
  nonce: string
  /** The control plane that wrote it: the same over its restarts. */
  writer: string
}

export interface Marks {
  /** Those of this installation and cluster, the newest first. */
  list(scope: string, signal: AbortSignal): Promise<Mark[]>
  /** Creates one unless its generation has one: resolves to the existing one then. */
  put(scope: string, mark: Mark, signal: AbortSignal): Promise<Mark>
  /** Succeeds if there is none. */
  remove(scope: string, mark: Mark, signal: AbortSignal): Promise<void>
  /** Removes those of all clusters of this installation that are on this engine. */
  clear(signal: AbortSignal): Promise<void>
}

/** For names and labels: the same for an installation and one of its clusters. */
export const scopeMark = (ownerId: string, scope: string): string =>
  createHash('sha256').update(`${ownerId} ${scope}`).digest('hex').slice(0, 24)

export const markName = (ownerId: string, scope: string, generation: number): string =>
  `slipway-generation-${scopeMark(ownerId, scope)}-${generation}`

/** A mark in an engine's words; null for an invalid one. */
export const readMark = (generation: unknown, nonce: unknown, writer: unknown): Mark | null =>
  typeof generation === 'string' && /^\d{1,15}$/.test(generation) && typeof nonce === 'string' && nonce !== ''
    ? { generation: Number(generation), nonce, writer: typeof writer === 'string' ? writer : '' }
    : null

export const newestFirst = (a: Mark, b: Mark): number => b.generation - a.generation
