/**
 * Scheduled and manual runs: begins due or requested ones, and stores how they ended. A run continues while the
 * control plane is down: the next process joins it. A stop or a delete of its service ends it.
 */
import { readRef } from '../../clusters/refs.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { holdLease, LeaseLost, leaseMs, releaseLeases } from '../../work/lease.ts'
import { claimRun, finishRun, nextDue, prolongRuns, type RunClaim, runLeases } from '../../work/schedule.ts'
import { createWorker, type Held, type Worker } from '../../work/worker.ts'
import { isAlone } from '../desired/tasks.ts'
import { ofImage } from '../desired/workload.ts'
import { ensureImage, pullDeadlineMs } from '../images/make-image.ts'
import type { DeploymentParts } from '../parts.ts'
import { attempt } from '../progress/steps.ts'
import { type OpenedRelease, openRelease, type Release } from '../release/releases.ts'
import { writeRunEnd } from '../status/audit.ts'
import { runTask, type TaskClaim } from './run.ts'
import { createRunLog, type RunLog } from './run-log.ts'
import { endTaskOf } from './state.ts'

const longestSleepMs = 10_000
const heartbeatMs = 4000
const patienceMs = 2 * 60_000
const showRunning = async (parts: DeploymentParts, serviceId: string, state: string): Promise<void> => {
  await parts.database.query(
    `update service_state set running_state = $2 where service_id = $1 and desired = 'RUNNING'
       and ($2 = 'RUNNING' or not exists (select from task_run where service_id = $1 and state = 'RUNNING'))`,
    [serviceId, state],
  )
}

/** Its check rejects if the run was ended or taken over by another worker. */
interface Execution extends Held {
  run: RunClaim
  /** Exit code of its last attempt. */
  exitCode: number | null
}

const claimOf = async (
  parts: DeploymentParts,
  execution: Execution,
  { clusterId, workload: { environmentId, serviceId } }: Release,
  tell: TaskClaim['logLine'],
): Promise<TaskClaim> => {
  const { run, check, signal } = execution
  return {
    ...{ parts, logLine: tell },
    cluster: await parts.clusters.of(clusterId),
    ref: { clusterId, environmentId, serviceId },
    organizationId: run.organizationId,
    id: run.id,
    taskId: run.id,
    started: run.askedBy === null ? 'Scheduled run started.' : `Run started by ${run.askedBy}.`,
    ended: (exitCode) => {
      execution.exitCode = exitCode
    },
    // Nothing is stored: a server that resumes the run joins its execution.
    step: (name, { deadlineMs }, work) => {
      const checked = async (inner: AbortSignal) => {
        await check()
        return work(inner)
      }
      return attempt(name, deadlineMs, checked, signal, parts.clock, () => {})
    },
    write: (work) => holdLease(parts.database, runLeases, run, work),
  }
}

const asPlain = (error: unknown): { code: string; message: string } =>
  error instanceof DeploymentError
    ? { code: error.code, message: error.message }
    : { code: 'unexpected', message: `Internal error: the server's log has the details.` }

/** Does nothing if the service is gone: then everything is swept. */
const endTask = async (
  parts: DeploymentParts,
  serviceId: string,
  taskId: string,
  signal: AbortSignal,
): Promise<void> => {
  const ref = await readRef(parts.database, serviceId)
  if (ref !== null) await endTaskOf(parts, await parts.clusters.of(ref.clusterId), { ...ref, taskId }, signal)
}

const runDue = async (
  parts: DeploymentParts,
  execution: Execution,
  opened: OpenedRelease | null,
  tell: TaskClaim['logLine'],
): Promise<void> => {
  const { serviceId, name } = execution.run
  const spec = opened?.release.workload.tasks?.[name]
  if (opened === null || spec === undefined) throw new DeploymentError('not_deployed', 'The job is not deployed.')
  if (isAlone(opened.release.workload)) await showRunning(parts, serviceId, 'RUNNING')
  const claim = await claimOf(parts, execution, opened.release, tell)
  await claim.step('pull', { deadlineMs: pullDeadlineMs }, (signal) =>
    ensureImage(parts, claim.cluster, opened.release, () => {}, signal),
  )
  const workload = ofImage(opened.workload)
  await runTask(claim, { ...opened, workload, releaseId: opened.release.id }, { name, spec, event: 'CRON' })
}

const execute = async (parts: DeploymentParts, execution: Execution): Promise<void> => {
  const { run, signal } = execution
  const opened = await openRelease(parts.database, parts.sealer, run.releaseId)
  const told: RunLog | null = opened === null ? null : createRunLog(parts, run, opened.release.deploymentId)
  let error: ReturnType<typeof asPlain> | null = null
  try {
    await runDue(parts, execution, opened, (text, level) => told?.add(text, level))
  } catch (caught) {
    signal.throwIfAborted()
    if (caught instanceof LeaseLost) throw caught
    error = asPlain(caught)
    if (error.code === 'unexpected')
      parts.log.warn({ err: caught, serviceId: run.serviceId }, 'a scheduled run ended unexpectedly')
    told?.add(error.message, 'error')
  }
  await told?.flush()
  const kept = opened?.release.workload.tasks?.[run.name]?.kept
  const ours = await parts.database.transaction(async (tx) => {
    const isOurs = await finishRun(tx, run, { error, exitCode: execution.exitCode, kept })
    if (isOurs && run.askedBy !== null) await writeRunEnd(tx, { ...run, askedBy: run.askedBy }, error)
    return isOurs
  })
  // Leftovers are swept later.
  await endTask(parts, run.serviceId, run.id, signal).catch(() => {})
  if (ours && opened !== null && isAlone(opened.release.workload))
    await showRunning(parts, run.serviceId, error === null ? 'COMPLETED' : 'ERROR')
}

export const startScheduler = (parts: DeploymentParts, worker: string): Worker => {
  const { database, clock } = parts

  /** Executions that cannot be ended now are swept later. */
  const endReplaced = (serviceId: string, id: string): void => {
    runs.abort(id, new Error('the run was stopped: the next one replaces it'))
    endTask(parts, serviceId, id, AbortSignal.timeout(patienceMs)).catch(() => {})
  }
  const claimNext = async () => {
    const now = clock.now()
    const begun = await claimRun(database, worker, now)
    if (begun !== null) {
      for (const id of begun.replaced) endReplaced(begun.run.serviceId, id)
      return { claimed: [begun.run], more: true }
    }
    const due = await nextDue(database, now)
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
    // The limit is per organization, in the claim.
    concurrency: Number.POSITIVE_INFINITY,
    periodMs: longestSleepMs,
    idOf: ({ id }) => id,
    about: ({ serviceId }) => ({ serviceId }),
    claim: claimNext,
    run: (run, held) => execute(parts, { run, exitCode: null, ...held }),
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
