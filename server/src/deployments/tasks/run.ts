/**
 * Runs one task to its end, as often as its restarts allow: the one way for deployments, schedules and forced events.
 * The holder of the claim can begin again at any point: an execution in progress is joined, and its outputs are saved
 * before its attempt counts as over.
 */
import type { Cluster, ServiceRef } from '../../clusters/clusters.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import type { Once, Task, TaskEnd, Workload } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import type { Output, TaskEvent } from '../deployments.ts'
import type { TaskToRun } from '../desired/tasks.ts'
import type { DeploymentParts } from '../parts.ts'
import type { Step } from '../progress/steps.ts'
import type { OpenedRelease } from '../release/releases.ts'
import { givenState, textOf } from './files.ts'
import { parseOutputs, sealOutputs, writeOutputs } from './outputs.ts'
import { findState, lockState, lookAtState, markStarted, saveState, stateUnknown } from './state.ts'
import { createTail, failureOf, toTask } from './tasks.ts'

const graceMs = 10 * 60_000

/** The owner of a task: a deployment, or a scheduled run. */
export interface TaskClaim {
  parts: Pick<DeploymentParts, 'database' | 'sealer' | 'log'>
  cluster: Cluster
  ref: ServiceRef
  organizationId: string
  /** Id of the deployment or the run: it locks the state. */
  id: string
  taskId: string
  step: Step
  /** A transaction that holds the claim; rejects with `LeaseLost` if another worker has it. */
  write<T>(work: (tx: Queryable) => Promise<T>): Promise<T>
  logLine(text: string, level?: 'info' | 'error'): void
  /** The log lines of its first attempt, and of a success. */
  started?: string
  finished?: string
  /** Takes its outputs after a success, instead of storing them for the other services; null if there are none. */
  told?(outputs: readonly Output[] | null): Promise<void>
  /** Called when the program of an attempt has ended. */
  ended?(exitCode: number): void
}

/** A release, or a would-be one. */
export type Runnable = Pick<OpenedRelease, 'environment'> & { workload: Workload; releaseId: string | null }

/** Events that change something, whose outputs are for other services. */
const tellsOutputs: ReadonlySet<TaskEvent> = new Set(['START', 'STOP', 'CRON'])

const notMigrated = (): DeploymentError =>
  new DeploymentError(
    'state_not_migrated',
    'The state of this service is stored on this server, but its backend has changed: move the state with a deploy with the action MIGRATE_STATE.',
  )

/** The state that an attempt gets, and whether the one it leaves is stored. */
interface Given {
  text: string | null
  isKept: boolean
  once?: Once
}

const nothing: Given = { text: null, isKept: false }

const take = async (
  claim: TaskClaim,
  releaseId: string | null,
  attempt: number,
  signal: AbortSignal,
): Promise<Given> => {
  const { text, begun } = await lockState(claim, signal)
  const mark = async () => void (await markStarted(claim, releaseId, attempt))
  return { text, isKept: true, once: { marked: (begun ?? 0) >= attempt, mark } }
}

const giveState = async (
  claim: TaskClaim,
  { spec, event }: TaskToRun,
  releaseId: string | null,
  attempt: number,
  signal: AbortSignal,
): Promise<Given> => {
  if (spec.state === undefined) return nothing
  if (spec.state === 'HERE')
    return event === 'PLAN'
      ? { ...nothing, text: await lookAtState(claim, signal) }
      : take(claim, releaseId, attempt, signal)
  const kept = (await findState(claim.parts.database, claim.ref.serviceId))?.sealed ?? null
  if (event !== 'MIGRATE') {
    if (kept !== null) throw notMigrated()
    return nothing
  }
  if (kept === null) throw new DeploymentError('nothing_to_migrate', 'This server has no state of this service.')
  return take(claim, releaseId, attempt, signal)
}

const withState = (task: Task, text: string | null): Task =>
  text === null ? task : { ...task, files: new Secret([...task.files.reveal(), { path: givenState, content: text }]) }

/** Stores the program's outputs for other services; an invalid file turns its success into a failure. */
const saveOutputs = async ({ parts, write, organizationId, ref }: TaskClaim, { outputs }: TaskEnd): Promise<void> => {
  const told = parseOutputs((path) => textOf(outputs, path))
  if (told === null) return
  const rows = await sealOutputs(parts.sealer, organizationId, told)
  await write((tx) => writeOutputs(tx, organizationId, ref.serviceId, rows))
}

const isLost = (error: unknown): boolean => error instanceof DeploymentError && error.code === 'task_gone'

/** The result is stored as the result of a step, which must not contain outputs of the program. */
const runAttempt = async (
  claim: TaskClaim,
  wanted: TaskToRun,
  task: Task & { attempt: number },
  releaseId: string | null,
  tail: ReturnType<typeof createTail>,
  signal: AbortSignal,
): Promise<Pick<TaskEnd, 'exitCode' | 'oomKilled' | 'notStarted'>> => {
  const given = await giveState(claim, wanted, releaseId, task.attempt, signal)
  const run = claim.cluster.runtime.run(withState(task, given.text), tail.add, signal, given.once)
  const end = await run.catch((error: unknown) => {
    throw given.isKept && isLost(error) ? stateUnknown() : error
  })
  const { exitCode, oomKilled, timedOut, notStarted } = end
  claim.ended?.(exitCode)
  const isGood = exitCode === 0 && !timedOut
  const hasMoved = isGood && wanted.event === 'MIGRATE' && wanted.spec.state === 'ELSEWHERE'
  if (given.isKept) await saveState(claim, end.outputs, hasMoved)
  if (timedOut) {
    const message = `The task did not finish within ${Math.round(task.timeoutMs / 1000)} s.`
    throw new DeploymentError('task_timeout', message, { lines: [...tail.lines] })
  }
  if (isGood && claim.told !== undefined) await claim.told(parseOutputs((path) => textOf(end.outputs, path)))
  else if (isGood && tellsOutputs.has(wanted.event)) await saveOutputs(claim, end)
  return { exitCode, oomKilled, ...(notStarted === undefined ? {} : { notStarted }) }
}

/** Fails as the task does. Its execution is kept until the claim's owner has stored how it ended. */
export const runTask = async (
  claim: TaskClaim,
  { workload, environment, releaseId }: Runnable,
  wanted: TaskToRun,
): Promise<void> => {
  const { spec } = wanted
  const task = toTask(workload, wanted, claim.taskId)
  for (let attempt = 1; ; attempt += 1) {
    const tail = createTail(environment.secretValues, (line) => claim.logLine(line))
    const again = `Restarting the job: attempt ${attempt} of ${spec.maxRestarts + 1}.`
    claim.logLine(attempt === 1 ? (claim.started ?? 'Job started.') : again)
    const end = await claim.step(
      `task-${attempt}`,
      { deadlineMs: spec.timeoutMs + (task.stopGraceMs ?? 0) + graceMs },
      (signal) => runAttempt(claim, wanted, { ...task, attempt }, releaseId, tail, signal),
    )
    const failure = failureOf(end, task.memoryMb, tail.lines)
    if (failure === null) break
    if (attempt > spec.maxRestarts) throw failure
    claim.logLine(failure.message, 'error')
  }
  claim.logLine(claim.finished ?? 'Job finished.')
}
