/**
 * One service as it should be beside what there is of it: whether they differ, and making them equal. Leaves alone
 * whatever a deployment works on.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Cluster } from '../clusters/clusters.ts'
import { keySql } from '../clusters/local.ts'
import { type AnyRoute, isStreamRoute } from '../router/router.ts'
import type { Instance, ServiceKey, Workload } from '../runtimes/runtime.ts'
import type { EngineParts } from './engine-parts.ts'
import { holdImage } from './make-image.ts'
import { openRelease } from './releases.ts'
import { type Outlets, readOutlets, routesFor, routeWhatCan } from './routes.ts'

export interface DesiredService {
  serviceId: string
  environmentId: string
  desired: string
  releaseId: string | null
  revision: string | null
  instances: number
  /** Of the current release. */
  ports: Workload['ports']
  /** A deployment works on its environment. */
  busy: boolean
  runningState: string
  /** Runs tasks: it has no instances, and whoever runs them shows how it is. */
  hasTask: boolean
}

/** What there is of a service. */
export interface FoundService {
  instances: readonly Instance[]
  outlets: Outlets
  /** As the router has them. */
  routes: readonly AnyRoute[]
}

const retireGraceMs = 10_000

const desiredSql = `select s.service_id as "serviceId", s.environment_id as "environmentId", s.desired,
    s.current_release_id as "releaseId", r.deployment_id as revision,
    coalesce((r.workload ->> 'instances')::int, 0) as instances,
    coalesce(r.workload -> 'ports', '[]') as ports, s.running_state as "runningState",
    coalesce(r.workload ? 'task', false) as "hasTask",
    exists (select from deployment d where d.environment_id = s.environment_id and d.state = 'RUNNING') as busy
  from service_state s left join release r on r.id = s.current_release_id`

/** All services of a cluster. */
export const readDesired = ({ database }: EngineParts, { key }: Cluster): Promise<DesiredService[]> =>
  database.query<DesiredService>(`${desiredSql} join node c on c.id = s.cluster_id where ${keySql('c')} = $1`, [key])

/** Undefined also for a service of another cluster: an engine may name any. */
const readOneDesired = async (
  { database }: EngineParts,
  { key }: Cluster,
  serviceId: string,
): Promise<DesiredService | undefined> =>
  (
    await database.query<DesiredService>(
      `${desiredSql} join node c on c.id = s.cluster_id where s.service_id = $2 and ${keySql('c')} = $1`,
      [key, serviceId],
    )
  )[0]

const isUp = ({ state }: Instance): boolean => state === 'running'

const runningStateOf = (service: DesiredService, current: readonly Instance[]): string => {
  if (service.desired !== 'RUNNING') return 'STOPPED'
  if (current.length === 0) return service.instances === 0 ? 'RUNNING' : 'ERROR'
  if (current.every(isUp)) return 'RUNNING'
  return current.some(isUp) ? 'WARNING' : 'ERROR'
}

const keptRevision = ({ desired, revision }: DesiredService): string | null => (desired === 'RUNNING' ? revision : null)

const currentOf = (service: DesiredService, instances: readonly Instance[]): Instance[] =>
  instances.filter(({ revision }) => revision === keptRevision(service))

const isMissing = ({ desired, releaseId, instances }: DesiredService, current: readonly Instance[]): boolean => {
  const alive = current.filter(({ state }) => !['missing', 'exited', 'created'].includes(state))
  return desired === 'RUNNING' && releaseId !== null && alive.length < instances
}

const showsOther = (service: DesiredService, state: string): boolean =>
  service.runningState !== state && !(service.hasTask && service.desired === 'RUNNING')

const desiredRoutes = (service: DesiredService, outlets: Outlets, current: readonly Instance[]): AnyRoute[] =>
  routesFor(outlets, service.ports, service.desired === 'RUNNING' ? 'up' : 'stopped', current)

const comparable = (route: AnyRoute): string =>
  JSON.stringify([
    route.protocol,
    isStreamRoute(route) ? route.port : route.host,
    route.state,
    route.targets.map((target) => `${target.host}:${target.port}`),
  ])

const areEqual = (some: readonly AnyRoute[], others: readonly AnyRoute[]): boolean =>
  isDeepStrictEqual(some.map(comparable).sort(), others.map(comparable).sort())

const isNothing = ({ desired }: DesiredService, { instances }: FoundService): boolean =>
  desired === 'NONE' && instances.length === 0

/** Whether anything is to be done about a service. */
export const differs = (service: DesiredService, found: FoundService): boolean => {
  if (isNothing(service, found)) return false
  const current = currentOf(service, found.instances)
  return (
    isMissing(service, current) ||
    current.length < found.instances.length ||
    showsOther(service, runningStateOf(service, current)) ||
    !areEqual(desiredRoutes(service, found.outlets, current), found.routes)
  )
}

/** Starts what is missing of the current release; the engine's own restart policy looks after what only crashed. */
const restore = async (
  parts: EngineParts,
  cluster: Cluster,
  { serviceId, releaseId }: DesiredService,
  signal: AbortSignal,
): Promise<Instance[]> => {
  const opened = await openRelease(parts.database, parts.sealer, releaseId!)
  if (opened === null) return []
  parts.log.info({ serviceId }, 'instances are missing: starting them again')
  await holdImage(parts, cluster, opened.release, () => {}, signal)
  return cluster.runtime.apply(opened.workload, () => {}, signal)
}

/** True when the deployments of all these revisions have ended: only these may be swept. */
const haveEnded = async ({ database }: EngineParts, instances: readonly Instance[]): Promise<boolean> => {
  const revisions = instances.map(({ revision }) => revision)
  const open = await database.query(
    `select from deployment where id = any($1) and state in ('QUEUED', 'RUNNING') limit 1`,
    [revisions],
  )
  return open.length === 0
}

/** Instances of versions that are neither current nor being deployed. */
const sweepOthers = async (
  parts: EngineParts,
  { runtime }: Cluster,
  service: DesiredService,
  instances: readonly Instance[],
  signal: AbortSignal,
): Promise<void> => {
  const kept = keptRevision(service)
  const others = instances.filter(({ revision }) => revision !== kept)
  if (others.length === 0 || !(await haveEnded(parts, others))) return
  parts.log.info({ serviceId: service.serviceId }, 'instances of another version are left over: removing them')
  await runtime.retire(service, kept, retireGraceMs, signal)
}

const makeEqual = async (
  parts: EngineParts,
  cluster: Cluster,
  service: DesiredService,
  found: FoundService,
  signal: AbortSignal,
): Promise<void> => {
  const { serviceId } = service
  let current = currentOf(service, found.instances)
  if (isMissing(service, current)) current = await restore(parts, cluster, service, signal)
  await sweepOthers(parts, cluster, service, found.instances, signal)
  const state = runningStateOf(service, current)
  if (showsOther(service, state))
    await parts.database.query('update service_state set running_state = $2 where service_id = $1', [serviceId, state])
  const routes = desiredRoutes(service, found.outlets, current)
  // The router is told only what it does not know yet.
  if (areEqual(routes, found.routes)) return
  for (const { message } of await routeWhatCan(cluster.ingress, serviceId, routes))
    parts.log.warn({ serviceId }, `${message}; it is tried again in a minute`)
}

/** What runs is read before what should run: a version that comes in between is then no orphan. */
const find = async ({ database }: EngineParts, cluster: Cluster, key: ServiceKey): Promise<FoundService> => {
  const instances = await cluster.runtime.observe([key])
  const [routes, outlets] = await Promise.all([cluster.ingress.routes(), readOutlets(database, key.serviceId)])
  return { instances, outlets, routes: routes.filter(({ serviceId }) => serviceId === key.serviceId) }
}

/** Makes what runs of a service equal to what should run. False when a deployment works on its environment. */
export const reconcileService = async (
  parts: EngineParts,
  cluster: Cluster,
  serviceId: string,
  signal: AbortSignal,
): Promise<boolean> => {
  const known = await readOneDesired(parts, cluster, serviceId)
  if (known === undefined) return true
  const release = known.busy ? null : parts.environmentLock.tryShare(known.environmentId)
  if (release === null) return false
  try {
    const found = await find(parts, cluster, known)
    const service = await readOneDesired(parts, cluster, serviceId)
    if (service === undefined || isNothing(service, found)) return true
    if (service.busy) return false
    signal.throwIfAborted()
    await makeEqual(parts, cluster, service, found, signal)
    return true
  } finally {
    release()
  }
}
