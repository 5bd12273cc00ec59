/** What a process of the router counts, and what all of them together do. */

export interface Counts {
  /** Over HTTP/1.1 and HTTP/2. */
  requests: number
  /** 5xx responses of the router itself, and responses it had to abort. */
  failures: number
  retries: number
  inFlight: number
  upgrades: { total: number; open: number }
  connections: { total: number; open: number }
  flows: { total: number; open: number }
  /** Uncaught exceptions. The process continues; each is in the log. */
  internalErrors: number
  rssBytes: number
  /** Process ids, the first one's first. */
  processes: number[]
}

export type OwnCounts = Omit<Counts, 'rssBytes' | 'processes'>

export const newCounts = (): OwnCounts => ({
  requests: 0,
  failures: 0,
  retries: 0,
  inFlight: 0,
  upgrades: { total: 0, open: 0 },
  connections: { total: 0, open: 0 },
  flows: { total: 0, open: 0 },
  internalErrors: 0,
})
