/**
 * The owner's commands around the life of a service's instances: one after each start, one before each end. They are
 * in labels, so that the code that ends or watches a container knows them. Run at least once: repeated if the process
 * that began one has died.
 */

import { waitAtMost } from '../../lib/concurrency/waiting.ts'
import { type Engine, isEngineError } from '../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { explainExitCode } from '../../lib/exit-codes.ts'
import { readJson } from '../../lib/foreign-text/read-json.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { ContainerRow } from './containers.ts'
import { labelOf, labels } from './describe.ts'
import { execIn, isDownNow } from './exec.ts'

const postStartDeadlineMs = 120_000
/** A program that exits at once is restarted by the engine several times; the wait for readiness reports the reason. */
const patienceMs = 5000
const pauseMs = 200
/** For the program, if the command before took all of its time. The same as in Kubernetes. */
const leastGraceMs = 2000

/** Null for anything but a list of words: the label is untrusted. */
export const parseCommand = (text: string | undefined): string[] | null => {
  try {
    const value = readJson(text ?? 'null')
    const isCommand = Array.isArray(value) && value.length > 0 && value.every((word) => typeof word === 'string')
    return isCommand ? (value as string[]) : null
  } catch {
    return null
  }
}

export interface Hooks {
  /** Rejects with a `DeploymentError` when the command fails or takes too long. */
  started(id: string, command: readonly string[] | undefined, signal: AbortSignal): Promise<void>
  /** Whether `started` was done for this container by this process. */
  isStarted(id: string): boolean
  /** Resolves to the rest of the grace period. */
  ending(row: Pick<ContainerRow, 'Id' | 'Labels'>, graceMs: number, signal: AbortSignal): Promise<number>
  removed(id: string): void
}

export const createHooks = (engine: Engine, clock: Clock): Hooks => {
  const done = new Set<string>()

  const run = async (id: string, command: string[], signal: AbortSignal): Promise<void> => {
    const { exitCode, output } = await execIn(engine, id, command, signal)
    if (exitCode === 0) return
    const message = `The post-start command exited with code ${exitCode}: ${explainExitCode(exitCode)}.`
    throw new DeploymentError('post_start_failed', message, { lines: output.split('\n').filter(Boolean) })
  }

  const runOnce = async (id: string, command: string[], outer: AbortSignal): Promise<void> => {
    const late = AbortSignal.timeout(postStartDeadlineMs)
    const signal = AbortSignal.any([outer, late])
    const untilMs = clock.monotonicMs() + patienceMs
    for (;;) {
      try {
        return await run(id, command, signal)
      } catch (error) {
        outer.throwIfAborted()
        if (late.aborted) {
          const within = `within ${postStartDeadlineMs / 1000} s`
          throw new DeploymentError('post_start_failed', `The post-start command did not finish ${within}.`)
        }
        // Gone, or down for longer: the wait for readiness reports the reason.
        if (isEngineError(error, 404)) return
        if (!isDownNow(error)) throw error
        if (clock.monotonicMs() >= untilMs) return
        await clock.sleep(pauseMs, signal)
      }
    }
  }

  return {
    async started(id, command, signal) {
      if (command !== undefined && command.length > 0) await runOnce(id, [...command], signal)
      done.add(id)
    },
    isStarted: (id) => done.has(id),
    async ending({ Id, Labels }, graceMs, signal) {
      const command = parseCommand(labelOf(Labels, labels.preStop))
      if (command === null || graceMs <= 0) return graceMs
      const begunMs = clock.monotonicMs()
      const over = new AbortController()
      const either = AbortSignal.any([signal, over.signal])
      await waitAtMost(
        clock,
        graceMs,
        execIn(engine, Id, command, either).catch(() => undefined),
        signal,
      )
      over.abort(new Error('its time is over'))
      return Math.max(graceMs - (clock.monotonicMs() - begunMs), Math.min(graceMs, leastGraceMs))
    },
    removed: (id) => void done.delete(id),
  }
}
