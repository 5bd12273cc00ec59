/**
 * The threads that prepare builds. Promises each job its own thread that has not been ended, fair turns between
 * organizations, of which none gets all threads, and a warm thread for the usual build. Reports why a thread died.
 * Does not know the jobs.
 */
import { Worker } from 'node:worker_threads'
import { untilAborted } from '../../lib/concurrency/waiting.ts'
import { deathOf, type ThreadDeath } from '../../lib/thread-death.ts'
import type { Clock } from '../../lib/time/clock.ts'
import { type FromWorker, type Job, maxGroups, type ToWorker, type WorkerSetup } from './job.ts'

/** A thread that is leased for a job. */
export interface Lease {
  run(job: Job): void
  /** Allows so many more chunks. */
  grant(chunks: number): void
  /** The messages of the job; a thread that dies is the last one. */
  onMessage(listener: (message: FromWorker | ThreadDeath) => void): void
  /** Cancels the job; the thread is free for others once it has ended. */
  release(): void
}

interface Thread {
  worker: Worker
  groups: Int32Array<SharedArrayBuffer>
  listener: (message: FromWorker | ThreadDeath) => void
  /** Why it takes no more jobs: this pool ended it, or it dies by itself; null while it lives. */
  gone: 'ended' | 'dying' | null
  death: ThreadDeath | null
  isBusy: boolean
  /** `turn` is null if the thread has died. */
  onIdle: (turn: number | null) => void
}

const program = new URL('./worker.ts', import.meta.url)
/** For one thread; its buffers come on top. */
const usualHeapMb = 256
/** A thread that does not end a canceled job by then is killed. */
const patienceMs = 20_000
const spares = 2

const endGroups = (groups: Int32Array): void => {
  for (const group of groups)
    if (group > 0)
      try {
        process.kill(-group, 'SIGKILL')
      } catch {
        // It has already exited.
      }
}

const startThread = ({ git, heapMb = usualHeapMb }: PoolParts, onExit: () => void): Thread => {
  const groups = new Int32Array(new SharedArrayBuffer(4 * maxGroups))
  const worker = new Worker(program, {
    workerData: { git, groups } satisfies WorkerSetup,
    resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 32 },
    env: { PATH: process.env.PATH },
    execArgv: [],
  })
  const thread: Thread = {
    ...{ worker, groups, listener: () => {}, isBusy: false, onIdle: () => {} },
    ...{ gone: null, death: null },
  }
  worker.unref()
  worker.on('message', (message: FromWorker) => {
    if (message.kind === 'idle') thread.onIdle(message.turn)
    else thread.listener(message)
  })
  let thrown: unknown
  worker.on('error', (error) => {
    thrown = error
    thread.gone ??= 'dying'
  })
  worker.on('exit', (code) => {
    onExit()
    endGroups(groups)
    thread.death = thread.gone === 'ended' ? { kind: 'died', of: 'ended' } : deathOf(thrown, code)
    thread.listener(thread.death)
    thread.onIdle(null)
  })
  return thread
}

interface Waiting {
  owner: string
  give(thread: Thread): void
}

/**
 * Removes the next job from `waiting`: of the organization that holds the fewest threads, and among those the one
 * waiting longest; the last thread is reserved for another one.
 */
const takeNext = (waiting: Waiting[], held: ReadonlyMap<string, number>, size: number): Waiting | undefined => {
  const most = Math.max(1, size - 1)
  let best: Waiting | undefined
  for (const each of waiting) {
    const has = held.get(each.owner) ?? 0
    if (has < most && (best === undefined || has < (held.get(best.owner) ?? 0))) best = each
  }
  if (best !== undefined) waiting.splice(waiting.indexOf(best), 1)
  return best
}

export interface PoolParts {
  git: WorkerSetup['git']
  size: number
  clock: Clock
  heapMb?: number | undefined
}

export const createPool = (parts: PoolParts) => {
  const { size, clock } = parts
  /** Until they have exited. */
  const threads = new Set<Thread>()
  const waiting: Waiting[] = []
  const held = new Map<string, number>()
  let isClosed = false
  let turns = 0

  const start = (): Thread => {
    const thread = startThread(parts, () => threads.delete(thread))
    threads.add(thread)
    return thread
  }

  const end = async (thread: Thread): Promise<void> => {
    thread.gone = 'ended'
    await thread.worker.terminate()
  }

  const busy = (): number => [...threads].filter(({ isBusy }) => isBusy).length
  /** Only these may be leased: an ended thread is among `threads` until its exit event. */
  const idle = (): Thread[] => [...threads].filter(({ isBusy, gone }) => !isBusy && gone === null)

  const dispatch = (): void => {
    while (!isClosed && busy() < size) {
      const next = takeNext(waiting, held, size)
      if (next === undefined) break
      const thread = idle()[0] ?? start()
      thread.isBusy = true
      thread.worker.ref()
      held.set(next.owner, (held.get(next.owner) ?? 0) + 1)
      next.give(thread)
    }
    for (const surplus of idle().slice(spares)) void end(surplus)
    if (!isClosed && idle().length === 0 && busy() < size) start()
  }

  const settle = (thread: Thread, owner: string): void => {
    thread.isBusy = false
    thread.worker.unref()
    const left = held.get(owner)! - 1
    if (left === 0) held.delete(owner)
    else held.set(owner, left)
    dispatch()
  }

  const leaseOf = (thread: Thread, owner: string): Lease => {
    turns += 1
    const turn = turns
    const post = (message: ToWorker): void => thread.worker.postMessage(message)
    let isIdle = false
    let isReleased = false
    const patience = new AbortController()
    const onBoth = (): void => {
      if (!isIdle || !isReleased) return
      patience.abort()
      settle(thread, owner)
    }
    thread.onIdle = (ended) => {
      if (isIdle || (ended !== null && ended !== turn)) return
      isIdle = true
      onBoth()
    }
    return {
      run: (job) => post({ kind: 'job', turn, job }),
      grant: (chunks) => post({ kind: 'credit', chunks }),
      onMessage(listener) {
        thread.listener = listener
        if (thread.death !== null) listener(thread.death)
      },
      release() {
        if (isReleased) return
        isReleased = true
        thread.listener = () => {}
        if (!isIdle) {
          post({ kind: 'cancel', turn })
          clock.sleep(patienceMs, patience.signal).then(
            () => void end(thread),
            () => {},
          )
        }
        onBoth()
      },
    }
  }

  dispatch()

  return {
    /** Waits its turn. Turns are counted per `owner`. */
    async lease(owner: string, signal: AbortSignal): Promise<Lease> {
      signal.throwIfAborted()
      if (isClosed) throw new Error('the server is stopping')
      const { promise, resolve } = Promise.withResolvers<Lease>()
      const mine: Waiting = { owner, give: (thread) => resolve(leaseOf(thread, owner)) }
      waiting.push(mine)
      dispatch()
      try {
        return await untilAborted(promise, signal)
      } catch (error) {
        const index = waiting.indexOf(mine)
        if (index === -1) promise.then((late) => late.release())
        else waiting.splice(index, 1)
        throw error
      }
    },
    async close(): Promise<void> {
      isClosed = true
      await Promise.all([...threads].map(end))
    },
  }
}
