/**
 * Runs by the clock: begins what is due, and writes down how it ended. A run goes on while the control plane is away:
 * the next process joins it. A stop or a delete of its service ends it.
 */
import type { Cluster } from '../clusters/clusters.ts'
import { readRef } from '../clusters/refs.ts'
import { DeploymentError } from '../lib/errors.ts'
import { storable } from '../lib/storable.ts'
import { LeaseLost, leaseMs, releaseLeases } from '../work/lease.ts'
import { claimRun, finishRun, keptRuns, nextDue, prolongRuns, type RunClaim, runLeases } from '../work/schedule.ts'
import { createWorker, type Held, type Worker } from '../work/worker.ts'
import type { TaskSpec } from './deployments.ts'
import type { EngineParts } from './engine-parts.ts'
import { type DeploymentLogLine, writeRunLog } from './log.ts'
import { holdImage } from './make-image.ts'
import { type OpenedRelease, openRelease } from './releases.ts'
import { outputFolders } from './task-files.ts'
import { createTail, failureOf, toTask } from './tasks.ts'

const longestSleepMs = 10_000
const heartbeatMs = 4000
const patienceMs = 2 * 60_000
const pauseMs = 2000
const keptLines = 100
/** Runs worked on at once. */
const parallel = 16

const showRunning = async (parts: EngineParts, serviceId: string, state: string): Promise<void> => {
  await parts.database.query(
    `update service_state set running_state = $2 where service_id = $1 and desired = 'RUNNING'
       and ($2 = 'RUNNING' or not exists (select from task_run where service_id = $1 and state = 'RUNNING'))`,
    [serviceId, state],
  )
}

/** Waits while the engine is away, for a while. */
const patiently = async <T>(parts: EngineParts, work: () => Promise<T>, signal: AbortSignal): Promise<T> => {
  const startedMs = parts.clock.monotonicMs()
  for (;;)
    try {
      return await work()
    } catch (error) {
      signal.throwIfAborted()
      const waits = error instanceof DeploymentError && error.next !== 'stop'
      if (!waits || parts.clock.monotonicMs() - startedMs > patienceMs) throw error
      await parts.clock.sleep(pauseMs, signal)
    }
}

/** Its check rejects when the run was ended or is somebody else's by now. */
interface Execution extends Held {
  run: RunClaim
}

const runTries = async (
  parts: EngineParts,
  cluster: Cluster,
  opened: OpenedRelease,
  spec: TaskSpec,
  { run, check, signal }: Execution,
  tail: ReturnType<typeof createTail>,
): Promise<void> => {
  const task = toTask(opened, spec, 'CRON', run.id)
  const runOnce = async (attempt: number) => {
    await check()
    return cluster.runtime.run({ ...task, folders: outputFolders, attempt }, tail.add, signal)
  }
  await patiently(parts, () => holdImage(parts, cluster, opened.release, () => {}, signal), signal)
  for (let tries = 1; ; tries += 1) {
    const result = await patiently(parts, () => runOnce(tries), signal)
    const failure = failureOf(result, task.memoryMb, tail.lines)
    if (failure === null) return
    if (tries > spec.maxRestarts) throw failure
  }
}

const asPlain = (error: unknown): { code: string; message: string } =>
  error instanceof DeploymentError
    ? { code: error.code, message: error.message }
    : { code: 'unexpected', message: `Internal error: the server's log has the details.` }

/** What is kept of a run: when it began, the last lines, and how it ended. */
const createTold = ({ clock }: EngineParts) => {
  const lines: DeploymentLogLine[] = []
  return {
    lines,
    add(text: string, level: DeploymentLogLine['level'] = 'info'): void {
      lines.push({ at: clock.now().toISOString(), text: storable(text), level })
      if (lines.length > keptLines) lines.splice(1, 1)
    },
  }
}

/** Nothing, when the service is gone: all of it is swept then. */
const endTask = async (parts: EngineParts, serviceId: string, taskId: string, signal: AbortSignal): Promise<void> => {
  const ref = await readRef(parts.database, serviceId)
  if (ref === null) return
  const { runtime } = await parts.clusters.of(ref.clusterId)
  await runtime.endTask({ ...ref, taskId }, signal)
}

const execute = async (parts: EngineParts, execution: Execution): Promise<void> => {
  const { run, signal } = execution
  const opened = await openRelease(parts.database, parts.sealer, run.releaseId)
  const spec = opened?.release.workload.task
  const told = createTold(parts)
  const tail = createTail(opened?.environment.secretValues ?? [], told.add)
  let error: ReturnType<typeof asPlain> | null = null
  try {
    if (opened === null || spec === undefined) throw new DeploymentError('not_deployed', 'The job is not deployed.')
    await showRunning(parts, run.serviceId, 'RUNNING')
    told.add('Scheduled run started.')
    await runTries(parts, await parts.clusters.of(opened.release.clusterId), opened, spec, execution, tail)
  } catch (caught) {
    signal.throwIfAborted()
    error = asPlain(caught)
    if (error.code === 'unexpected')
      parts.log.warn({ err: caught, serviceId: run.serviceId }, 'a scheduled run ended unexpectedly')
  }
  told.add(error?.message ?? 'Job finished.', error === null ? 'info' : 'error')
  const ours = await parts.database.transaction(async (tx) => {
    if (opened !== null) await writeRunLog(tx, opened.release.deploymentId, run.serviceId, told.lines, keptRuns)
    return finishRun(tx, run, error)
  })
  // What stays here is swept later.
  await endTask(parts, run.serviceId, run.id, signal).catch(() => {})
  if (ours) await showRunning(parts, run.serviceId, error === null ? 'COMPLETED' : 'ERROR')
}

export const startScheduler = (parts: EngineParts, worker: string): Worker => {
  const { database, clock } = parts

  /** What cannot be ended now is swept later. */
  const endReplaced = (serviceId: string, id: string): void => {
    runs.abort(id, new Error('the run was stopped: the next one replaces it'))
    endTask(parts, serviceId, id, AbortSignal.timeout(patienceMs)).catch(() => {})
  }
  const claimNext = async () => {
    const begun = await claimRun(database, worker, clock.now())
    if (begun !== null) {
      for (const id of begun.replaced) endReplaced(begun.run.serviceId, id)
      return { claimed: [begun.run], more: true }
    }
    const due = await nextDue(database)
    return { claimed: [], more: false, nextMs: due === null ? undefined : due.getTime() - clock.now().getTime() }
  }
  const renew = async (ids: readonly string[]): Promise<Map<string, Error>> => {
    const held = await prolongRuns(database, worker, ids)
    const lost = ids.filter((id) => held.get(id) !== 'here')
    return new Map(
      lost.map((id) => [id, held.get(id) === 'elsewhere' ? new LeaseLost() : new Error('the run was stopped')]),
    )
  }
  const runs = createWorker<RunClaim>(parts, {
    name: 'scheduled runs',
    concurrency: parallel,
    periodMs: longestSleepMs,
    idOf: ({ id }) => id,
    about: ({ serviceId }) => ({ serviceId }),
    claim: claimNext,
    run: (run, held) => execute(parts, { run, ...held }),
    renew: { everyMs: heartbeatMs, leaseMs, renew },
    release: (all) =>
      releaseLeases(
        database,
        runLeases,
        worker,
        all.map(({ id }) => id),
      ),
    failed: 'a scheduled run was interrupted and waits for its next claim',
  })
  return runs
}
