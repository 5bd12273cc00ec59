/**
 * Reads queries again whose answers may have changed. Promises that a change during a read is followed by another read,
 * that a query never runs twice at the same time, and that slow queries are read less often.
 */
import type { Query, QueryClient } from '@tanstack/react-query'

const shortestPauseMs = 200
const longestPauseMs = 5000

interface Refresher {
  /** Visible queries are read at once, others when they are shown again. */
  refresh(concerns: (query: Query) => boolean): void
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

export const createRefresher = (queries: QueryClient): Refresher => {
  /** Queries that are being read, and whether they must be read again. */
  const again = new Map<string, boolean>()
  const read = async ({ queryHash, queryKey, state }: Query): Promise<void> => {
    if (again.has(queryHash)) {
      again.set(queryHash, true)
      return
    }
    // A read that is under way may have started before the change.
    again.set(queryHash, state.fetchStatus === 'fetching')
    for (let isDone = false; !isDone; ) {
      const begunMs = performance.now()
      await queries.invalidateQueries({ queryKey, exact: true }, { cancelRefetch: false })
      const tookMs = performance.now() - begunMs
      const isAgain = again.get(queryHash) === true
      again.set(queryHash, false)
      await pause(Math.min(longestPauseMs, Math.max(shortestPauseMs, 3 * tookMs)))
      isDone = !isAgain && again.get(queryHash) !== true
    }
    again.delete(queryHash)
  }
  return {
    refresh(concerns) {
      for (const query of queries.getQueryCache().getAll()) if (concerns(query)) void read(query)
    },
  }
}
