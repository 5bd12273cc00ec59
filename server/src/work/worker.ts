/**
 * The worker for background work: claims work, does several pieces at once, renews their leases, and ends what it lost.
 * Promises that work which ended here without a result is released, and that nothing continues under a lease that may
 * have expired. The queue decides what is next and how many of one key may run at once (its claim is one statement, so
 * that this is true across all replicas). If the process dies, the leases expire.
 */

import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { waitAtMost } from '../lib/concurrency/waiting.ts'
import { LeaseHandedOff } from '../lib/lease-handed-off.ts'
import { createAlarm } from '../lib/time/alarm.ts'
import { LeaseLost } from './lease.ts'
import { createLoop, type WorkParts } from './loop.ts'

interface Claimed<C> {
  claimed: readonly C[]
  /** Whether to ask again at once, as long as there is capacity. */
  more: boolean
  /** When to ask again if nothing wakes the worker before; the period without. */
  nextMs?: number | undefined
}

export interface Held {
  signal: AbortSignal
  /** Rejects when the lease is not ours at this moment. */
  check(): Promise<void>
}

export interface WorkQueue<C> {
  /** As shown by `/metrics`. */
  name: string
  /** Pieces of work at once. */
  concurrency: number
  /** The longest pause between two checks for work. */
  periodMs: number
  idOf(claimed: C): string
  /** For the log. */
  about(claimed: C): object
  /** Takes what is next, at most `room`. */
  claim(room: number): Promise<Claimed<C>>
  /** Does the work and stores its result. Rejects without one: the work is released. */
  run(claimed: C, held: Held): Promise<void>
  /** Renews these leases; returns which must end here, and why. Absent if no work takes as long as its lease. */
  renew?: { everyMs: number; leaseMs: number; renew(ids: readonly string[]): Promise<ReadonlyMap<string, Error>> }
  /** Releases these, so that any worker can claim them. */
  release(claimed: readonly C[]): Promise<void>
  /** The log message for work without a result. */
  failed: string
}

export interface Worker {
  /** Checks for work now. */
  wake(): void
  /** Ends a piece of work if it is done here. */
  abort(id: string, reason: Error): void
  /** Work in progress ends at its next step and is released. */
  stop(): Promise<void>
}

interface Active<C> {
  claimed: C
  controller: AbortController
  done: Promise<void>
}

const stopTimeoutMs = 10_000

/** One that no other process ever has. */
export const workerName = (): string => `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`

export const createWorker = <C>(parts: WorkParts, queue: WorkQueue<C>): Worker => {
  const { clock, log } = parts
  const { name, periodMs, renew } = queue
  const active = new Map<string, Active<C>>()
  /** Ended here without a result: released, so that other workers need not wait for their leases to expire. */
  const left = new Map<string, C>()
  /** Claimed again before their former turn had ended here. */
  const again = new Map<string, C>()
  const report = parts.work.enter(name)
  let stopping = false

  const doOne = async (claimed: C, { signal, check }: Held): Promise<void> => {
    const end = report.begin()
    try {
      await queue.run(claimed, { signal, check })
      end()
    } catch (error) {
      if (stopping || renew !== undefined) left.set(queue.idOf(claimed), claimed)
      const isOurs = !stopping && error !== signal.reason && !(error instanceof LeaseLost)
      end(isOurs ? error : undefined)
      if (isOurs) log.warn({ err: error, ...queue.about(claimed) }, queue.failed)
    }
  }
  const begin = (claimed: C): void => {
    const id = queue.idOf(claimed)
    if (active.has(id)) {
      // Its former turn was lost or released and has not ended here yet: this one begins when it has.
      again.set(id, claimed)
      return
    }
    if (stopping) {
      left.set(id, claimed)
      return
    }
    left.delete(id)
    const controller = new AbortController()
    const { signal } = controller
    const check = async () => {
      await renewThese([id])
      signal.throwIfAborted()
    }
    const done = doOne(claimed, { signal, check }).finally(() => {
      active.delete(id)
      const next = again.get(id)
      again.delete(id)
      if (next !== undefined) begin(next)
      claiming.wake()
    })
    active.set(id, { claimed, controller, done })
  }
  const claimAll = async (): Promise<number | undefined> => {
    // When there is no room, the end of a piece of work wakes us.
    while (!stopping && active.size < queue.concurrency) {
      const { claimed, more, nextMs } = await queue.claim(queue.concurrency - active.size)
      claimed.forEach(begin)
      if (!more) return nextMs
    }
    return undefined
  }
  const abort = (id: string, reason: Error): void => active.get(id)?.controller.abort(reason)
  const abortAll = (reason: Error): void => {
    for (const id of active.keys()) abort(id, reason)
  }
  const giveBack = async (): Promise<void> => {
    const ended = [...left].filter(([id]) => !active.has(id))
    if (ended.length === 0) return
    await queue.release(ended.map(([, claimed]) => claimed))
    for (const [id] of ended) left.delete(id)
    claiming.wake()
  }
  const renewThese = async (ids: readonly string[]): Promise<void> => {
    for (const [id, reason] of ids.length === 0 ? [] : ((await renew?.renew(ids)) ?? [])) abort(id, reason)
  }
  // Nothing irreversible may happen without the lease, so work ends before it can have expired.
  const runOut = createAlarm(clock, () => {
    abortAll(new LeaseLost())
    watchFrom(clock.monotonicMs())
  })
  const watchFrom = (renewedMs: number): void => {
    if (renew === undefined) return
    runOut.clear()
    runOut.set(renew.leaseMs - renew.everyMs - (clock.monotonicMs() - renewedMs))
  }
  const watchLeases = ({ everyMs }: NonNullable<typeof renew>) => {
    const beat = async (): Promise<void> => {
      const sentMs = clock.monotonicMs()
      await renewThese([...active.keys()])
      watchFrom(sentMs)
      await giveBack()
    }
    const failed = 'leases could not be renewed'
    return createLoop(parts, { name: `${name} leases`, periodMs: everyMs, failed, run: beat })
  }
  const claiming = createLoop(parts, {
    name: `${name} claims`,
    periodMs,
    backoff: { firstMs: 1000, longestMs: periodMs },
    failed: `claiming ${name} waits for the database`,
    run: claimAll,
  })
  const leases = renew === undefined ? undefined : watchLeases(renew)

  return {
    wake: () => claiming.wake(),
    abort,
    async stop() {
      stopping = true
      for (const [id, { claimed }] of active) left.set(id, claimed)
      abortAll(new LeaseHandedOff('the server is stopping'))
      const ended = Promise.all([claiming.stop(), leases?.stop(), ...[...active.values()].map(({ done }) => done)])
      await waitAtMost(clock, stopTimeoutMs, ended)
      runOut.clear()
      if (left.size > 0) await queue.release([...left.values()]).catch(() => {})
      report.leave()
    },
  }
}
