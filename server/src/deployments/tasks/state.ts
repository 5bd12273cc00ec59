/**
 * The state that the runs of a service pass on from one to the next, sealed in between. One run at a time has it. The
 * state that a program left is saved whatever its result was; if its effects are unknown, the state stays locked until
 * a user unlocks it.
 */
import type { Cluster } from '../../clusters/clusters.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { ForeignTextError, readLargeJson } from '../../lib/foreign-text/read-json.ts'
import type { TaskKey, TaskOutputs } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import type { DeploymentParts } from '../parts.ts'
import { openStates } from '../status/states.ts'
import { leftState, stateOutputs, textOf } from './files.ts'
import { ownerOfTask, taskIdOf } from './ids.ts'
import type { TaskClaim } from './run.ts'

type Parts = Pick<DeploymentParts, 'database' | 'sealer' | 'log'>

/** For programs of tools that keep locks and write files, if their owner set nothing. */
export const stopGraceMs = 9000

interface StateLock {
  /** Null before the first run. */
  text: string | null
  /** The last attempt of this claim whose program may have begun. */
  begun: number | null
}

interface Row {
  sealed: string | null
  releaseId: string | null
  lockedBy: string | null
  begun: number | null
}

const columns = `sealed, release_id as "releaseId", held_by as "lockedBy", begun`

const place = (serviceId: string) => ({ table: 'task_state', row: serviceId, column: 'sealed' })

export const findState = async (db: Queryable, serviceId: string): Promise<Row | null> => {
  const [row] = await db.query<Row>(`select ${columns} from task_state where id = $1`, [serviceId])
  return row ?? null
}

const take = ({ write, ref, organizationId, id }: TaskClaim): Promise<Row | null> =>
  write(async (tx) => {
    const [row] = await tx.query<Row>(
      `insert into task_state as t (id, organization_id, held_by, locked_at) values ($1, $2, $3, clock_timestamp())
       on conflict (id) do update set held_by = excluded.held_by, locked_at = coalesce(
         case when t.held_by = excluded.held_by then t.locked_at end, excluded.locked_at)
       where t.held_by is null or t.held_by = excluded.held_by
       returning ${columns}`,
      [ref.serviceId, organizationId, id],
    )
    return row ?? null
  })

const locked = async (db: Queryable, serviceId: string): Promise<DeploymentError> => {
  const [holder] = await db.query<{ execution: string | null; at: Date }>(
    `select d.environment_id || '-' || d.execution_number as execution, t.locked_at as at
     from task_state t left join deployment d on d.id = t.held_by where t.id = $1`,
    [serviceId],
  )
  const since = holder?.at === undefined ? '' : ` since ${holder.at.toISOString()}`
  return new DeploymentError(
    'state_locked',
    `The state is locked by execution ${holder?.execution ?? 'unknown'}${since}, and it is unknown what that run did. Check the resources, then unlock the state with a deploy with the action FORCE_UNLOCK.`,
  )
}

/** Those of these deployments, scheduled runs and runs of clusters that are in progress. */
export const openOwners = async (db: Queryable, ids: readonly string[]): Promise<Set<string>> => {
  const open = await db.query<{ id: string }>(
    `select id from deployment where id::text = any($1) and state in ${openStates}
     union all select id from task_run where id::text = any($1) and state = 'RUNNING'
     union all select run_id from managed_cluster where run_id::text = any($1)`,
    [ids],
  )
  return new Set(open.map(({ id }) => id))
}

/** Ends an owner's execution that outlived it, as after a cancel and a crash: its container still has the result. */
const endHolder = async ({ parts, cluster, ref }: TaskClaim, signal: AbortSignal): Promise<void> => {
  const held = (await findState(parts.database, ref.serviceId))?.lockedBy ?? null
  if (held === null || (await openOwners(parts.database, [held])).has(held)) return
  const isRun = (await parts.database.query('select 1 from task_run where id = $1', [held])).length > 0
  const taskId = isRun ? held : taskIdOf(held, ref.serviceId)
  await endTaskOf(parts, cluster, { ...ref, taskId }, signal)
}

const openState = async ({ parts, organizationId, ref }: TaskClaim, { sealed }: Row): Promise<string | null> =>
  sealed === null ? null : (await parts.sealer.open(organizationId, place(ref.serviceId), sealed)).reveal()

/** Locks the state for this claim's run; the same claim may call again. Rejects while another one has it. */
export const lockState = async (claim: TaskClaim, signal: AbortSignal): Promise<StateLock> => {
  let row = await take(claim)
  if (row === null) {
    await endHolder(claim, signal)
    row = await take(claim)
  }
  if (row === null) throw await locked(claim.parts.database, claim.ref.serviceId)
  return { text: await openState(claim, row), begun: row.begun }
}

/** The present state, for a run that only reads it; rejects while a run has it locked. */
export const lookAtState = async (claim: TaskClaim, signal: AbortSignal): Promise<string | null> => {
  await endHolder(claim, signal)
  const row = await findState(claim.parts.database, claim.ref.serviceId)
  if (row === null) return null
  if (row.lockedBy !== null) throw await locked(claim.parts.database, claim.ref.serviceId)
  return openState(claim, row)
}

/** Written before a program can begin: from now on only its container has the result. */
export const markStarted = (claim: TaskClaim, releaseId: string | null, attempt: number): Promise<unknown> =>
  claim.write((tx) =>
    tx.query(`update task_state set begun = $3, release_id = coalesce($4, release_id) where id = $1 and held_by = $2`, [
      claim.ref.serviceId,
      claim.id,
      attempt,
      releaseId,
    ]),
  )

export const stateUnknown = (): DeploymentError =>
  new DeploymentError(
    'state_unknown',
    'The container of the run no longer exists, or its state file is damaged: it is unknown what the run did. The state stays locked. Check the resources, then unlock it with a deploy with the action FORCE_UNLOCK.',
  )

/** A state may be as large as any output of a run: only its serial is read. */
const stateBounds = { mostBytes: 64 << 20, mostValues: 20_000_000, mostDepth: 1000 }

/**
 * Rejects for text that is not JSON. Null for a state that is too large to be read: it is stored all the same, because
 * nothing else knows the resources.
 */
const serialIn = async (text: string, owner: string): Promise<number | null> => {
  try {
    const state = await readLargeJson(text, { ...stateBounds, owner, keep: { serial: true } })
    const { serial } = (state ?? {}) as { serial?: unknown }
    return typeof serial === 'number' && Number.isSafeInteger(serial) ? serial : 0
  } catch (error) {
    if (!(error instanceof ForeignTextError)) throw error
    if (error.code === 'malformed') throw stateUnknown()
    return null
  }
}

interface Holder {
  organizationId: string
  serviceId: string
  lockedBy: string
}

/** Prepares the write of the state that a run left; made outside of the writing transaction. */
const stateWrite = async ({ sealer }: Parts, { organizationId, serviceId, lockedBy }: Holder, outputs: TaskOutputs) => {
  const text = textOf(outputs, leftState)
  const serial = text === undefined ? null : await serialIn(text, organizationId)
  const sealed = text === undefined ? null : await sealer.seal(organizationId, place(serviceId), text)
  return async (tx: Queryable): Promise<void> => {
    await tx.query(
      `update task_state set sealed = coalesce($3, sealed), serial = coalesce($4, serial), held_by = null,
         locked_at = null, begun = null, updated_at = clock_timestamp() where id = $1 and held_by = $2`,
      [serviceId, lockedBy, sealed, serial],
    )
  }
}

/** Saves the state that a run left, whatever its result, and unlocks it; one that moved elsewhere is deleted. */
export const saveState = async (claim: TaskClaim, outputs: TaskOutputs, hasMoved: boolean): Promise<void> => {
  const { parts, organizationId, ref, id } = claim
  const write = await stateWrite(parts, { organizationId, serviceId: ref.serviceId, lockedBy: id }, outputs)
  await claim.write(async (tx) => {
    await write(tx)
    if (hasMoved) await tx.query('delete from task_state where id = $1', [ref.serviceId])
  })
}

/**
 * Ends an abandoned execution. Its program is asked first, if it has a grace period or a state; the state that it left
 * is saved before its container is removed; if that is impossible, the state stays locked.
 */
export const endTaskOf = async (
  parts: Parts,
  cluster: Cluster,
  task: TaskKey,
  signal: AbortSignal,
  graceMs?: number,
): Promise<void> => {
  const lockedBy = ownerOfTask(task.taskId)
  const [row] = await parts.database.query<{ organizationId: string; begun: number | null }>(
    `select organization_id as "organizationId", begun from task_state where id = $1 and held_by = $2`,
    [task.serviceId, lockedBy],
  )
  if (row !== undefined)
    await saveAtEnd(parts, cluster, task, { ...row, serviceId: task.serviceId, lockedBy, graceMs }, signal)
  else if (graceMs !== undefined && graceMs > 0)
    await cluster.runtime.stopTask({ ...task, outputs: [] }, graceMs, signal)
  await cluster.runtime.endTask(task, signal)
}

const saveAtEnd = async (
  parts: Parts,
  { runtime }: Cluster,
  task: TaskKey,
  held: Holder & { begun: number | null; graceMs: number | undefined },
  signal: AbortSignal,
): Promise<void> => {
  try {
    // Without an attempt that may have begun, nothing was left.
    const stopped = { ...task, outputs: stateOutputs }
    const outputs = held.begun === null ? {} : await runtime.stopTask(stopped, held.graceMs ?? stopGraceMs, signal)
    if (outputs === null) throw stateUnknown()
    await parts.database.transaction(await stateWrite(parts, held, outputs))
  } catch (error) {
    if (!(error instanceof DeploymentError) || error.next !== 'stop') throw error
    parts.log.warn({ err: error, serviceId: held.serviceId }, 'the state after a run is unknown: it stays locked')
  }
}

/** Unlocks a state, whatever holds it; the state left by its last run is saved first, if there is any. */
export const unlockState = async (claim: TaskClaim, signal: AbortSignal): Promise<boolean> => {
  await endHolder(claim, signal)
  return claim.write(async (tx) => {
    const rows = await tx.query(
      `update task_state set held_by = null, locked_at = null, begun = null where id = $1 and held_by is not null
       returning id`,
      [claim.ref.serviceId],
    )
    return rows.length > 0
  })
}

/** The end of a service: deletes everything that its runs left. */
export const forgetLeft = ({ write, ref }: TaskClaim): Promise<unknown> =>
  write(async (tx) => {
    await tx.query('delete from service_output where service_id = $1', [ref.serviceId])
    await tx.query('delete from task_state where id = $1', [ref.serviceId])
  })
