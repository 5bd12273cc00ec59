/**
 * One read for all streams of the same thing. It is read when something changed, at most every 100 ms, and from time to
 * time in case a notification was lost; without streams it costs nothing. Promises each stream the latest state: a slow
 * reader misses what came in between, never the end. A stream begins with a read that started after it did, so that a
 * client that has just requested a deployment is not shown the state before.
 */
import { createHash } from 'node:crypto'
import type { Parts } from '../api/parts.ts'
import { createLoop } from '../work/loop.ts'
import { endAway, type Sink } from './sink.ts'

const restMs = 100
const retryMs = 1000
const sweepMs = 30_000

/** How something is shown; streams with the same name get the same. */
export interface View<T, Shown = unknown> {
  name: string
  show(value: T): Shown
}

export interface Shared<T> {
  /** Null if it no longer exists: all streams end. `sweep`: what it has cached may be stale. */
  read(sweep: boolean): Promise<T | null>
  /** The longest time between two reads, for data that changes without a notice. */
  everyMs?: number
  /** Calls back on each change from now on; the returned function unsubscribes. */
  subscribe(changed: () => void): Promise<() => void>
}

interface Shown {
  text: string
  id: string
}

interface Frame<T> {
  value: T
  serial: number
  shown: Map<string, Shown>
}

interface Follower<T> {
  sink: Sink
  view: View<T>
  /** The first read that it may get. */
  from: number
  has: string | undefined
  busy: boolean
}

const shownIn = <T>({ value, shown }: Frame<T>, view: View<T>): Shown => {
  const found = shown.get(view.name)
  if (found !== undefined) return found
  const text = JSON.stringify(view.show(value))
  const made = { text, id: createHash('sha1').update(text).digest('base64url') }
  shown.set(view.name, made)
  return made
}

/** Sends the newest frame, then again whatever is newest, until the reader has it. */
const sendTo = async <T>(
  follower: Follower<T>,
  newest: () => Frame<T> | undefined,
  log: Parts['log'],
): Promise<void> => {
  if (follower.busy) return
  follower.busy = true
  const { sink, view, from } = follower
  try {
    for (let frame = newest(); frame !== undefined && frame.serial >= from && !sink.gone.aborted; frame = newest()) {
      const { text, id } = shownIn(frame, view)
      if (id === follower.has) break
      follower.has = id
      await sink.send(text, id)
    }
  } catch (error) {
    log.error({ err: error }, 'a stream ended early')
    endAway(sink, 'status')
  }
  follower.busy = false
}

interface Source<T> {
  follow(sink: Sink, view: View<T>, has: string | undefined): void
}

type SourceParts = Pick<Parts, 'clock' | 'log' | 'work'>

const createSource = <T>(
  { read, subscribe, everyMs = sweepMs }: Shared<T>,
  parts: SourceParts,
  over: () => void,
): Source<T> => {
  const followers = new Set<Follower<T>>()
  let frame: Frame<T> | undefined
  let serial = 0
  let begunMs = Number.NEGATIVE_INFINITY
  let sweptMs = Number.NEGATIVE_INFINITY
  let missed = true
  let ending: (() => void) | undefined
  let isOver = false

  const finish = (): void => {
    isOver = true
    void loop.stop()
    ending?.()
    over()
    for (const { sink } of followers) sink.end()
    followers.clear()
  }
  const changed = (): void => loop.wake(begunMs + restMs - parts.clock.monotonicMs())
  const readOnce = async (): Promise<void> => {
    ending ??= await subscribe(changed)
    if (isOver) return ending()
    begunMs = parts.clock.monotonicMs()
    serial += 1
    const mine = serial
    const sweep = missed || begunMs - sweptMs >= sweepMs
    missed = true
    const value = await read(sweep)
    missed = false
    if (sweep) sweptMs = begunMs
    if (isOver) return
    if (value === null) return finish()
    frame = { value, serial: mine, shown: new Map() }
    for (const follower of followers) void sendTo(follower, () => frame, parts.log)
  }
  const loop = createLoop(parts, {
    name: 'status streams',
    periodMs: Math.min(everyMs, sweepMs),
    waits: true,
    // Usually the database is briefly unavailable: the streams wait for it.
    backoff: { firstMs: retryMs, longestMs: retryMs },
    failed: 'the data of status streams could not be read; retrying',
    run: readOnce,
  })
  return {
    follow(sink, view, has) {
      const follower: Follower<T> = { sink, view, from: serial + 1, has, busy: false }
      followers.add(follower)
      sink.gone.addEventListener('abort', () => {
        if (followers.delete(follower) && followers.size === 0) finish()
      })
      loop.wake()
    },
  }
}

/**
 * Sends a stream the results of `shared` until its reader disconnects. Streams with the same key share the reads.
 * `has` is the id of the last frame that the reader has from a lost connection.
 */
export const followShared = <T>(
  parts: SourceParts & Pick<Parts, 'streams'>,
  key: string,
  shared: () => Shared<T>,
  stream: { sink: Sink; view: View<T>; has?: string | undefined },
): void => {
  if (stream.sink.gone.aborted) return
  const source = parts.streams.share(key, (over): Source<T> => createSource(shared(), parts, over))
  source.follow(stream.sink, stream.view, stream.has)
}
