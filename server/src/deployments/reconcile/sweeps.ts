/** Removes what runs without belonging to anything. If one thing cannot be removed, the others still are. */
import type { Cluster } from '../../clusters/clusters.ts'
import { keySql, localKey } from '../../clusters/local.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Owned, ServiceKey, TaskKey } from '../../runtimes/runtime.ts'
import type { DeploymentParts } from '../parts.ts'
import { openStates } from '../status/states.ts'
import { isTaskId, ownerOfTask } from '../tasks/ids.ts'
import { endTaskOf, openOwners } from '../tasks/state.ts'

const absent = { state: 'absent', graceMs: 10_000 } as const

/** What cannot be removed must not keep anything else from being removed. */
export const logFailure = async (
  parts: DeploymentParts,
  about: object,
  signal: AbortSignal,
  work: () => Promise<unknown>,
): Promise<void> => {
  try {
    await work()
  } catch (error) {
    signal.throwIfAborted()
    parts.log.warn({ err: error, ...about }, 'a leftover could not be removed; retrying in a minute')
  }
}

/** Or a cluster, or a service, that a tool is at work for, which has a network of its own then. */
const existing = async (parts: DeploymentParts, kind: 'service' | 'environment', ids: Iterable<string>) => {
  const rows = await parts.database.query<{ id: string }>(
    `select id from node where id = any($1) and (name_scope = $2 or kind = $2)
     union all select id from managed_cluster where id = any($1) and run_id is not null
     union all select w.service_id from deployment_service w join deployment d on d.id = w.deployment_id
       where w.service_id = any($1) and d.state in ${openStates}`,
    [[...ids].filter(isUuid), kind],
  )
  return new Set(rows.map(({ id }) => id))
}

/**
 * Everything of a cluster with our mark whose service or environment is gone: no row of any cluster stands for it any
 * more. What another cluster's rows stand for is left alone, for two clusters may share an engine.
 */
export const sweepUnknown = async (
  parts: DeploymentParts,
  { runtime, ingress }: Cluster,
  owned: Owned,
  published: readonly string[],
  signal: AbortSignal,
): Promise<void> => {
  const services = new Map<string, ServiceKey>()
  for (const { serviceId, environmentId } of [...owned.volumes, ...owned.instances])
    services.set(serviceId, { serviceId, environmentId })
  const known = await existing(parts, 'service', [...services.keys(), ...published])
  for (const [serviceId, key] of services) {
    if (known.has(serviceId)) continue
    await logFailure(parts, { serviceId }, signal, () => runtime.converge(key, absent, null, signal))
  }
  for (const serviceId of published)
    if (!known.has(serviceId)) await logFailure(parts, { serviceId }, signal, () => ingress.unpublish(serviceId))
  const alive = await existing(parts, 'environment', owned.environments)
  for (const environmentId of owned.environments)
    if (!alive.has(environmentId))
      await logFailure(parts, { environmentId }, signal, () => runtime.removeEnvironment(environmentId, signal))
}

/**
 * Those that another cluster's rows stand for: what an engine says of them is not to be believed. That of this machine is,
 * and runs the tools of all.
 */
const foreign = async ({ database }: DeploymentParts, { key }: Cluster, serviceIds: readonly string[]) => {
  if (key === localKey) return new Set<string>()
  const rows = await database.query<{ id: string }>(
    `select s.service_id as id from service_state s join node c on c.id = s.cluster_id
     where s.service_id = any($1) and ${keySql('c')} <> $2`,
    [serviceIds.filter(isUuid), key],
  )
  return new Set(rows.map(({ id }) => id))
}

/** Executions that no deployment and no run by the clock stands behind any more. */
export const sweepTasks = async (
  parts: DeploymentParts,
  cluster: Cluster,
  owned: Owned,
  signal: AbortSignal,
): Promise<void> => {
  const tasks = owned.instances.flatMap(({ taskId, serviceId, environmentId }): TaskKey[] =>
    taskId === undefined ? [] : [{ taskId, serviceId, environmentId }],
  )
  if (tasks.length === 0) return
  const owners = tasks.map(({ taskId }) => ownerOfTask(taskId))
  const alive = await openOwners(parts.database, owners)
  const others = await foreign(
    parts,
    cluster,
    tasks.map(({ serviceId }) => serviceId),
  )
  for (const task of tasks)
    if (!alive.has(ownerOfTask(task.taskId)) && !others.has(task.serviceId))
      await logFailure(parts, { serviceId: task.serviceId }, signal, () =>
        isTaskId(task.taskId) ? endTaskOf(parts, cluster, task, signal) : cluster.runtime.endTask(task, signal),
      )
}
