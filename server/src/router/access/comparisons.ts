/**
 * Passwords with slow hashes, compared in a thread of their own, one at a time. Services take turns, however many wait
 * for each; what waits longer than a moment is told to come again, so that a flood at one service delays a login at
 * another by one comparison. If the thread ends, so do the questions that it had.
 */
import { Worker } from 'node:worker_threads'
import { createSemaphore } from '../../lib/concurrency/semaphore.ts'
import { type Clock, systemClock } from '../../lib/time/clock.ts'
import type { Question } from './password-thread.ts'

export interface Comparisons {
  /** Whether the password has the hash; null if too many wait, or for too long. */
  compare(serviceId: string, hash: string, password: string): Promise<boolean | null>
}

/** Answers one question; null if it has failed. */
type Compare = (hash: string, password: string) => Promise<boolean | null>

const program = new URL('./password-thread.ts', import.meta.url)
/** Of one service, at all its hosts and from all clients. */
const mostWaiting = 8
const patienceMs = 1000

const createThread = (): Compare => {
  let thread: Worker | undefined
  let lastId = 0
  const asked = new Map<number, (isRight: boolean | null) => void>()
  const start = (): Worker => {
    const worker = new Worker(program, { env: {}, execArgv: [], resourceLimits: { maxOldGenerationSizeMb: 32 } })
    worker.on('message', ({ id, isRight }: { id: number; isRight: boolean }) => {
      asked.get(id)?.(isRight)
      asked.delete(id)
    })
    worker.on('error', () => {})
    worker.on('exit', () => {
      thread = undefined
      for (const settle of asked.values()) settle(null)
      asked.clear()
    })
    // It must not keep the process alive; a listener added later would.
    worker.unref()
    return worker
  }
  return (hash, password) => {
    const { promise, resolve } = Promise.withResolvers<boolean | null>()
    thread ??= start()
    const question: Question = { id: ++lastId, hash, password }
    asked.set(question.id, resolve)
    thread.postMessage(question)
    return promise
  }
}

export const createComparisons = (
  compare: Compare = createThread(),
  clock: Pick<Clock, 'sleep'> = systemClock,
): Comparisons => {
  const inTurn = createSemaphore(1)
  const asked = new Map<string, number>()
  return {
    async compare(serviceId, hash, password) {
      const before = asked.get(serviceId) ?? 0
      if (before >= mostWaiting) return null
      asked.set(serviceId, before + 1)
      const [late, over] = [new AbortController(), new AbortController()]
      clock.sleep(patienceMs, over.signal, { ref: false }).then(
        () => late.abort(),
        () => {},
      )
      try {
        return await inTurn(serviceId, () => compare(hash, password), { signal: late.signal })
      } catch {
        return null
      } finally {
        over.abort()
        const left = asked.get(serviceId)! - 1
        if (left > 0) asked.set(serviceId, left)
        else asked.delete(serviceId)
      }
    },
  }
}

/** Of this process, which has one thread for them. */
export const ownComparisons = createComparisons()
