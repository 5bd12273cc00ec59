/**
 * Named, durable steps: the result of a finished step is small JSON in `deployment_step`, which a resumed worker reads
 * instead of repeating the step. A step may therefore begin more than once and must be idempotent. Every step has a
 * deadline; errors with `retry` or `wait` are retried within it.
 */

import { DeploymentError } from '../../lib/errors.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Database } from '../../store/database.ts'
import { LeaseLost } from '../../work/lease.ts'
import type { Claim } from '../../work/queue.ts'

interface StepOptions {
  deadlineMs: number
  /** False for steps whose result may be gone after a crash (start, ready, switch …): a resumed worker repeats them. */
  remember?: boolean
}

export type Step = <T>(name: string, options: StepOptions, work: (signal: AbortSignal) => Promise<T>) => Promise<T>

const record = `insert into deployment_step (deployment_id, service_id, name, result, status, started_at, finished_at)
  select $1, $2, $3, $4, $5, clock_timestamp() - $6 * interval '1 millisecond', clock_timestamp()
  from deployment where id = $1 and fence = $7 and state = 'RUNNING'
  on conflict (deployment_id, service_id, name) do update
    set result = excluded.result, status = excluded.status, finished_at = excluded.finished_at
  returning 1`

const maxTries = 4
/** Retries are for short hiccups: no new one is started after this time, however few there were. */
const retriesMs = 30_000
const longestPauseMs = 8000
/** How long a step usually waits for an unavailable system before it fails with that as its cause. */
const usualWaitMs = 120_000

const retryPauseMs = (error: unknown, tries: number, passedMs: number): number | null => {
  if (!(error instanceof DeploymentError) || error.next === 'stop') return null
  if (error.next === 'retry') return tries < maxTries && passedMs < retriesMs ? 500 * 2 ** (tries - 1) : null
  return Math.min(1000 * 2 ** (tries - 1), longestPauseMs)
}

const seconds = (ms: number): number => Math.round(ms / 1000)

/** Work that does not end within this time after its abort is left behind: its cleanup continues by itself. */
const abortGraceMs = 3000

/** The end of `work`; or, soon after an abort that it ignores, the reason of the abort. */
export const orLeft = <T>(work: Promise<T>, signal: AbortSignal): Promise<T> => {
  const left = Promise.withResolvers<never>()
  let timer: NodeJS.Timeout | undefined
  const onAbort = (): void => {
    timer = setTimeout(() => left.reject(signal.reason), abortGraceMs)
  }
  if (signal.aborted) onAbort()
  else signal.addEventListener('abort', onAbort, { once: true })
  return Promise.race([work, left.promise]).finally(() => {
    clearTimeout(timer)
    signal.removeEventListener('abort', onAbort)
  })
}

/** Runs `work` until it succeeds, fails for good, or passes the deadline. */
export const attempt = async <T>(
  name: string,
  deadlineMs: number,
  work: (signal: AbortSignal) => Promise<T>,
  signal: AbortSignal,
  clock: Clock,
  onWait: (error: DeploymentError) => void,
  mostWaitMs = usualWaitMs,
): Promise<T> => {
  const [late, ended] = [new AbortController(), new AbortController()]
  clock.sleep(deadlineMs, ended.signal, { ref: false }).then(
    () => late.abort(),
    () => {},
  )
  const both = AbortSignal.any([signal, late.signal])
  const startedMs = clock.monotonicMs()
  let last: unknown
  try {
    for (let tries = 1; ; tries += 1) {
      try {
        both.throwIfAborted()
        return await orLeft(work(both), both)
      } catch (error) {
        signal.throwIfAborted()
        if (late.signal.aborted)
          throw (
            last ??
            new DeploymentError('step_timeout', `The step ${name} did not finish within ${seconds(deadlineMs)} s.`)
          )
        const passedMs = clock.monotonicMs() - startedMs
        const pauseMs = retryPauseMs(error, tries, passedMs)
        if (pauseMs === null || passedMs > mostWaitMs) throw error
        if (String(last) !== String(error)) onWait(error as DeploymentError)
        last = error
        await clock.sleep(pauseMs, both).catch(() => {})
      }
    }
  } finally {
    ended.abort()
  }
}

const errorStatus = (signal: AbortSignal): string => (signal.aborted ? 'CANCEL' : 'ERROR')

/** Steps of one service in one claimed deployment; `signal` ends them (cancel, lost lease, shutdown). */
export const createSteps = async (
  database: Database,
  clock: Clock,
  claim: Claim,
  serviceId: string,
  signal: AbortSignal,
  tell: { begins(name: string): void; waits(name: string, error: DeploymentError): void },
  mostWaitMs = usualWaitMs,
): Promise<Step> => {
  const finished = claim.resumed
    ? await database.query<{ name: string; result: unknown }>(
        `select name, result from deployment_step where deployment_id = $1 and service_id = $2 and status = 'SUCCESS'`,
        [claim.id, serviceId],
      )
    : []
  const results = new Map(finished.map((row) => [row.name, row.result]))
  const save = async (name: string, status: string, startedMs: number, result: unknown): Promise<void> => {
    const text = result === undefined ? null : JSON.stringify(result)
    const values = [claim.id, serviceId, name, text, status, clock.monotonicMs() - startedMs, claim.fence]
    const [row] = await database.query(record, values)
    if (row === undefined) throw new LeaseLost()
  }
  return async <T>(name: string, options: StepOptions, work: (signal: AbortSignal) => Promise<T>): Promise<T> => {
    const remember = options.remember ?? true
    if (remember && results.has(name)) return results.get(name) as T
    tell.begins(name)
    const startedMs = clock.monotonicMs()
    try {
      const onWait = (error: DeploymentError): void => tell.waits(name, error)
      const result = await attempt(name, options.deadlineMs, work, signal, clock, onWait, mostWaitMs)
      await save(name, 'SUCCESS', startedMs, remember ? (result ?? null) : null)
      return result
    } catch (error) {
      if (!(error instanceof LeaseLost)) await save(name, errorStatus(signal), startedMs, null).catch(() => {})
      throw error
    }
  }
}
