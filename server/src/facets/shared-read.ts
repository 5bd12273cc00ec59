/**
 * One read for as many streams as look at the same thing. It is read when something changed, at most every 100 ms, and
 * now and then in case a notice was lost; nobody looking costs nothing. Promises each stream the state that was read
 * last: a slow reader misses what came in between, never the end. A stream begins with a read that is newer than itself,
 * so that whoever has just asked for a deployment is not shown how it was before.
 */
import { createHash } from 'node:crypto'
import type { Parts } from '../api/parts.ts'
import { createLoop } from '../work/loop.ts'
import type { Sink } from './sink.ts'

const restMs = 100
const retryMs = 1000
const sweepMs = 30_000

/** How something is shown; streams with the same name are shown the same. */
export interface View<T, Shown = unknown> {
  name: string
  show(value: T): Shown
}

export interface Shared<T> {
  /** Null when it is no more: all streams end. `sweep`: what it holds itself may be stale. */
  read(sweep: boolean): Promise<T | null>
  /** Calls back at each change from then on; the answer ends that. */
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
  /** The first read that it may be shown. */
  from: number
  /** Id of what it was sent last. */
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

/** Sends the newest frame, and whatever is the newest when that is taken, until the reader has it. */
const tell = async <T>(follower: Follower<T>, newest: () => Frame<T> | undefined, log: Parts['log']): Promise<void> => {
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
    sink.end('The status cannot be shown at the moment.')
  }
  follower.busy = false
}

interface Source<T> {
  follow(sink: Sink, view: View<T>, has: string | undefined): void
}

type SourceParts = Pick<Parts, 'clock' | 'log' | 'work'>

const createSource = <T>({ read, subscribe }: Shared<T>, parts: SourceParts, over: () => void): Source<T> => {
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
    for (const follower of followers) void tell(follower, () => frame, parts.log)
  }
  const loop = createLoop(parts, {
    name: 'status streams',
    periodMs: sweepMs,
    waits: true,
    // Mostly the database is away for a moment: the streams wait for it.
    backoff: { firstMs: retryMs, longestMs: retryMs },
    failed: 'what streams show cannot be read, it is tried again',
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
 * Sends a stream what `shared` reads until its reader has gone. Streams with the same key share the reads. `has` is the
 * id of what the reader has already, from a connection that it lost.
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
