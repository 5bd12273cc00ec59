/**
 * A worker over rows that are due in turns of their organizations (claim-in-turns.ts), each held under its lease. It
 * looks when the next row is due, and when its channel is notified.
 */
import type { Database } from '../store/database.ts'
import type { Claimed } from './claim-in-turns.ts'
import { heldByLease, type Leased, type LeaseTable } from './lease.ts'
import type { WorkParts } from './loop.ts'
import { createWorker } from './worker.ts'

const shortestPauseMs = 25

interface Turns<C extends Leased> {
  /** As shown by `/metrics`. */
  name: string
  concurrency: number
  longestPauseMs: number
  leases: LeaseTable<C>
  /** Absent: only `wake` makes it look before a row is due. */
  channel?: string
  /** For the log. */
  about(claimed: C): object
  claim(database: Database, worker: string, room: number): Promise<Claimed<C>>
  /** Does the work and stores its result. Rejects without one: the row is released. */
  run(claimed: C, signal: AbortSignal): Promise<void>
  /** The log message for work without a result. */
  failed: string
}

export const startTurns = async <C extends Leased>(
  parts: WorkParts & { database: Database },
  worker: string,
  { name, concurrency, longestPauseMs, leases, channel, about, claim, run, failed }: Turns<C>,
): Promise<{ wake(): void; stop(): Promise<void> }> => {
  const { database } = parts
  const { wake, stop } = createWorker<C>(parts, {
    ...{ name, concurrency, periodMs: longestPauseMs, about, failed },
    idOf: ({ id }) => id,
    async claim(room) {
      const { claimed, nextDueMs } = await claim(database, worker, room)
      return { claimed, more: false, nextMs: Math.max(nextDueMs ?? longestPauseMs, shortestPauseMs) }
    },
    run: (claimed, { signal }) => run(claimed, signal),
    ...heldByLease(database, leases, worker),
  })
  const leave = channel === undefined ? null : await database.listen(channel, wake)
  return {
    wake,
    async stop() {
      leave?.()
      await stop()
    },
  }
}
