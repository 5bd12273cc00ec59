/** Removes what runs and belongs to nothing any more. One thing that cannot be removed keeps none of the others. */
import type { EngineParts } from './engine-parts.ts'
import { isTaskId, ownerOfTask } from './task-ids.ts'
import { endTaskOf } from './task-state.ts'

type Owned = Awaited<ReturnType<EngineParts['runtime']['owned']>>

/** What cannot be swept away must not keep anything else from it. */
export const quietly = async (
  parts: EngineParts,
  about: object,
  signal: AbortSignal,
  work: () => Promise<unknown>,
): Promise<void> => {
  try {
    await work()
  } catch (error) {
    signal.throwIfAborted()
    parts.log.warn({ err: error, ...about }, 'something left over could not be removed; it is tried again in a minute')
  }
}

/** Everything with our mark whose service or environment is gone. */
export const sweepUnknown = async (
  parts: EngineParts,
  owned: Owned,
  known: ReadonlySet<string>,
  routed: Iterable<string>,
  signal: AbortSignal,
): Promise<void> => {
  const orphans = new Set([...owned.instances, ...owned.volumes].map((each) => each.serviceId))
  for (const serviceId of orphans) {
    if (known.has(serviceId)) continue
    await quietly(parts, { serviceId }, signal, async () => {
      await parts.runtime.retire(serviceId, null, 10_000, signal)
      await parts.runtime.removeService(serviceId, signal)
    })
  }
  for (const serviceId of routed)
    if (!known.has(serviceId)) await quietly(parts, { serviceId }, signal, () => parts.router.setService(serviceId, []))
  const environments = await parts.database.query<{ id: string }>(
    `select id from node where kind = 'environment' and id = any($1)`,
    [owned.environments],
  )
  const alive = new Set(environments.map((row) => row.id))
  for (const environmentId of owned.environments)
    if (!alive.has(environmentId))
      await quietly(parts, { environmentId }, signal, () => parts.runtime.removeEnvironment(environmentId, signal))
}

/** Executions that no deployment and no run by the clock stands behind any more. */
export const sweepTasks = async (parts: EngineParts, owned: Owned, signal: AbortSignal): Promise<void> => {
  const owners = new Map(
    owned.instances.flatMap(({ taskId, serviceId }) =>
      taskId === undefined ? [] : [[taskId, { owner: ownerOfTask(taskId), serviceId }]],
    ),
  )
  if (owners.size === 0) return
  const open = await parts.database.query<{ id: string }>(
    `select id from deployment where id::text = any($1) and state in ('QUEUED', 'RUNNING')
     union all select id from task_run where id::text = any($1) and state = 'RUNNING'`,
    [[...owners.values()].map(({ owner }) => owner)],
  )
  const alive = new Set(open.map(({ id }) => id))
  for (const [taskId, { owner, serviceId }] of owners)
    if (!alive.has(owner))
      await quietly(parts, { serviceId }, signal, () =>
        isTaskId(taskId) ? endTaskOf(parts, { taskId, serviceId }, signal) : parts.runtime.endTask(taskId, signal),
      )
}
