/**
 * Settles attempts that end at nearly the same time with one statement: the next batch collects while the last one is
 * written. Promises that one attempt that cannot be settled does not affect others.
 */
import type { Database } from '../store/database.ts'
import { type Settled, settle } from './queue.ts'

const atOnce = 256

interface Waiting {
  settled: Settled
  resolve(): void
  reject(error: unknown): void
}

/** Gives a function that resolves when its attempt is settled in the database. */
export const createSettler = (database: Database, worker: string): ((settled: Settled) => Promise<void>) => {
  let waiting: Waiting[] = []
  let writing = false

  const writeOne = (one: Waiting): Promise<void> =>
    settle(database, worker, [one.settled]).then(one.resolve, one.reject)

  const writeBatch = async (batch: readonly Waiting[]): Promise<void> => {
    if (batch.length === 1) return writeOne(batch[0]!)
    try {
      await settle(
        database,
        worker,
        batch.map(({ settled }) => settled),
      )
      for (const { resolve } of batch) resolve()
    } catch {
      for (const one of batch) await writeOne(one)
    }
  }
  const writeAll = async (): Promise<void> => {
    writing = true
    while (waiting.length > 0) {
      const batch = waiting.slice(0, atOnce)
      waiting = waiting.slice(atOnce)
      await writeBatch(batch)
    }
    writing = false
  }
  return (settled) =>
    new Promise((resolve, reject) => {
      waiting.push({ settled, resolve, reject })
      if (!writing) void writeAll()
    })
}
