/**
 * Compares passwords with slow hashes in a separate thread, one at a time. Parties (organizations, or services without
 * a known one) take turns, and within a party its services do, however many comparisons wait for each; one that waits
 * too long is refused and may be retried. So a flood at any number of services of one party delays a login at
 * another's by one comparison. If the thread ends, its open comparisons fail.
 */
import { Worker } from 'node:worker_threads'
import { createSemaphore } from '../../lib/concurrency/semaphore.ts'
import { type Clock, systemClock } from '../../lib/time/clock.ts'
import type { Question } from './password-thread.ts'

export interface LoginPlace {
  serviceId: string
  /** Shares turns with the other services of the same party: see `partyOf`. */
  party: string
}

export interface Comparisons {
  /** Whether the password has the hash; null if too many wait, or for too long. */
  compare(place: LoginPlace, hash: string, password: string): Promise<boolean | null>
}

/** Answers one question; null if it has failed. */
type Compare = (hash: string, password: string) => Promise<boolean | null>

const program = new URL('./password-thread.ts', import.meta.url)
/** For one service, at all its hosts and from all clients. */
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

interface Party {
  /** For its own services. */
  inTurn: ReturnType<typeof createSemaphore>
  asked: number
}

/** Turns of parties, and of the services within each: a party waits with one of its services at a time. */
const createTurns = () => {
  const ofAll = createSemaphore(1)
  const parties = new Map<string, Party>()
  return async <T>({ party, serviceId }: LoginPlace, work: () => Promise<T>, signal: AbortSignal): Promise<T> => {
    const own = parties.get(party) ?? { inTurn: createSemaphore(1), asked: 0 }
    parties.set(party, own)
    own.asked += 1
    try {
      return await own.inTurn(serviceId, () => ofAll(party, work, { signal }), { signal })
    } finally {
      own.asked -= 1
      if (own.asked === 0) parties.delete(party)
    }
  }
}

export const createComparisons = (
  compare: Compare = createThread(),
  clock: Pick<Clock, 'sleep'> = systemClock,
): Comparisons => {
  const inTurn = createTurns()
  const asked = new Map<string, number>()
  return {
    async compare(place, hash, password) {
      const { serviceId } = place
      const before = asked.get(serviceId) ?? 0
      if (before >= mostWaiting) return null
      asked.set(serviceId, before + 1)
      const [late, over] = [new AbortController(), new AbortController()]
      clock.sleep(patienceMs, over.signal, { ref: false }).then(
        () => late.abort(),
        () => {},
      )
      try {
        return await inTurn(place, () => compare(hash, password), late.signal)
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

/** For this process, which has one thread for them. */
export const ownComparisons = createComparisons()
