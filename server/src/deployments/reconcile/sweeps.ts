/**
 * Removes deleted services, and executions that have ended. Objects with data are removed only by their recorded
 * deletion (table `deletion`), never because a row is missing: those are listed as orphans (orphans.ts). If one object
 * cannot be removed, the others still are, and the next pass finds it again.
 */
import { artifactOf } from '../../clusters/artifact.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { countsSql } from '../../clusters/lines/rows.ts'
import { keySql, localKey } from '../../clusters/local.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Owned } from '../../runtimes/owned.ts'
import type { ArtifactKind, ServiceKey, TaskKey } from '../../runtimes/runtime.ts'
import type { DeploymentParts } from '../parts.ts'
import { openStates } from '../status/states.ts'
import { isTaskId, ownerOfTask } from '../tasks/ids.ts'
import { endTaskOf } from '../tasks/state.ts'

const absent = { state: 'absent', graceMs: 10_000 } as const

/** A failed removal must not prevent others. */
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

/** The objects of a cluster to be removed, and the unknown ones. */
export interface Judged {
  /** The kind of artifact; undefined if it was not recorded, or for an environment. */
  deleted: ReadonlyMap<string, ArtifactKind | undefined>
  unknown: ReadonlySet<string>
}

/**
 * Sorts ids of services and environments on a cluster. Ids are known if they have a row, or if a deployment or a tool
 * works on them. The network of a tool that makes a cluster is needed only while it is at work.
 */
export const judgeIds = async (
  { database }: Pick<DeploymentParts, 'database'>,
  cluster: string,
  ids: Iterable<string>,
): Promise<Judged> => {
  const rows = await database.query<{ id: string; kind: string | null }>(
    `select i.id, coalesce((select d.kind from deletion d where d.id = i.id and ${countsSql('d', '$2')}),
         (select 'cluster' from managed_cluster m where m.id = i.id)) as kind
     from unnest($1::uuid[]) as i (id)
     where not exists (select from node n where n.id = i.id and (n.name_scope = 'service' or n.kind = 'environment'))
       and not exists (select from managed_cluster m where m.id = i.id and m.run_id is not null)
       and not exists (select from deployment_service w join deployment d on d.id = w.deployment_id
         where w.service_id = i.id and d.state in ${openStates})`,
    [[...new Set(ids)].filter(isUuid), cluster],
  )
  return {
    deleted: new Map(rows.flatMap(({ id, kind }) => (kind === null ? [] : [[id, artifactOf(kind)]]))),
    unknown: new Set(rows.filter(({ kind }) => kind === null).map(({ id }) => id)),
  }
}

/** The services of the given objects, apart from executions. */
export const servicesIn = ({ volumes, instances }: Owned): Map<string, ServiceKey> =>
  new Map(
    [...volumes, ...instances.filter(({ taskId }) => taskId === undefined)].map(({ serviceId, environmentId }) => [
      serviceId,
      { serviceId, environmentId },
    ]),
  )

/** Removes the deleted ones among these ids. */
export const sweepDeleted = async (
  parts: DeploymentParts,
  { runtime, ingress }: Cluster,
  owned: Owned,
  published: readonly string[],
  { deleted, unknown }: Judged,
  signal: AbortSignal,
): Promise<void> => {
  const services = servicesIn(owned)
  for (const [serviceId, key] of services)
    if (deleted.has(serviceId)) {
      const service = { ...key, artifact: deleted.get(serviceId) }
      await logFailure(parts, { serviceId }, signal, () => runtime.converge(service, absent, null, signal))
    }
  for (const serviceId of published) {
    // A route of our router to a service without objects: it leads nowhere.
    const isEmpty = ingress.sharesPorts && unknown.has(serviceId) && !services.has(serviceId)
    if (deleted.has(serviceId) || isEmpty)
      await logFailure(parts, { serviceId }, signal, () => ingress.unpublish(serviceId))
  }
  for (const environmentId of owned.environments)
    if (deleted.has(environmentId))
      await logFailure(parts, { environmentId }, signal, () => runtime.removeEnvironment(environmentId, signal))
}

interface Pending extends ServiceKey {
  kind: string
}

/**
 * Marks deletions as done when the cluster has no object of them any more. `owned` was read after they were written.
 */
export const finishDeletions = async (
  parts: DeploymentParts,
  { key, runtime }: Cluster,
  pending: readonly Pending[],
  owned: Owned,
  published: readonly string[],
  signal: AbortSignal,
): Promise<void> => {
  const left = new Set([...servicesIn(owned).keys(), ...owned.environments, ...published])
  const done: string[] = []
  for (const { kind, ...key } of pending) {
    if (left.has(key.serviceId)) continue
    const artifact = artifactOf(kind)
    await logFailure(parts, { serviceId: key.serviceId }, signal, async () => {
      // What others make a runtime's list may not show: it is removed once more.
      if (artifact === 'chart' || artifact === 'app') await runtime.converge({ ...key, artifact }, absent, null, signal)
      done.push(key.serviceId)
    })
  }
  await parts.database.query(
    `update deletion set done_at = clock_timestamp() where cluster = $1 and id = any($2) and done_at is null`,
    [key, done],
  )
}

/** Deletions that are not known to be done on a cluster. */
export const readPending = ({ database }: Pick<DeploymentParts, 'database'>, cluster: string): Promise<Pending[]> =>
  database.query<Pending>(
    `select id as "serviceId", coalesce(environment_id, id) as "environmentId", kind from deletion
     where cluster = $1 and done_at is null
       and not exists (select from deployment_service w join deployment d on d.id = w.deployment_id
         where w.service_id = deletion.id and d.state in ${openStates})`,
    [cluster],
  )

/**
 * Ids that have rows for another cluster: an engine's claims about them are not trusted. Those of this machine's
 * engine are; it runs the tools of all clusters.
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

/** Those of these deployments, scheduled runs, runs of clusters, backups and restores that are known to have ended. */
const endedOwners = async (
  { database }: DeploymentParts,
  cluster: string,
  ids: readonly string[],
): Promise<Set<string>> => {
  const rows = await database.query<{ id: string }>(
    `select id from deployment where id = any($1) and state not in ${openStates}
     union all select id from task_run where id = any($1) and state <> 'RUNNING'
     union all select id from backup where id = any($1) and due_at = 'infinity'
     union all select id from database_restore where id = any($1) and due_at = 'infinity'
     union all select last_run from managed_cluster where last_run = any($1) and run_id is distinct from last_run
     union all select id from deletion where id = any($1) and ${countsSql('deletion', '$2')}`,
    [[...new Set(ids)].filter(isUuid), cluster],
  )
  return new Set(rows.map(({ id }) => id))
}

const tasksIn = ({ instances }: Owned): TaskKey[] =>
  instances.flatMap(({ taskId, serviceId, environmentId }) =>
    taskId !== undefined && isTaskId(taskId) ? [{ taskId, serviceId, environmentId }] : [],
  )

/** Executions whose deployment or run has ended, or whose service was deleted. */
export const sweepTasks = async (
  parts: DeploymentParts,
  cluster: Cluster,
  owned: Owned,
  signal: AbortSignal,
): Promise<void> => {
  const tasks = tasksIn(owned)
  if (tasks.length === 0) return
  const serviceIds = tasks.map(({ serviceId }) => serviceId)
  const ended = await endedOwners(
    parts,
    cluster.key,
    tasks.map(({ taskId }) => ownerOfTask(taskId)),
  )
  const { deleted } = await judgeIds(parts, cluster.key, serviceIds)
  const others = await foreign(parts, cluster, serviceIds)
  for (const task of tasks) {
    const isOver = ended.has(ownerOfTask(task.taskId)) || deleted.has(task.serviceId)
    if (isOver && !others.has(task.serviceId))
      await logFailure(parts, { serviceId: task.serviceId }, signal, () => endTaskOf(parts, cluster, task, signal))
  }
}
