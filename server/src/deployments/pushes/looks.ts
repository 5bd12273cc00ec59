/**
 * Looks at what services follow, repositories and images: claimed under a lease by whichever server, when one is due or
 * somebody has told of news. Promises that what nobody watches any more is found again, once an hour.
 */
import { DeploymentError } from '../../lib/errors.ts'
import { LeaseHandedOff } from '../../lib/lease-handed-off.ts'
import type { Claimed } from '../../work/claim-in-turns.ts'
import { heldByLease, type Leased, type LeaseTable } from '../../work/lease.ts'
import { createLoop } from '../../work/loop.ts'
import { createWorker } from '../../work/worker.ts'
import type { DeploymentParts } from '../parts.ts'

const concurrency = 8
const shortestPauseMs = 25
const hourMs = 3_600_000

export interface Looks<W extends Leased> {
  /** As shown by `/metrics`. */
  name: string
  /** What is looked at, in one word for the log: `repository`. */
  of: string
  leases: LeaseTable<W>
  longestPauseMs: number
  /** On which somebody tells of news. */
  channel: string
  claim(room: number): Promise<Claimed<W>>
  look(watched: W, signal: AbortSignal): Promise<void>
  /** Keeps why a look failed, and when the next one is. */
  note(watched: W, error: DeploymentError): Promise<void>
  /** Watches again what is followed and not watched. */
  watchForgotten(): Promise<void>
}

/** A look that fails is retried after a pause, and ever longer ones; what it would have found is found then. */
const lookOrNote = async <W extends Leased>(
  { log }: DeploymentParts,
  { of, look, note }: Looks<W>,
  watched: W,
  signal: AbortSignal,
): Promise<void> => {
  try {
    await look(watched, signal)
  } catch (error) {
    if (signal.aborted || error instanceof LeaseHandedOff) throw error
    if (error instanceof DeploymentError) return note(watched, error)
    log.warn({ err: error, [of]: watched.id }, `a look at this ${of} failed`)
    const sentence = `The ${of} could not be looked at: see the server's log.`
    await note(watched, new DeploymentError('internal', sentence, { cause: error }))
  }
}

export const startLooks = async <W extends Leased>(
  parts: DeploymentParts,
  worker: string,
  looks: Looks<W>,
): Promise<{ stop(): Promise<void> }> => {
  const { name, of, leases, longestPauseMs } = looks
  const { wake, stop } = createWorker<W>(parts, {
    name,
    concurrency,
    periodMs: longestPauseMs,
    idOf: ({ id }) => id,
    about: ({ id }) => ({ [of]: id }),
    async claim(room) {
      const { claimed, nextDueMs } = await looks.claim(room)
      return { claimed, more: false, nextMs: Math.max(nextDueMs ?? longestPauseMs, shortestPauseMs) }
    },
    run: (watched, { signal }) => lookOrNote(parts, looks, watched, signal),
    ...heldByLease(parts.database, leases, worker),
    failed: `a look at this ${of} was interrupted and waits for its next claim`,
  })
  const forgotten = createLoop(parts, {
    name: `followed ${name}`,
    periodMs: hourMs,
    failed: 'some of what services follow may not be watched',
    run: () => looks.watchForgotten(),
  })
  const leave = await parts.database.listen(looks.channel, wake)
  return {
    async stop() {
      leave()
      await Promise.all([stop(), forgotten.stop()])
    },
  }
}
