/** One try of a task: what it is given, its run, and what is kept of what it left, saved before the try counts as over. */
import { DeploymentError } from '../lib/errors.ts'
import { Secret } from '../lib/secret.ts'
import type { Task } from '../runtimes/runtime.ts'
import { withClaim } from '../work/queue.ts'
import type { TaskEvent, TaskSpec } from './deployments.ts'
import type { ServiceRun } from './service-run.ts'
import { givenState, outputBytes, outputFolders } from './task-files.ts'
import { parseOutputs, sealOutputs, writeOutputs } from './task-outputs.ts'
import { findState, type Holding, markBegun, readState, stateWrite, takeState } from './task-state.ts'

export interface Try {
  task: Task
  spec: TaskSpec
  event: TaskEvent
  releaseId: string
  attempt: number
}

/** Events that bring something about, of which neighbours are told. */
const tellsOutputs: ReadonlySet<TaskEvent> = new Set(['START', 'STOP', 'CRON'])

const withState = (task: Task, text: string | null): Task =>
  text === null ? task : { ...task, files: new Secret([...task.files.reveal(), { path: givenState, content: text }]) }

const notMigrated = (): DeploymentError =>
  new DeploymentError(
    'state_not_migrated',
    'The state of this service is stored on this server, but its backend has changed: move the state with a deploy with the action MIGRATE_STATE.',
  )

/** The state that the program gets; null where it needs none of us. */
const holdState = async (run: ServiceRun, { spec, event }: Try, signal: AbortSignal): Promise<Holding | null> => {
  if (spec.state === undefined) return null
  if (spec.state === 'HERE') return takeState(run, signal)
  const kept = (await findState(run.parts.database, run.service.id))?.sealed ?? null
  if (event !== 'MIGRATE') {
    if (kept !== null) throw notMigrated()
    return null
  }
  if (kept === null) throw new DeploymentError('nothing_to_migrate', 'This server has no state of this service.')
  return takeState(run, signal)
}

/** Saves the state that the program left, whatever its end was. */
const keepState = async (run: ServiceRun, its: Try, isGood: boolean, signal: AbortSignal): Promise<void> => {
  const { parts, claim, service } = run
  const files = await readState(run.cluster, its.task, true, signal)
  const holder = { organizationId: claim.organizationId, serviceId: service.id, heldBy: claim.id }
  const writeState = await stateWrite(parts, holder, files)
  const hasMoved = isGood && its.event === 'MIGRATE' && its.spec.state === 'ELSEWHERE'
  await withClaim(parts.database, claim, async (tx) => {
    await writeState(tx)
    if (hasMoved) await tx.query('delete from task_state where id = $1', [service.id])
  })
}

/** Keeps what the program tells its neighbours; a file of that which is no good makes its end a bad one. */
const keepOutputs = async (run: ServiceRun, { task, event }: Try, signal: AbortSignal): Promise<void> => {
  const { parts, claim, service } = run
  const { organizationId } = claim
  if (!tellsOutputs.has(event)) return
  const outputs = parseOutputs((await run.cluster.runtime.readTask(task, outputBytes, signal)) ?? {})
  if (outputs === null) return
  const rows = await sealOutputs(parts.sealer, organizationId, outputs)
  await withClaim(parts.database, claim, (tx) => writeOutputs(tx, organizationId, service.id, rows))
}

const hasEnded = (error: unknown): boolean =>
  error instanceof DeploymentError && (error.code === 'task_timeout' || error.code === 'task_gone')

/** Whoever begins the same try again joins its execution, also when that has ended. */
export const runTry = async (run: ServiceRun, its: Try, onLine: (line: string) => void, signal: AbortSignal) => {
  const { attempt, releaseId } = its
  const held = await holdState(run, its, signal)
  const hasState = held !== null
  const task: Task = { ...withState(its.task, held?.text ?? null), folders: outputFolders, attempt }
  const options = hasState
    ? {
        joinOnly: (held.begun ?? 0) >= attempt,
        beforeStart: async () => void (await markBegun(run, releaseId, attempt)),
      }
    : {}
  try {
    const result = await run.cluster.runtime.run(task, onLine, signal, options)
    const isGood = result.exitCode === 0
    if (hasState) await keepState(run, its, isGood, signal)
    if (isGood) await keepOutputs(run, its, signal)
    return result
  } catch (error) {
    if (hasState && hasEnded(error)) await keepState(run, its, false, signal)
    throw error
  }
}
