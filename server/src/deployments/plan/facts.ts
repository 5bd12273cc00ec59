/**
 * Reads the facts for a plan: what runs and from which source, and what a deploy would produce now. Writes nothing,
 * and fetches only the head of a branch and the digest of a tag.
 */
import { artifactOf } from '../../clusters/artifact.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { clusterRefusal } from '../../clusters/local.ts'
import { type Kind, typeOf } from '../../kinds.ts'
import { forEachParallel } from '../../lib/concurrency/parallel.ts'
import { DeploymentError, notFound } from '../../lib/errors.ts'
import type { Instance } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import { driverOf } from '../artifacts/drivers.ts'
import { isReroute } from '../compare/reroute.ts'
import { isUp } from '../compare/up-to-date.ts'
import {
  type DeployableKind,
  type Plan,
  type PlannedRequest,
  type ServiceRequest,
  type VersionChange,
  versionChoiceOf,
  type WorkloadSpec,
} from '../deployments.ts'
import { specSql } from '../desired/owners-labels.ts'
import { taskFor } from '../desired/tasks.ts'
import { environmentNow } from '../desired/variables-now.ts'
import { changedSize, unlimitedVolumes } from '../desired/volume-sizes.ts'
import { desiredOf, fingerprint } from '../desired/workload.ts'
import { type DeploymentParts, type EffectiveVariables, kindOf } from '../parts.ts'
import { fillAsReleased } from '../release/external-secrets.ts'
import { type OpenedRelease, openRelease } from '../release/releases.ts'
import { commitOf, type Version } from '../release/version-change.ts'
import { deployRefusal, kindRefusal, stateRefusal } from '../request/refusals.ts'
import { portRoomOf, readPlace, stopRefusal } from '../request/request-parts.ts'
import { readPlacement } from '../request/stage-rows.ts'
import { defaultOrder } from '../request/stages.ts'
import { deployingActions, leavingSql } from '../status/service-state.ts'
import { openStates, stateOf } from '../status/states.ts'
import { portRefusal } from '../traffic/port-claims.ts'
import { configurationChanges, setupOf, variableChanges } from './changes.ts'
import { noChanges, planOf, type ServiceFacts } from './plan.ts'

const parallel = 8
const deadlineMs = 30_000

interface Row {
  id: string
  kind: Kind
  name: string
  clusterId: string
  projectId: string
  mode: string
  spec: Record<string, unknown>
  desired: string
  isSkipped: boolean
  deployedHash: string | null
  releaseId: string | null
  scale: number | null
  leaving: boolean
  state: string
  queued: number
  usualSeconds: number | null
}

/** Parts of a deployment that left a service alone do not count: they name the release of another one. */
const readRows = (db: Queryable, { environmentId, action, wholeEnvironment, services }: PlannedRequest) =>
  db.query<Row>(
    `select s.service_id as id, s.kind, n.name, s.cluster_id as "clusterId",
       e.parent_id as "projectId", coalesce(e.spec ->> 'mode', 'DEVELOPMENT') as mode, ${specSql('n')} as spec, s.desired, s.is_skipped as "isSkipped",
       s.deployed_hash as "deployedHash", s.current_release_id as "releaseId", s.scale,
       ${leavingSql} as leaving, s.state,
       (select count(*)::int from deployment_service o join deployment d on d.id = o.deployment_id
         where o.service_id = s.service_id and d.state in ${openStates}) as queued,
       (select ceil(percentile_cont(0.5) within group (order by t.seconds))::int from (
         select extract(epoch from w.finished_at - w.started_at) as seconds from deployment_service w
         where w.service_id = s.service_id and w.action = $4 and w.state = $5 and w.finished_at is not null
           and (w.release_id is null or exists (select from release r
             where r.id = w.release_id and r.deployment_id = w.deployment_id))
         order by w.created_at desc limit 5) t) as "usualSeconds"
     from service_state s join node n on n.id = s.service_id join node e on e.id = s.environment_id
     where s.environment_id = $1 and (s.service_id = any($2) or ($3 and s.is_skipped))
     order by n.created_at, n.id`,
    [
      environmentId,
      services.map(({ id }) => id),
      wholeEnvironment && (action === 'DEPLOY' || action === 'STOP'),
      action,
      action === 'UNINSTALL' ? 'DELETED' : stateOf(action, 'done'),
    ],
  )

interface Subject {
  row: Row
  cluster: Cluster
  requested: Omit<ServiceRequest, 'id'>
  current: OpenedRelease | null
}

type Setting = Pick<
  ServiceFacts,
  'stopsFirst' | 'runsTask' | 'sameSetup' | 'reroutes' | 'version' | 'isUp' | 'builds' | 'changes' | 'refusal'
> & {
  /** JSON pointers to the sizes of volumes that the engine does not limit. */
  unlimited: string[]
}

const nothingNew: Setting = {
  stopsFirst: false,
  runsTask: false,
  sameSetup: true,
  reroutes: false,
  version: null,
  isUp: true,
  builds: false,
  changes: noChanges,
  refusal: null,
  unlimited: [],
}

const versionChange = (from: string | null, to: string | null): VersionChange | null =>
  from === to ? null : { from, to }

/** The name of a release's version: its tag, or for a built one the engine's own name. */
const nameOf = ({ release: { source, image } }: OpenedRelease): string =>
  source === null ? image : `${source.name}:${source.tag}`

/** Another image with the same name is identified by its digest. */
const imageChangeOf = (from: OpenedRelease, to: OpenedRelease): VersionChange | null => {
  if (from.release.image === to.release.image) return null
  return versionChange(nameOf(from), nameOf(to)) ?? versionChange(from.release.image, to.release.image)
}

const nobody: Pick<EffectiveVariables, 'env' | 'files'> = { env: {}, files: [] }

const settingOfRollback = ({ cluster, current }: Subject, target: OpenedRelease): Setting => {
  const { workload } = target.release
  const changes = {
    image: current === null ? versionChange(null, nameOf(target)) : imageChangeOf(current, target),
    commit: versionChange(commitOf(current?.release ?? null), commitOf(target.release)),
    configuration: current === null ? [] : configurationChanges(setupOf(current.release.workload), setupOf(workload)),
    variables: variableChanges(current?.environment ?? nobody, target.environment),
  }
  const runsTask = taskFor(workload.tasks, 'START') !== null
  return { ...nothingNew, stopsFirst: cluster.runtime.stopsFirst(workload), runsTask, sameSetup: false, changes }
}

const versionChangesOf = (version: Version, current: OpenedRelease | null, built: string | null) => {
  if (version.of !== 'commit') return { image: versionChange(version.fromName, version.toName), commit: null }
  return {
    image: versionChange(current?.release.image ?? null, built),
    commit: versionChange(version.from, version.to),
  }
}

/** Rejects for a size that was changed. Not checked while the engine does not answer. */
const unlimitedSizes = async (
  kind: DeployableKind,
  { row, cluster }: Subject,
  { volumes }: Pick<WorkloadSpec, 'volumes'>,
): Promise<string[]> => {
  if (volumes.length === 0) return []
  const [capacity, made] = await Promise.all([
    cluster.capacity(),
    cluster.runtime.volumeSizes(volumes.map(({ id }) => id)).catch(() => null),
  ])
  if (capacity === null || made === null) return []
  const changed = changedSize(volumes, made, cluster.runtime.growsVolumes)
  if (changed !== null) throw new DeploymentError('volume_size_fixed', changed)
  const fields = kind.sizeFields?.(row.spec) ?? []
  return unlimitedVolumes(volumes, made, capacity.limitsVolumes).flatMap((index) => fields[index] ?? [])
}

const settingOfDeploy = async (
  parts: DeploymentParts,
  { organizationId, environmentId, wholeEnvironment }: PlannedRequest,
  subject: Subject,
  seen: readonly Instance[],
  signal: AbortSignal,
): Promise<Setting> => {
  const { row, cluster, requested, current } = subject
  const kind = kindOf(parts, row.kind)
  const { source, spec } = desiredOf(kind, row.spec)
  const unlimited = await unlimitedSizes(kind, subject, spec)
  const variables = await environmentNow(parts, kind, organizationId, row, { fill: fillAsReleased(current) })
  const driver = driverOf(source)
  const next = { parts, cluster, organizationId, requested, current: current?.release ?? null, signal }
  const version = await driver.next(next, source)
  const what = { ...next, environmentId, service: row, spec, variables, version }
  const { builds = false, built = null, objects } = (await driver.foresee?.(what, source)) ?? {}
  const before = current === null ? null : setupOf(current.release.workload)
  return {
    refusal: null,
    unlimited,
    stopsFirst: cluster.runtime.stopsFirst(spec),
    runsTask: taskFor(spec.tasks, requested.forceEvent ?? 'START', requested.task) !== null,
    reroutes: current !== null && isReroute(parts, { source, spec }, current.release, variables, row.deployedHash),
    sameSetup: fingerprint(parts.fingerprintKey, source, spec, variables) === row.deployedHash,
    version,
    isUp: current !== null && isUp(current.release, seen, row.scale, wholeEnvironment),
    builds,
    changes: {
      ...versionChangesOf(version, current, built),
      configuration: before === null ? [] : configurationChanges(before, { ...spec, from: source }),
      variables: variableChanges(current?.environment ?? nobody, variables),
      ...(objects === undefined ? {} : { objects }),
    },
  }
}

/** The facts with which an action would begin; an error that would end it at once is its refusal. */
const settingOf = async (
  parts: DeploymentParts,
  request: PlannedRequest,
  subject: Subject,
  seen: readonly Instance[],
  signal: AbortSignal,
): Promise<Setting> => {
  const { requested, current } = subject
  if (requested.releaseId !== undefined) {
    const target = await openRelease(parts.database, parts.sealer, requested.releaseId)
    if (target === null) throw notFound()
    return settingOfRollback(subject, target)
  }
  if (request.action !== 'DEPLOY')
    return {
      ...nothingNew,
      stopsFirst: current !== null && subject.cluster.runtime.stopsFirst(current.release.workload),
    }
  try {
    return await settingOfDeploy(parts, request, subject, seen, signal)
  } catch (error) {
    if (error instanceof DeploymentError) return { ...nothingNew, refusal: error.message }
    throw error
  }
}

const refusalOf = async (
  parts: DeploymentParts,
  cluster: Cluster,
  { action, organizationId, wholeEnvironment }: PlannedRequest,
  row: Row,
  requested: Omit<ServiceRequest, 'id'>,
): Promise<string | null> => {
  const kind = kindOf(parts, row.kind)
  const candidate = { ...row, released: row.releaseId !== null }
  const state = stateRefusal(action, candidate, wholeEnvironment)
  if (state === null && action === 'STOP' && candidate.released) return stopRefusal(parts, kind.source(row.spec))
  if (state !== null || !deployingActions.has(action)) return state?.message ?? null
  const refusal = await deployRefusal(kind, await readPlace(parts, parts.database, cluster), row.spec, requested)
  const own = refusal ?? kindRefusal(action, kind, candidate, requested)?.message ?? null
  if (own !== null || action !== 'DEPLOY' || requested.releaseId !== undefined) return own
  return portRefusal(parts.database, portRoomOf(parts), organizationId, row)
}

const openCurrent = (parts: DeploymentParts, { releaseId }: Row): Promise<OpenedRelease | null> =>
  releaseId === null ? Promise.resolve(null) : openRelease(parts.database, parts.sealer, releaseId)

/** See `Deployments.plan`. */
export const planDeployment = async (parts: DeploymentParts, db: Queryable, request: PlannedRequest): Promise<Plan> => {
  const { environmentId, action, wholeEnvironment } = request
  const rows = await readRows(db, request)
  const placement = await readPlacement(db, environmentId)
  const noCluster = deployingActions.has(action) ? await clusterRefusal(db, environmentId) : null
  const asked = new Map(request.services.map(({ id, ...requested }) => [id, requested]))
  // A host that does not answer must not delay the caller.
  const signal = AbortSignal.timeout(deadlineMs)
  const cluster = rows.length === 0 ? null : await parts.clusters.of(rows[0]!.clusterId, db)
  const keys = rows.map(({ id, kind }) => ({ environmentId, serviceId: id, artifact: artifactOf(kind) }))
  const seen = action === 'DEPLOY' ? ((await cluster?.runtime.observe(keys).catch(() => [])) ?? []) : []
  const facts = new Map<string, ServiceFacts>()
  await forEachParallel(parallel, rows, async (row) => {
    const requested = asked.get(row.id)
    const stage = placement.stageOf(row.id, defaultOrder(row.kind))
    const refusal =
      requested === undefined ? null : (noCluster ?? (await refusalOf(parts, cluster!, request, row, requested)))
    const subject = { row, cluster: cluster!, requested: requested ?? {}, current: await openCurrent(parts, row) }
    const own = seen.filter(({ serviceId }) => serviceId === row.id)
    const isIdle = requested === undefined || refusal !== null
    const { unlimited, ...setting } = isIdle ? nothingNew : await settingOf(parts, request, subject, own, signal)
    facts.set(row.id, {
      ...setting,
      id: row.id,
      name: row.name,
      serviceType: typeOf(row.kind),
      stage: stage.order,
      stageName: stage.name,
      isSkipped: requested === undefined,
      refusal: refusal ?? setting.refusal,
      isRollback: requested?.releaseId !== undefined,
      versionChoice:
        action === 'DEPLOY' && requested !== undefined ? versionChoiceOf(requested, row.releaseId !== null) : null,
      wholeEnvironment,
      released: row.releaseId !== null,
      running: row.desired === 'RUNNING',
      recorded: [
        ...(kindOf(parts, row.kind).recorded?.(row.spec, cluster?.runtime.rollsItself === true) ?? []),
        ...unlimited,
      ],
      usualSeconds: row.usualSeconds,
    })
  })
  return planOf(
    environmentId,
    action,
    rows.map(({ id }) => facts.get(id)!),
  )
}
