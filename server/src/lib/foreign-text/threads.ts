/**
 * Threads that read untrusted text. Promises that a text costs the event loop no more than handing it over; that a
 * thread has limits of memory and time, and is ended when it exceeds one; and turns: two texts are read at once, at
 * most one of each owner. A thread is kept for a moment, unless its last text was large, because it would keep that
 * memory.
 */
import { Worker } from 'node:worker_threads'
import { createSemaphore } from '../concurrency/semaphore.ts'
import { untilAborted } from '../concurrency/waiting.ts'
import { ForeignTextError } from './foreign-text-error.ts'
import type { ReadAnswer, ReadRequest } from './serve-reads.ts'

const places = 2
/** The most that run in all: until then, an owner without one gets a first place at once. */
const most = 4
const lingerMs = 10_000
const largeBytes = 1 << 20

interface ThreadLimits {
  heapMb: number
  /** For one text, and for waiting until it is its turn. */
  timeMs: number
}

interface ReadOptions {
  owner: string
  signal?: AbortSignal | undefined
}

interface Idle {
  worker: Worker
  ending: NodeJS.Timeout
}

const tooSlow = (): ForeignTextError => new ForeignTextError('too_slow', 'could not be read in time')

/** Only memory of its own can be handed over; smaller buffers share theirs. */
const ownMemory = (text: Buffer | string): ArrayBuffer[] =>
  typeof text !== 'string' && text.byteLength === text.buffer.byteLength ? [text.buffer as ArrayBuffer] : []

const valueIn = <Value>(told: ReadAnswer<Value>): Value => {
  if (told.kind === 'value') return told.value
  if (told.kind === 'refused') throw new ForeignTextError(told.code, told.message)
  throw new Error(`a thread could not read a text: ${told.message}`)
}

const explain = (error: unknown): unknown =>
  (error as { code?: unknown } | null)?.code === 'ERR_WORKER_OUT_OF_MEMORY'
    ? new ForeignTextError('too_large', 'needs more memory than is allowed for it')
    : error

/** A thread's answer for one text. Rejects if the thread ends first, or at `signal`. */
const answerOf = <Value>(worker: Worker, signal: AbortSignal): Promise<ReadAnswer<Value>> => {
  const { promise, resolve, reject } = Promise.withResolvers<ReadAnswer<Value>>()
  const onExit = (): void => reject(new Error('a thread ended while it read a text'))
  worker.once('message', resolve).once('error', reject).once('exit', onExit)
  return untilAborted(promise, signal).finally(() => {
    worker.off('message', resolve).off('error', reject).off('exit', onExit)
  })
}

/** `program` is a module that calls `serveReads`. */
export const createThreads = <Job, Value>(program: URL, { heapMb, timeMs }: ThreadLimits) => {
  const inTurn = createSemaphore(places, 1, most)
  const idle: Idle[] = []

  const take = (): Worker => {
    const found = idle.pop()
    if (found !== undefined) {
      clearTimeout(found.ending)
      found.worker.ref()
      return found.worker
    }
    const worker = new Worker(program, {
      resourceLimits: { maxOldGenerationSizeMb: heapMb, maxYoungGenerationSizeMb: 32 },
      env: {},
      execArgv: [],
    })
    // An error while no text waits for this thread.
    worker.on('error', () => {})
    worker.on('exit', () => forget(worker))
    return worker
  }
  const forget = (worker: Worker): void => {
    const index = idle.findIndex((each) => each.worker === worker)
    if (index !== -1) clearTimeout(idle.splice(index, 1)[0]!.ending)
  }
  const keep = (worker: Worker): void => {
    worker.unref()
    const ending = setTimeout(() => {
      forget(worker)
      void worker.terminate()
    }, lingerMs)
    ending.unref()
    idle.push({ worker, ending })
  }

  return {
    /** Bytes are handed over: they are empty afterwards. Rejects with a `ForeignTextError`, or the signal's reason. */
    async read(text: Buffer | string, job: Job, { owner, signal }: ReadOptions): Promise<Value> {
      const isLarge = text.length > largeBytes
      const waiting = AbortSignal.timeout(timeMs)
      const reading = async (): Promise<Value> => {
        const worker = take()
        const late = AbortSignal.timeout(timeMs)
        let isWell = false
        try {
          const answer = answerOf<Value>(worker, signal === undefined ? late : AbortSignal.any([signal, late]))
          worker.postMessage({ text, job } satisfies ReadRequest<Job>, ownMemory(text))
          const told = await answer
          isWell = true
          return valueIn(told)
        } catch (error) {
          signal?.throwIfAborted()
          throw late.aborted ? tooSlow() : explain(error)
        } finally {
          if (isWell && !isLarge && idle.length < places) keep(worker)
          else void worker.terminate()
        }
      }
      const asked = signal === undefined ? waiting : AbortSignal.any([signal, waiting])
      try {
        return await inTurn(owner, reading, { signal: asked })
      } catch (error) {
        throw error === waiting.reason ? tooSlow() : error
      }
    },
  }
}
