/**
 * Streams outlive the check that allowed them. Promises that a stream ends when its caller loses the right to read it
 * (a token revoked or expired, a member removed, a role changed): at once when a notice says that rights changed, and
 * within seconds in any case. Also limits open streams per token or account and per organization, in this process; each
 * replica counts its own.
 */
import { ApiError } from '../lib/errors.ts'
import { type Limits, limitCode, limitSentence } from '../limits/limits.ts'
import type { Database } from '../store/database.ts'
import { createLoop, type WorkParts } from '../work/loop.ts'

interface Open {
  /** Rejects with an `ApiError` when the caller may no longer read it. */
  check(): Promise<unknown>
  end(): void
}

interface Holder {
  tokenId: string
  organizationId: string
}

export interface OpenStreams {
  /**
   * Counts a stream that is about to open; call the returned function when it has ended. Throws a 429 if there are too
   * many.
   */
  admit(holder: Holder): () => void
  /** Watches a stream; call the returned function when it has ended by itself. */
  add(stream: Open): () => void
  close(): Promise<void>
}

const everyMs = 5000
const refusals = [401, 403, 404]
/** How long a client that reconnects by itself is asked to wait. */
const retrySeconds = 10

type Cap = 'streams' | 'streamsPerToken'

const tooMany = (limit: Cap, most: number): ApiError =>
  new ApiError(429, limitCode, limitSentence(limit, most, most + 1), {
    headers: { 'retry-after': String(retrySeconds) },
  })

const createCounts = (limits: Pick<Limits, Cap>): OpenStreams['admit'] => {
  const open = new Map<string, number>()
  const change = (key: string, by: number): void => {
    const count = (open.get(key) ?? 0) + by
    if (count === 0) open.delete(key)
    else open.set(key, count)
  }
  return ({ tokenId, organizationId }) => {
    const held: [Cap, string][] = [
      ['streamsPerToken', tokenId],
      ['streams', organizationId],
    ]
    for (const [limit, key] of held)
      if (limits[limit] > 0 && (open.get(key) ?? 0) >= limits[limit]) throw tooMany(limit, limits[limit])
    for (const [, key] of held) change(key, 1)
    let ended = false
    return () => {
      if (ended) return
      ended = true
      for (const [, key] of held) change(key, -1)
    }
  }
}

export const createOpenStreams = async (
  parts: WorkParts & { database: Database },
  limits: Pick<Limits, Cap>,
): Promise<OpenStreams> => {
  const streams = new Set<Open>()
  const check = async (stream: Open): Promise<void> => {
    try {
      await stream.check()
    } catch (error) {
      // A database outage says nothing about anybody's rights.
      if (!(error instanceof ApiError) || !refusals.includes(error.status)) return
      streams.delete(stream)
      stream.end()
    }
  }
  const checking = createLoop(parts, {
    name: 'rights of streams',
    periodMs: everyMs,
    waits: true,
    failed: 'the rights of open streams could not be checked',
    run: async () => void (await Promise.all([...streams].map(check))),
  })
  const stop = await parts.database.listen('slipway_token', () => checking.wake())
  return {
    admit: createCounts(limits),
    add(stream) {
      streams.add(stream)
      return () => streams.delete(stream)
    },
    async close() {
      stop()
      streams.clear()
      await checking.stop()
    },
  }
}
