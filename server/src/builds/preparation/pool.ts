/**
 * The threads that prepare builds. Promises each job its own thread, fair turns between organizations, of which none
 * gets all threads, and a warm thread for the usual build. Does not know what a job is.
 */
import { Worker } from 'node:worker_threads'
import { untilAborted } from '../../lib/concurrency/waiting.ts'
import type { Clock } from '../../lib/time/clock.ts'
import { type FromWorker, type Job, maxGroups, type ToWorker, type WorkerSetup } from './job.ts'

/** A thread that is leased for a job. */
export interface Lease {
  run(job: Job): void
  /** Allows so many more chunks. */
  grant(chunks: number): void
  /** Null if the thread died: it exceeded its memory limit, or was killed. */
  onMessage(listener: (message: FromWorker | null) => void): void
  /** Cancels the job; the thread is free for others once it has ended. */
  release(): void
}

interface Thread {
  worker: Worker
  groups: Int32Array<SharedArrayBuffer>
  listener: (message: FromWorker | null) => void
  isBusy: boolean
  /** `turn` is null if the thread has died. */
  onIdle: (turn: number | null) => void
}

const program = new URL('./worker.ts', import.meta.url)
const heapMb = 256
/** A thread that does not end a canceled job by then is killed. */
const patienceMs = 20_000
/** How many idle threads are kept. */
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

const startThread = (git: WorkerSetup['git'], onExit: () => void): Thread => {
  const groups = new Int32Array(new SharedArrayBuffer(4 * maxGroups))
  const worker = new Worker(program, {
    workerData: { git, groups } satisfies WorkerSetup,
    resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 32 },
    env: { PATH: process.env.PATH },
    execArgv: [],
  })
  const thread: Thread = { worker, groups, listener: () => {}, isBusy: false, onIdle: () => {} }
  worker.unref()
  worker.on('message', (message: FromWorker) => {
    if (message.kind === 'idle') thread.onIdle(message.turn)
    else thread.listener(message)
  })
  worker.on('error', () => {})
  worker.on('exit', () => {
    onExit()
    endGroups(groups)
    thread.listener(null)
    thread.onIdle(null)
  })
  return thread
}

interface Waiting {
  owner: string
  give(thread: Thread): void
}

export const createPool = (git: WorkerSetup['git'], size: number, clock: Clock) => {
  const threads = new Set<Thread>()
  const waiting: Waiting[] = []
  const held = new Map<string, number>()
  let isClosed = false
  let turns = 0

  const start = (): Thread => {
    const thread = startThread(git, () => threads.delete(thread))
    threads.add(thread)
    return thread
  }

  /**
   * The organization with the fewest threads is next, and among those the one waiting longest; the last thread is
   * reserved for another one.
   */
  const takeNext = (): Waiting | undefined => {
    const most = Math.max(1, size - 1)
    let best: Waiting | undefined
    for (const each of waiting) {
      const has = held.get(each.owner) ?? 0
      if (has < most && (best === undefined || has < (held.get(best.owner) ?? 0))) best = each
    }
    if (best !== undefined) waiting.splice(waiting.indexOf(best), 1)
    return best
  }

  const busy = (): number => [...threads].filter(({ isBusy }) => isBusy).length

  const dispatch = (): void => {
    while (!isClosed && busy() < size) {
      const next = takeNext()
      if (next === undefined) break
      const thread = [...threads].find(({ isBusy }) => !isBusy) ?? start()
      thread.isBusy = true
      thread.worker.ref()
      held.set(next.owner, (held.get(next.owner) ?? 0) + 1)
      next.give(thread)
    }
    const idle = [...threads].filter(({ isBusy }) => !isBusy)
    for (const { worker } of idle.slice(spares)) void worker.terminate()
    if (!isClosed && idle.length === 0 && threads.size < size) start()
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
      },
      release() {
        if (isReleased) return
        isReleased = true
        thread.listener = () => {}
        if (!isIdle) {
          post({ kind: 'cancel', turn })
          clock.sleep(patienceMs, patience.signal).then(
            () => void thread.worker.terminate(),
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
      await Promise.all([...threads].map(({ worker }) => worker.terminate()))
    },
  }
}
