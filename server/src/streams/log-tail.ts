/**
 * New lines of logs in the database, as they are written. They are read when there may be some: every 250 ms while a
 * log is being written, else only when a status of the environment changes. Streams at the same position share the
 * reads; a slow one reads at its own pace and misses nothing.
 */
import type { Parts } from '../api/parts.ts'
import { createLoop } from '../work/loop.ts'
import type { Sink } from './sink.ts'

const pollMs = 250
const sweepMs = 30_000

/** A line, in a chunk; the chunks of a log become visible in numerical order. */
interface Row {
  chunk: string
}

interface LogSource<R extends Row> {
  key: string
  environmentId: string
  /** The lines written after a chunk, in whole chunks. */
  after(chunk: string): Promise<R[]>
  isOpen(): Promise<boolean>
}

interface Follower<R extends Row> {
  chunk: string
  send(rows: R[]): Promise<void>
  busy: boolean
  /** There may be new lines since its last read began. */
  behind: boolean
}

interface Tail<R extends Row> {
  follow(follower: Follower<R>): () => void
}

type TailParts = Pick<Parts, 'streams' | 'clock' | 'log' | 'work'>

const createTail = <R extends Row>(parts: TailParts, source: LogSource<R>, over: () => void): Tail<R> => {
  const { log, streams } = parts
  const { environmentId } = source
  const followers = new Set<Follower<R>>()
  let reads = new Map<string, Promise<R[]>>()
  let wasOpen = true
  let ending: (() => void) | undefined
  let isOver = false

  const after = (chunk: string): Promise<R[]> => {
    const found = reads.get(chunk) ?? source.after(chunk)
    reads.set(chunk, found)
    return found
  }
  const push = async (follower: Follower<R>): Promise<void> => {
    follower.behind = true
    if (follower.busy) return
    follower.busy = true
    try {
      while (followers.has(follower) && follower.behind) {
        follower.behind = false
        const rows = await after(follower.chunk)
        if (rows.length === 0) continue
        follower.behind = true
        follower.chunk = rows.at(-1)!.chunk
        await follower.send(rows)
      }
    } catch (error) {
      log.warn({ err: error, environmentId }, 'a log could not be read; retrying')
    }
    follower.busy = false
  }
  const look = async (): Promise<number | undefined> => {
    ending ??= await streams.changes.subscribe(environmentId, () => loop.wake())
    if (isOver) {
      ending()
      return undefined
    }
    const isOpen = await source.isOpen()
    reads = new Map()
    for (const follower of followers) void push(follower)
    // Once more after the end: the last lines may have been written concurrently.
    const pause = isOpen || wasOpen ? pollMs : sweepMs
    wasOpen = isOpen
    return pause
  }
  const loop = createLoop(parts, {
    name: 'log streams',
    periodMs: sweepMs,
    waits: true,
    backoff: { firstMs: pollMs * 4, longestMs: pollMs * 4 },
    failed: 'logs could not be read; retrying',
    run: look,
  })
  const close = (): void => {
    isOver = true
    void loop.stop()
    ending?.()
    over()
  }
  return {
    follow(follower) {
      followers.add(follower)
      loop.wake()
      return () => {
        if (followers.delete(follower) && followers.size === 0) close()
      }
    },
  }
}

/** Sends a stream the lines written after `chunk`, until its reader disconnects. */
export const followTail = <R extends Row>(
  parts: TailParts,
  sink: Sink,
  source: LogSource<R>,
  { chunk, send }: Pick<Follower<R>, 'chunk' | 'send'>,
): void => {
  if (sink.gone.aborted) return
  const tail = parts.streams.share(source.key, (over): Tail<R> => createTail(parts, source, over))
  sink.gone.addEventListener('abort', tail.follow({ chunk, send, busy: false, behind: false }))
}
