/**
 * What the runs of a service hand on from one to the next, sealed in between. One run at a time has it. What a program
 * left is saved whatever its end was; where nobody can know what it did, the state stays locked until a person says so.
 */
import type { Cluster } from '../clusters/clusters.ts'
import { DeploymentError } from '../lib/errors.ts'
import type { TaskKey } from '../runtimes/runtime.ts'
import type { Database, Queryable } from '../store/database.ts'
import { withClaim } from '../work/queue.ts'
import type { EngineParts } from './engine-parts.ts'
import type { ServiceRun } from './service-run.ts'
import { leftState, stateBytes } from './task-files.ts'
import { ownerOfTask, taskIdOf } from './task-ids.ts'

type Parts = Pick<EngineParts, 'database' | 'sealer' | 'log'>

/** A program of tools that keep locks and write files is asked before it is killed. */
export const stopGraceMs = 9000

export interface Holding {
  /** Null before the first run. */
  text: string | null
  releaseId: string | null
  /** The last try of this deployment whose program has started. */
  begun: number | null
}

interface Row {
  sealed: string | null
  releaseId: string | null
  heldBy: string | null
  begun: number | null
}

const columns = `sealed, release_id as "releaseId", held_by as "heldBy", begun`

const place = (serviceId: string) => ({ table: 'task_state', row: serviceId, column: 'sealed' })

export const findState = async (db: Queryable, serviceId: string): Promise<Row | null> => {
  const [row] = await db.query<Row>(`select ${columns} from task_state where id = $1`, [serviceId])
  return row ?? null
}

const take = (run: ServiceRun): Promise<Row | null> =>
  withClaim(run.parts.database, run.claim, async (tx) => {
    const [row] = await tx.query<Row>(
      `insert into task_state as t (id, organization_id, held_by, locked_at) values ($1, $2, $3, clock_timestamp())
       on conflict (id) do update set held_by = excluded.held_by, locked_at = coalesce(
         case when t.held_by = excluded.held_by then t.locked_at end, excluded.locked_at)
       where t.held_by is null or t.held_by = excluded.held_by
       returning ${columns}`,
      [run.service.id, run.claim.organizationId, run.claim.id],
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

const isOpen = async (db: Queryable, deploymentId: string): Promise<boolean> =>
  (await db.query(`select 1 from deployment where id = $1 and state in ('QUEUED', 'RUNNING')`, [deploymentId])).length >
  0

/** The state for this deployment's run; the same deployment may ask again. Rejects while another one has it. */
export const takeState = async (run: ServiceRun, signal: AbortSignal): Promise<Holding> => {
  const { parts, service, claim } = run
  let row = await take(run)
  if (row === null) {
    await endHolder(run, signal)
    row = await take(run)
  }
  if (row === null) throw await locked(parts.database, service.id)
  const { sealed, releaseId, begun } = row
  if (sealed === null) return { text: null, releaseId, begun }
  const text = await parts.sealer.open(claim.organizationId, place(service.id), sealed)
  return { text: text.reveal(), releaseId, begun }
}

/** What ended without its end being written down, as when a cancel and a crash meet: its container still tells. */
const endHolder = async ({ parts, cluster, ref }: ServiceRun, signal: AbortSignal): Promise<void> => {
  const held = (await findState(parts.database, ref.serviceId))?.heldBy ?? null
  if (held !== null && !(await isOpen(parts.database, held)))
    await endTaskOf(parts, cluster, { ...ref, taskId: taskIdOf(held, ref.serviceId) }, signal)
}

/** Written before a program starts: from now on only its container knows the truth. */
export const markBegun = (run: ServiceRun, releaseId: string, attempt: number): Promise<unknown> =>
  withClaim(run.parts.database, run.claim, (tx) =>
    tx.query('update task_state set begun = $3, release_id = $4 where id = $1 and held_by = $2', [
      run.service.id,
      run.claim.id,
      attempt,
      releaseId,
    ]),
  )

const serialOf = (text: string): number => {
  const { serial } = JSON.parse(text) as { serial?: unknown }
  return typeof serial === 'number' && Number.isSafeInteger(serial) ? serial : 0
}

const unknown = (): DeploymentError =>
  new DeploymentError(
    'state_unknown',
    'The container of the run no longer exists, or its state file is damaged: it is unknown what the run did. The state stays locked. Check the resources, then unlock it with a deploy with the action FORCE_UNLOCK.',
  )

const isJson = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** A write of the state that a run left, and its release; made outside of the transaction that does it. */
export const stateWrite = async (
  { sealer }: Parts,
  { organizationId, serviceId, heldBy }: { organizationId: string; serviceId: string; heldBy: string },
  files: Readonly<Record<string, string>>,
): Promise<(tx: Queryable) => Promise<void>> => {
  const text = files[leftState]
  if (text !== undefined && !isJson(text)) throw unknown()
  const sealed = text === undefined ? null : await sealer.seal(organizationId, place(serviceId), text)
  return async (tx) => {
    await tx.query(
      `update task_state set sealed = coalesce($3, sealed), serial = coalesce($4, serial), held_by = null,
         locked_at = null, begun = null, updated_at = clock_timestamp() where id = $1 and held_by = $2`,
      [serviceId, heldBy, sealed, text === undefined ? null : serialOf(text)],
    )
  }
}

/** The state that an execution left. `state_unknown` when it had begun and its container is gone. */
export const readState = async (
  { runtime }: Cluster,
  task: TaskKey,
  begun: boolean,
  signal: AbortSignal,
): Promise<Record<string, string>> => {
  const files = await runtime.readTask(task, stateBytes, signal)
  if (files === null && begun) throw unknown()
  return files ?? {}
}

/**
 * Ends an execution that nobody waits for. Where it has a state, its program is asked first, and what it left is saved
 * before its container goes; when that cannot be, the state stays locked.
 */
export const endTaskOf = async (parts: Parts, cluster: Cluster, task: TaskKey, signal: AbortSignal): Promise<void> => {
  const heldBy = ownerOfTask(task.taskId)
  const [row] = await parts.database.query<{ organizationId: string; begun: number | null }>(
    `select organization_id as "organizationId", begun from task_state where id = $1 and held_by = $2`,
    [task.serviceId, heldBy],
  )
  if (row !== undefined) await saveAtEnd(parts, cluster, task, { ...row, serviceId: task.serviceId, heldBy }, signal)
  await cluster.runtime.endTask(task, signal)
}

const saveAtEnd = async (
  parts: Parts,
  cluster: Cluster,
  task: TaskKey,
  held: { organizationId: string; serviceId: string; heldBy: string; begun: number | null },
  signal: AbortSignal,
): Promise<void> => {
  try {
    const begun = held.begun !== null
    if (begun) await cluster.runtime.stopTask(task, stopGraceMs, signal)
    const files = await readState(cluster, task, begun, signal)
    const write = await stateWrite(parts, held, files)
    await parts.database.transaction(write)
  } catch (error) {
    if (!(error instanceof DeploymentError) || error.next !== 'stop') throw error
    parts.log.warn({ err: error, serviceId: held.serviceId }, 'the state after a run is unknown: it stays locked')
  }
}

/** Frees a state, whoever has it; what its last run left is saved first, if anything of that is there. */
export const freeState = async (run: ServiceRun, signal: AbortSignal): Promise<boolean> => {
  const { parts, service, claim } = run
  await endHolder(run, signal)
  return withClaim(parts.database, claim, async (tx) => {
    const rows = await tx.query(
      `update task_state set held_by = null, locked_at = null, begun = null where id = $1 and held_by is not null
       returning id`,
      [service.id],
    )
    return rows.length > 0
  })
}

/** The end of a service: nothing of what its runs left stays. */
export const forgetLeft = (database: Database, { claim, service }: ServiceRun): Promise<unknown> =>
  withClaim(database, claim, async (tx) => {
    await tx.query('delete from service_output where service_id = $1', [service.id])
    await tx.query('delete from task_state where id = $1', [service.id])
  })
