/**
 * Streams outlive the moment in which they were allowed. Promises that one whose caller has lost the right to read it
 * (a token revoked or expired, a member removed, a role changed) ends: at once when a notice says that rights changed,
 * and within seconds in any case.
 */
import { ApiError } from '../lib/errors.ts'
import type { Database } from '../store/database.ts'

interface Open {
  /** Rejects with an `ApiError` when the caller may not read it any more. */
  check(): Promise<unknown>
  end(): void
}

export interface OpenStreams {
  /** Watches over a stream; the answer is to be called when it has ended by itself. */
  add(stream: Open): () => void
  close(): void
}

const everyMs = 5000
const refusals = [401, 403, 404]

export const createOpenStreams = async (database: Database): Promise<OpenStreams> => {
  const streams = new Set<Open>()
  const check = async (stream: Open): Promise<void> => {
    try {
      await stream.check()
    } catch (error) {
      // A database that is away for a moment says nothing of anybody's rights.
      if (!(error instanceof ApiError) || !refusals.includes(error.status)) return
      streams.delete(stream)
      stream.end()
    }
  }
  const checkAll = (): void => {
    for (const stream of streams) void check(stream)
  }
  const stop = await database.listen('slipway_token', checkAll)
  const timer = setInterval(checkAll, everyMs)
  timer.unref()
  return {
    add(stream) {
      streams.add(stream)
      return () => streams.delete(stream)
    },
    close() {
      stop()
      clearInterval(timer)
      streams.clear()
    },
  }
}
