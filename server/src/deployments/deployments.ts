/**
 * How a change reaches a runtime, as the layers above see it. Knows no kinds: a resource provides a `DeployableKind`.
 * Whenever the process dies, the next one resumes after the last finished step.
 */
import type { GitSource, ToolBuild } from '../builds/builder.ts'
import type { Kind } from '../kinds.ts'
import type { AppSettings } from '../runtimes/apps.ts'
import type { ChartChange, ChartSettings, Scaling, Workload } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'
import type { KeptRuns, When } from '../work/schedule.ts'

export type DeploymentAction = 'DEPLOY' | 'RESTART' | 'STOP' | 'UNINSTALL' | 'DELETE'

/** What a service's image is built from. */
export interface BuildSpec {
  git: Pick<GitSource, 'url' | 'branch'> & { gitTokenId: string | null }
  rootPath: string
  dockerfilePath: string
  targetStage: string | null
  /** Made around a tool instead of by a Dockerfile of the repository. */
  tool?: ToolBuild
  /** The owner's settings; absent if there are none. */
  limits?: BuildLimits
}

/** What a service's settings say of its builds; omitted limits are the engine's. */
export interface BuildLimits {
  timeoutMs?: number
  cpuMillicores?: number
  memoryMb?: number
  skipSubmodules?: true
  noCache?: true
}

/** `path`, `value`, as `helm --set` takes them. */
export type ValuePair = readonly [path: string, value: string]

/** A chart and its values. Variables are put into the values when it is deployed. */
export interface ChartSpec {
  chart:
    | { repositoryId: string; chartName: string; chartVersion: string }
    /** In a folder of a repository. */
    | { git: BuildSpec['git']; rootPath: string }
  /** Files of a repository, in this order. */
  valuesFiles: { git: BuildSpec['git']; paths: string[] } | null
  /** The texts of further files. */
  rawValues: string[]
  set: ValuePair[]
  setString: ValuePair[]
  setJson: ValuePair[]
}

/** Where a service's image comes from, or the chart or the app that it is, or the module that makes it. */
export type Source =
  | ({ from: 'git' } & BuildSpec)
  | ({ from: 'chart' } & ChartSpec)
  | ({ from: 'app' } & Pick<BuildSpec, 'git' | 'rootPath'>)
  | {
      from: 'image'
      /** Row of the registry that knows the host and the login; null for an image that needs neither. */
      registryId: string | null
      /** Repository without host and tag: `library/postgres`. */
      name: string
      tag: string
    }
  | {
      /** Made by a module of the operator, by the cluster's provider and the type of what it makes. */
      from: 'module'
      provider: string
      type: string
      /** What the module can read of the configuration, in the API's words. */
      fields: Readonly<Record<string, unknown>>
    }

/** Whether a build needs a tool installed by this server's operator, because no image provides it. */
export const needsOwnTool = <S extends Pick<BuildSpec, 'tool'>>(source: S): source is S & { tool: ToolBuild } =>
  source.tool !== undefined && source.tool.image === undefined

/** The part of a workload that a service's own configuration determines. */
export type WorkloadSpec = Pick<
  Workload,
  | 'entrypoint'
  | 'arguments'
  | 'cpuMillicores'
  | 'memoryMb'
  | 'instances'
  | 'scaling'
  | 'ports'
  | 'volumes'
  | 'readiness'
  | 'liveness'
  | 'readyTimeoutMs'
  | 'stopGraceMs'
  | 'readOnlyRoot'
  | 'recreate'
  | 'eagerReadiness'
  | 'postStart'
  | 'preStop'
  | 'withoutRoot'
  | 'machineLabels'
  | 'apart'
  | 'zones'
  | 'surgePercent'
  | 'labels'
  | 'ingress'
> & { chart?: ChartSettings; app?: AppSettings }

/** What triggers a task: its environment's deploy, stop or delete, or its schedule. */
export type TaskEvent = 'START' | 'STOP' | 'DELETE' | 'CRON' | TaskAside

/** What runs only on request: a plan, unlocking a state, migrating a state. */
type TaskAside = 'PLAN' | 'UNLOCK' | 'MIGRATE'

/** Events that look or repair: the service runs what it ran before, however they end, and there is no release of them. */
export const asideEvents: ReadonlySet<TaskEvent> = new Set(['PLAN', 'UNLOCK', 'MIGRATE'] satisfies TaskAside[])

/** A program that exits; null for the image's own. */
export type TaskCommand = Pick<Workload, 'entrypoint' | 'arguments'>

/** A program that runs to completion: all that a service runs, or besides its instances. */
export interface TaskSpec {
  /** The command of each event; nothing runs for omitted ones. */
  on: Partial<Record<TaskEvent, TaskCommand>>
  /** When CRON happens: five fields, and a name of the time zone database; and beside what (work/schedule.ts). */
  cron: When | null
  /** How often a program that ended with another code than 0 is run again. */
  maxRestarts: number
  /** Of one run. */
  timeoutMs: number
  /** How many finished runs by the clock are kept, with their output; absent: as many as is usual. */
  kept?: KeptRuns
  /**
   * Runs hand a JSON document on from one to the next (tasks/files.ts says where): kept HERE, sealed; or ELSEWHERE by
   * now, where MIGRATE brings it to. Absent: they are on their own.
   */
  state?: 'HERE' | 'ELSEWHERE'
  /** It sees the volumes of its service, which may be in use. */
  withVolumes?: boolean
}

/** By their names. At most one of them answers an event other than CRON. */
export type Tasks = Readonly<Record<string, TaskSpec>>

/** The name of the task of a service that runs nothing else. */
export const mainTask = 'main'

/** What a program leaves at its end for the services beside its own. */
export interface Output {
  name: string
  value: string
  sensitive: boolean
}

/** What a kind of resource gives the engine, made from its configuration. All functions are pure. */
export interface DeployableKind<Kept = Record<string, unknown>> {
  kind: Kind
  /** One sentence that says what a configuration lacks to be deployed; null if nothing. */
  refusal?(spec: Kept): string | null
  source(spec: Kept): Source
  /** What stays up, and what each task may use; of services that run tasks alone it has 0 instances. */
  workload(spec: Kept): WorkloadSpec
  /**
   * Named programs that run to their end. With 0 instances they are all that there is: a deploy, a stop and a delete run
   * what they say. Beside instances they run by the clock or by a forced event. Undefined: such a service never has any.
   */
  tasks?(spec: Kept): Tasks | undefined
  /** Why what was deployed at one tag cannot go on at another with the data it has; absent where it always can. */
  moveRefusal?(from: string, to: string): string | null
  /**
   * The whole environment of what runs, made of the row's own sealed fields (opened here and at a deploy only). Absent
   * for kinds whose services see variables. Does not count for whether a service is out of date.
   */
  environment?(spec: Kept, secrets: Readonly<Record<string, string>>): Record<string, string>
  /**
   * Of a kind whose source is a module: what neighbours are told, of what it has told under the names of its outputs.
   * Throws a `DeploymentError` for what cannot be used.
   */
  told?(source: Extract<Source, { from: 'module' }>, values: Readonly<Record<string, string>>): Output[]
  /** Files beside those of the variables, made of the row and its own sealed fields. */
  files?(spec: Kept, secrets: Readonly<Record<string, string>>): { path: string; content: string }[]
  /** JSON pointers to the sizes of its volumes, in the order of its workload's. */
  sizeFields?(spec: Kept): string[]
  /** JSON pointers to what a configuration has that is only recorded; `rollsItself`: of the cluster. */
  recorded?(spec: Kept, rollsItself: boolean): string[]
  /** What a push to a service's repository asks for besides the commit; null: nothing. Absent: it asks for nothing. */
  push?(spec: Kept): Pick<ServiceRequest, 'forceEvent'> | null
  /** The name of an action of its services in status records; default NONE. */
  subAction?(action: string, event: TaskEvent | null): string
}

/** A request for one service. */
export interface ServiceRequest {
  id: string
  /** The full commit id; default the head of the branch. */
  commitId?: string
  /** The tag of the image; default the configured one. */
  imageTag?: string
  /** The version of the chart; default the configured one. */
  chartVersion?: string
  /** The full commit id of the values files; default the head of their branch. */
  valuesCommitId?: string
  /** Keep the deployed version. */
  redeploy?: boolean
  /** Run a job as if this had happened; 400 `event_missing` for a service that does nothing then. */
  forceEvent?: TaskEvent
  /** Of several tasks that answer the forced event, the one of this name. */
  task?: string
  /** Of a delete or an uninstall: what the service runs at its end is not run. */
  skipEnding?: boolean
  /** Run this release of the service again, with its image, configuration and variables. */
  releaseId?: string
}

export interface DeploymentRequest {
  organizationId: string
  environmentId: string
  action: DeploymentAction
  /** True when the environment itself is the subject: DELETE then removes it too. */
  wholeEnvironment: boolean
  services: ServiceRequest[]
  origin: string
  triggeredBy: string
  requestId: string
}

/** What a plan needs of a request. */
export type PlannedRequest = Pick<
  DeploymentRequest,
  'organizationId' | 'environmentId' | 'action' | 'wholeEnvironment' | 'services'
>

export interface AcceptedDeployment {
  deploymentId: string
  executionId: string
  /** RFC 3339 UTC. */
  createdAt: string
}

/** A machine's word, and one plain sentence or two. */
export interface Problem {
  code: string
  message: string
  /** Only as long as this deployment is under way. */
  deploymentId?: string
}

/** How an instance of the version that runs ended last. */
export interface Restarts {
  restart_count: number
  exit_code: number
  oom_killed: boolean
  /** RFC 3339. */
  last_exit_at: string
  message: string
}

/** The public status record of one service (specification 2.5). */
export interface ServiceStatus {
  id: string
  state: string
  service_deployment_status: 'NEVER_DEPLOYED' | 'OUT_OF_DATE' | 'UP_TO_DATE'
  is_part_last_deployment: boolean
  status_details: { action: string; status: string; sub_action: string }
  deployment_request_id: string | null
  deployment_requests_count: number
  last_deployment_date?: string
  execution_id?: string
  steps?: {
    total_duration_sec: number | null
    total_computing_duration_sec: number
    details: { step_name: string; status: string; duration_sec: number }[]
  }
  deployment_state: string
  running_state: string
  /** Why the last deployment failed, or what is wrong with what runs; absent while nothing is. */
  error?: { code: string; message: string }
  /** How an instance of the running version ended last; absent if none did. */
  restarts?: Restarts
  /** How many instances there are to be now, if that follows their use. */
  scaling?: { running_instances: number; minimum: number; maximum: number; asleep: boolean; message?: string }
}

export interface VersionChange {
  from: string | null
  to: string | null
}

export interface Changes {
  image: VersionChange | null
  commit: VersionChange | null
  /** `field` is a JSON pointer. */
  configuration: { field: string; from: unknown; to: unknown }[]
  /** By their keys. */
  variables: { added: string[]; changed: string[]; removed: string[] }
  /** What a chart would change on its cluster. */
  objects?: ChartChange[]
}

export type Effect = 'BUILD' | 'ROLL_OUT' | 'RESTART' | 'RUN' | 'STOP' | 'DELETE' | 'UNTOUCHED' | 'SKIPPED' | 'REFUSED'

/**
 * Which version a deploy brings: the head of the branch or the configured tag, the one that is deployed, or the one that
 * the request names.
 */
export const versionChoices = ['NEWEST', 'DEPLOYED', 'REQUESTED'] as const
export type VersionChoice = (typeof versionChoices)[number]

export interface PlannedService {
  id: string
  name: string
  service_type: string
  effect: Effect
  builds: boolean
  downtime: boolean
  reason: string
  expected_duration_sec: number | null
  /** Null for what is not deployed. */
  version_choice: VersionChoice | null
  /** The commit that a deploy would build; null without a repository, and while the head cannot be read. */
  git_commit_id: string | null
  changes: Changes
  not_applied: string[]
}

export interface Plan {
  environment_id: string
  action: DeploymentAction
  expected_duration_sec: number | null
  downtime: boolean
  stages: { name: string; services: PlannedService[] }[]
}

/** A service's row of `service_state`, and what the environment's deployments say of it. */
export interface StateRow {
  id: string
  kind: Kind
  state: string
  action: string
  actionStatus: string
  runningState: string
  deploymentId: string | null
  executionId: string | null
  isPart: boolean
  /** Open deployments that the service is part of; absent: none. */
  requests?: number
  released: boolean
  deployedHash: string | null
  desiredHash: string | null
  lastAt: string | null
  /** What `stepsSql` reads; absent where nobody asked for it. */
  steps?: string | null
  /** Actions on its environment leave it as it is; absent where nobody asked for it. */
  isSkipped?: boolean
  /** Null: it has nothing of that. */
  exceptions: StateExceptions | null
}

/** What most services have nothing of. */
interface StateExceptions {
  /** What the last deployment was asked to run instead of the usual. */
  forcedEvent: TaskEvent | null
  /** As `problemSql` reads them. */
  failure: Problem | null
  problem: Problem | null
  restarts: Restarts | null
  /** How many instances of it there are to be now, and how that follows their use; null: as its release says. */
  scale: number | null
  scaling: Scaling | null
}

/** Of a service in a deploy. A redeploy of what was never deployed takes the newest. */
export const versionChoiceOf = (
  { commitId, imageTag, chartVersion, valuesCommitId, releaseId, redeploy }: Omit<ServiceRequest, 'id'>,
  isDeployed: boolean,
): VersionChoice => {
  const asked = [commitId, imageTag, chartVersion, valuesCommitId, releaseId]
  if (asked.some((each) => each !== undefined)) return 'REQUESTED'
  return redeploy === true && isDeployed ? 'DEPLOYED' : 'NEWEST'
}

export interface Deployments {
  /**
   * Writes the deployment, the new service states and the STARTED events in `tx`, and wakes a worker at its commit.
   * A request that equals one still QUEUED joins it. 409 for a service that is being deleted. 400 for a deploy of what
   * cannot be: `cluster_not_deployable`, or `not_deployable` for a service whose kind refuses (one of a whole
   * environment is left out instead, unless nothing else is left).
   */
  request(tx: Queryable, request: DeploymentRequest): Promise<AcceptedDeployment>
  /** What `request` would do, without doing it; with the same 404 and 409 for a release that cannot be run again. */
  plan(db: Queryable, request: PlannedRequest): Promise<Plan>
  /**
   * The release that a rollback of a service runs: the one named (404 unless it is the service's own), else the newest
   * other one before the present. 409 `release_not_usable` for one that never ran well, or cannot run any more.
   */
  releaseFor(db: Queryable, serviceId: string, releaseId?: string): Promise<string>
  /**
   * What brings an environment back to how an execution left it; absent: the newest earlier one that succeeded. 404 for
   * an execution that is not its own, 409 `nothing_to_roll_back`.
   */
  releasesOf(db: Queryable, environmentId: string, executionId?: string): Promise<ServiceRequest[]>
  /**
   * Cancels running and queued deployments of an environment, or only one of them. A job has its grace period to end,
   * unless it is forced. 409 if there is nothing to cancel.
   */
  cancel(tx: Queryable, environmentId: string, options?: { deploymentId?: string; force?: boolean }): Promise<void>
  /**
   * Statuses in the order of the ids asked for; ids without a status are left out. One statement, however many they
   * are.
   */
  statuses(db: Queryable, serviceIds: readonly string[]): Promise<ServiceStatus[]>
  /** Statuses of all services of an environment, with their kinds. */
  environmentStatuses(
    db: Queryable,
    environmentId: string,
  ): Promise<{ kind: Kind; isSkipped: boolean; status: ServiceStatus }[]>
  /** Statuses of rows that were read before (`readStates`). */
  statusesOf(db: Queryable, rows: readonly StateRow[]): Promise<ServiceStatus[]>
}
