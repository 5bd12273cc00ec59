/**
 * Compares the desired state of one service with its objects, and makes them equal. Leaves services alone that a
 * deployment works on.
 */
import { artifactOf } from '../../clusters/artifact.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { keySql } from '../../clusters/local.ts'
import type { Policy } from '../../router/policy.ts'
import type { Publication, Published } from '../../runtimes/ingress.ts'
import {
  type ArtifactKind,
  type Instance,
  isDown,
  type Scaling,
  type ServiceKey,
  type Workload,
} from '../../runtimes/runtime.ts'
import { isAloneSql } from '../desired/tasks.ts'
import type { DeploymentParts } from '../parts.ts'
import { openStates } from '../status/states.ts'
import type { IngressSettings } from '../traffic/ingress-settings.ts'
import { exposureFor, type Outlets, readOutlets } from '../traffic/routes.ts'
import { createReporter, isStatusChanged, type Known, observedOf } from './observed-status.ts'
import type { Policies } from './policies.ts'
import { restore } from './restore.ts'

interface DesiredService extends Known {
  environmentId: string
  artifact: ArtifactKind | undefined
  organizationId: string
  releaseId: string | null
  revision: string | null
  ports: Workload['ports']
  ingress: IngressSettings | null
  /** The policy that follows from `ingress`; absent: the default one. */
  policy?: Policy
  /** How many instances there should be now, and how that number follows its use; null: the number in its release. */
  scale: number | null
  scaling: Scaling | null
  /** It could not be woken a moment ago: its hosts answer so, before the next request may try again. */
  hasFailed: boolean
  /** A deployment works on its environment. */
  busy: boolean
}

type DesiredRow = Omit<DesiredService, 'artifact' | 'hasChart'> & { kind: string }

interface FoundService {
  instances: readonly Instance[]
  /** By its rows. */
  outlets: Outlets
  published: Published
}

const desiredSql = `select s.service_id as "serviceId", s.environment_id as "environmentId", s.desired,
    (select n.organization_id from node n where n.id = s.service_id) as "organizationId", s.kind,
    s.current_release_id as "releaseId", coalesce(r.workload ->> 'revision', r.deployment_id::text) as revision,
    coalesce(s.scale, (r.workload ->> 'instances')::int, 0) as instances, s.scale, s.scaling, s.wake_error as "wakeError",
    coalesce((s.wake_error ->> 'at')::timestamptz > clock_timestamp() - interval '30 seconds', false) as "hasFailed",
    coalesce((r.workload ->> 'memoryMb')::int, 0) as "memoryMb", s.problem, s.restarts,
    coalesce(r.workload -> 'ports', '[]') as ports, r.workload -> 'ingress' as ingress, s.running_state as "runningState",
    coalesce(${isAloneSql('r.workload')}, false) as "hasTask",
    exists (select from deployment d where d.environment_id = s.environment_id and d.state = 'RUNNING') as busy
  from service_state s left join release r on r.id = s.current_release_id`

/** If the cluster scales a service by itself, the number of instances is up to it: the minimum is enough. */
const asKept = ({ runtime }: Cluster, { kind, ...row }: DesiredRow): DesiredService => {
  const artifact = artifactOf(kind)
  const service = { ...row, artifact, hasChart: artifact === 'chart' && row.releaseId !== null }
  const { scaling, instances } = service
  if (!runtime.scalesItself || scaling === null) return service
  return { ...service, scale: null, instances: Math.min(instances, Math.max(1, scaling.min)) }
}

const withPolicy = async (policies: Policies, service: DesiredService): Promise<DesiredService> => {
  const { serviceId, ingress, releaseId, desired } = service
  if (ingress === null || releaseId === null || desired !== 'RUNNING') return service
  const policy = await policies.of({ serviceId, releaseId, ingress })
  return policy === undefined ? service : { ...service, policy }
}

export const readDesired = async (
  parts: DeploymentParts,
  cluster: Cluster,
  policies: Policies,
): Promise<DesiredService[]> => {
  const sql = `${desiredSql} join node c on c.id = s.cluster_id where ${keySql('c')} = $1`
  const rows = await parts.database.query<DesiredRow>(sql, [cluster.key])
  const services = rows.map((row) => asKept(cluster, row))
  const all: DesiredService[] = []
  for (const service of services) all.push(service.ingress === null ? service : await withPolicy(policies, service))
  policies.keep(new Set(services.map(({ serviceId }) => serviceId)))
  return all
}

/** Undefined also for a service of another cluster: an engine may name any. */
const readOneDesired = async (
  parts: DeploymentParts,
  cluster: Cluster,
  serviceId: string,
): Promise<DesiredService | undefined> => {
  const [service] = await parts.database.query<DesiredRow>(
    `${desiredSql} join node c on c.id = s.cluster_id where s.service_id = $2 and ${keySql('c')} = $1`,
    [cluster.key, serviceId],
  )
  return service && asKept(cluster, service)
}

const keptRevision = ({ desired, revision }: DesiredService): string | null => (desired === 'RUNNING' ? revision : null)

/** The instances that should run; surplus ones of its version are not among them. */
const currentOf = (service: DesiredService, instances: readonly Instance[]): Instance[] =>
  instances.filter(
    ({ revision, index }) => revision === keptRevision(service) && (service.scale === null || index < service.scale),
  )

const isMissing = ({ desired, releaseId, instances }: DesiredService, current: readonly Instance[]): boolean => {
  const alive = current.filter((instance) => !isDown(instance))
  return desired === 'RUNNING' && releaseId !== null && alive.length < instances
}

const restOf = ({ scale, scaling, hasFailed }: DesiredService): Publication['rest'] => {
  if (scale !== 0 || scaling?.sleeps !== true) return undefined
  return hasFailed ? 'failed' : 'asleep'
}

export const publicationOf = (service: DesiredService, outlets: Outlets): Publication => ({
  service,
  revision: keptRevision(service),
  exposure: exposureFor(outlets, service.desired === 'RUNNING' ? service.ports : [], service.policy),
  ...(service.scale === null ? {} : { instances: service.scale }),
  rest: restOf(service),
})

const isNothing = ({ desired }: DesiredService, { instances }: FoundService): boolean =>
  desired === 'NONE' && instances.length === 0

export const differs = (service: DesiredService, found: FoundService): boolean => {
  if (isNothing(service, found)) return false
  const current = currentOf(service, found.instances)
  return (
    isMissing(service, current) ||
    current.length < found.instances.length ||
    isStatusChanged(service, observedOf(service, current)) ||
    !found.published.isAs(publicationOf(service, found.outlets))
  )
}

/** True when the deployments of all these revisions have ended: only these may be swept. */
const haveEnded = async ({ database }: DeploymentParts, instances: readonly Instance[]): Promise<boolean> => {
  const revisions = instances.map(({ revision }) => revision)
  const open = await database.query(`select from deployment where id = any($1) and state in ${openStates} limit 1`, [
    revisions,
  ])
  return open.length === 0
}

/** False if it has to wait: for a deployment that continues, or for one that makes its image again. */
const makeEqual = async (
  parts: DeploymentParts,
  cluster: Cluster,
  service: DesiredService,
  found: FoundService,
  signal: AbortSignal,
): Promise<boolean> => {
  const { serviceId } = service
  const { log } = parts
  const current = currentOf(service, found.instances)
  const others = found.instances.filter((instance) => !current.includes(instance))
  const mayEnd = others.length === 0 || (await haveEnded(parts, others))
  const isLess = isMissing(service, current)
  const report = createReporter(parts, service)
  if (isLess && !mayEnd) {
    await report(current)
    return false
  }
  const isMore = others.length > 0 && mayEnd
  if (isLess) log.info({ serviceId }, 'instances are missing: restarting them')
  if (isMore) log.info({ serviceId }, 'instances of another version are left: removing them')
  const kept = current.filter(({ trouble }) => trouble?.needsNew !== true)
  const needsImage = isLess && kept.length < service.instances
  const restored =
    isLess || isMore ? await restore(parts, cluster, { service, current, needsImage, report }, signal) : null
  if (restored === 'lost') return true
  if (restored === 'busy') return false
  if (restored !== null) {
    await report(restored.instances)
    warnRefused(parts, serviceId, restored.refused)
    return true
  }
  const publication = publicationOf(service, found.outlets)
  // A router that has this publication already is not notified.
  const isSo = found.published.isAs(publication)
  if (isSo) cluster.ingress.keep(publication)
  const refused = isSo ? [] : await cluster.ingress.publish(publication)
  await report(current)
  warnRefused(parts, serviceId, refused)
  return true
}

const warnRefused = ({ log }: DeploymentParts, serviceId: string, refused: readonly string[]): void => {
  for (const message of refused) log.warn({ serviceId }, `${message}; retrying in a minute`)
}

/** While a deployment works on the environment nothing is changed, but the status of the others is kept up to date. */
const onlyTell = async (parts: DeploymentParts, { runtime }: Cluster, service: DesiredService): Promise<void> => {
  if (service.desired !== 'RUNNING' || service.releaseId === null) return
  const current = currentOf(service, await runtime.observe([service]))
  await createReporter(parts, service)(current, service.problem)
}

/** The instances are read before the rows: a version that is created in between is then not an orphan. */
const find = async (
  { database }: DeploymentParts,
  { runtime, ingress }: Cluster,
  key: ServiceKey,
): Promise<FoundService> => {
  const [instances, published] = await Promise.all([runtime.observe([key]), ingress.look([key])])
  return { instances, published, outlets: await readOutlets(database, key.serviceId) }
}

/** Makes the instances of a service equal to the desired state. False if a deployment works on its environment. */
export const reconcileService = async (
  parts: DeploymentParts,
  cluster: Cluster,
  policies: Policies,
  serviceId: string,
  signal: AbortSignal,
): Promise<boolean> => {
  const known = await readOneDesired(parts, cluster, serviceId)
  if (known === undefined) return true
  const release = known.busy ? null : parts.environmentLock.tryShare(known.environmentId)
  if (known.busy) await onlyTell(parts, cluster, known)
  if (release === null) return false
  try {
    const found = await find(parts, cluster, known)
    const service = await readOneDesired(parts, cluster, serviceId)
    if (service === undefined || isNothing(service, found)) return true
    if (service.busy) return false
    signal.throwIfAborted()
    return await makeEqual(parts, cluster, await withPolicy(policies, service), found, signal)
  } finally {
    release()
  }
}
