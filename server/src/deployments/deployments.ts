/**
 * How a change reaches a runtime, as the layers above see it. Knows no kinds: a resource provides a `DeployableKind`.
 * Whenever the process dies, the next one resumes after the last finished step.
 */
import type { GitSource, ToolBuild } from '../builds/builder.ts'
import type { Kind } from '../kinds.ts'
import type { AppSettings } from '../runtimes/apps.ts'
import type { ChartChange, ChartSettings } from '../runtimes/charts.ts'
import type { Scaling, Workload } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'
import type { KeptRuns, When } from '../work/schedule.ts'

export type DeploymentAction = 'DEPLOY' | 'RESTART' | 'STOP' | 'UNINSTALL' | 'DELETE'

/** The source of a service's image. */
export interface BuildSpec {
  git: Pick<GitSource, 'url' | 'branch'> & { gitTokenId: string | null }
  rootPath: string
  dockerfilePath: string
  targetStage: string | null
  /** Made around a tool instead of from a Dockerfile of the repository. */
  tool?: ToolBuild
  /** The owner's settings; absent if there are none. */
  limits?: BuildLimits
}

/** The build settings of a service; omitted limits are the engine's. */
export interface BuildLimits {
  timeoutMs?: number
  cpuMillicores?: number
  memoryMb?: number
  skipSubmodules?: true
  noCache?: true
}

/** `path`, `value`, as for `helm --set`. */
export type ValuePair = readonly [path: string, value: string]

/** A chart and its values. Variables in the values are replaced when it is deployed. */
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

export type Source =
  | ({ from: 'git' } & BuildSpec)
  | ({ from: 'chart' } & ChartSpec)
  | ({ from: 'app' } & Pick<BuildSpec, 'git' | 'rootPath'>)
  | {
      from: 'image'
      /** The row of the registry with the host and the login; null for an image that needs neither. */
      registryId: string | null
      /** Repository without host and tag: `library/postgres`. */
      name: string
      tag: string
    }
  | {
      /** Made by a module of the operator, chosen by the cluster's provider and the type. */
      from: 'module'
      provider: string
      type: string
      /** The fields of the configuration that the module can read, with the API's names. */
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

/** The trigger of a task: its environment's deploy, stop or delete, or its schedule. */
export type TaskEvent = 'START' | 'STOP' | 'DELETE' | 'CRON' | TaskAside

/** Runs only on request: a plan, unlocking a state, migrating a state. */
type TaskAside = 'PLAN' | 'UNLOCK' | 'MIGRATE'

/** Events that inspect or repair: the service keeps its version, however they end, and they have no release. */
export const asideEvents: ReadonlySet<TaskEvent> = new Set(['PLAN', 'UNLOCK', 'MIGRATE'] satisfies TaskAside[])

/** A program that exits; null for the image's own. */
export type TaskCommand = Pick<Workload, 'entrypoint' | 'arguments'>

/** A program that runs to completion: the service's only program, or in addition to its instances. */
export interface TaskSpec {
  /** The command of each event; nothing runs for omitted ones. */
  on: Partial<Record<TaskEvent, TaskCommand>>
  /** When CRON happens: five fields, a time zone of the database, and whether runs may overlap (work/schedule.ts). */
  cron: When | null
  /** How often a program that exited with a code other than 0 is run again. */
  maxRestarts: number
  /** For one run. */
  timeoutMs: number
  /** How many finished scheduled runs are kept, with their output; absent: the default number. */
  kept?: KeptRuns
  /**
   * Runs pass a JSON document on from one to the next (tasks/files.ts has its path): kept HERE, sealed; or ELSEWHERE
   * by now, where MIGRATE has moved it. Absent: they are independent.
   */
  state?: 'HERE' | 'ELSEWHERE'
  /** It sees the volumes of its service, which may be in use. */
  withVolumes?: boolean
}

/** By name. At most one of them answers an event other than CRON. */
export type Tasks = Readonly<Record<string, TaskSpec>>

/** The name of the task of a service that runs only one. */
export const mainTask = 'main'

/** What a program leaves at its end for the services beside its own. */
export interface Output {
  name: string
  value: string
  sensitive: boolean
}

/** The parts of a deployment that a kind makes from its configuration. All functions are pure. */
export interface DeployableKind<Kept = Record<string, unknown>> {
  kind: Kind
  /** One sentence that says what a configuration lacks to be deployed; null if nothing. */
  refusal?(spec: Kept): string | null
  source(spec: Kept): Source
  /** The running instances, and the resources of each task; a service that runs only tasks has 0 instances. */
  workload(spec: Kept): WorkloadSpec
  /**
   * Named programs that run to their end. With 0 instances they are the whole service: a deploy, a stop and a delete
   * run them. With instances they run on a schedule or by a forced event. Undefined: such a service never has any.
   */
  tasks?(spec: Kept): Tasks | undefined
  /** Why a service deployed at one tag cannot move to another with its data; absent where it always can. */
  moveRefusal?(from: string, to: string): string | null
  /**
   * The whole environment of the service's programs, made from the row's own sealed fields (opened here and at a
   * deploy only). Absent for kinds whose services see variables. Does not count for whether a service is out of date.
   */
  environment?(spec: Kept, secrets: Readonly<Record<string, string>>): Record<string, string>
  /**
   * Module-backed kinds: maps module outputs to the variables that other services of the environment get. Throws a
   * `DeploymentError` for an output that cannot be used.
   */
  told?(source: Extract<Source, { from: 'module' }>, values: Readonly<Record<string, string>>): Output[]
  /** Files in addition to those of the variables, made from the row and its own sealed fields. */
  files?(spec: Kept, secrets: Readonly<Record<string, string>>): { path: string; content: string }[]
  /** JSON pointers to the sizes of its volumes, in the order of its workload's. */
  sizeFields?(spec: Kept): string[]
  /** JSON pointers to configured fields that are only recorded; `rollsItself`: of the cluster. */
  recorded?(spec: Kept, rollsItself: boolean): string[]
  /** What a push to a service's repository requests besides the commit; null: no request. Absent: nothing besides. */
  push?(spec: Kept): Pick<ServiceRequest, 'forceEvent'> | null
  /** The name of an action of its services in status records; default NONE. */
  subAction?(action: string, event: TaskEvent | null): string
}

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
  /** The name of one of several tasks that answer the forced event. */
  task?: string
  /** For a delete or an uninstall: the commands that the service runs when it ends are skipped. */
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

/** A code, and one plain sentence or two. */
export interface Problem {
  code: string
  message: string
  /** Only while this deployment is in progress. */
  deploymentId?: string
}

/** How an instance of the running version ended last. */
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
  /** Why the last deployment failed, or the present problem of the service; absent while there is none. */
  error?: { code: string; message: string }
  /** How an instance of the running version ended last; absent if none did. */
  restarts?: Restarts
  /** How many instances there should be now, if that follows their use. */
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
  objects?: ChartChange[]
}

export type Effect = 'BUILD' | 'ROLL_OUT' | 'RESTART' | 'RUN' | 'STOP' | 'DELETE' | 'UNTOUCHED' | 'SKIPPED' | 'REFUSED'

/** The version that a deploy brings: the head of the branch or the configured tag, the deployed or a named one. */
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
  /** Null for a service that is not deployed. */
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

/** A service's row of `service_state`, with facts from the environment's deployments. */
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
  /** The result of `stepsSql`; absent if it was not requested. */
  steps?: string | null
  /** Actions on its environment skip it; absent if it was not requested. */
  isSkipped?: boolean
  /** Null: it has none of them. */
  exceptions: StateExceptions | null
}

/** Fields that most services do not have. */
interface StateExceptions {
  /** The event that the last deployment was asked to run instead of the default. */
  forcedEvent: TaskEvent | null
  /** As `problemSql` reads them. */
  failure: Problem | null
  problem: Problem | null
  restarts: Restarts | null
  /** How many instances there should be now, and how that follows their use; null: the number in its release. */
  scale: number | null
  scaling: Scaling | null
}

/** For a service in a deploy. A redeploy of a service that was never deployed takes the newest version. */
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
   * Writes the deployment, the new service states and the STARTED events in `tx`, and wakes a worker at its commit. A
   * request that equals one still QUEUED joins it. 409 for a service that is being deleted. 400 for a deploy that is
   * impossible: `cluster_not_deployable`, or `not_deployable` for a service whose kind refuses (in a whole environment
   * such a service is left out instead, unless no other is left).
   */
  request(tx: Queryable, request: DeploymentRequest): Promise<AcceptedDeployment>
  /** What `request` would do; nothing is done. The same 404 and 409 for a release that cannot be run again. */
  plan(db: Queryable, request: PlannedRequest): Promise<Plan>
  /**
   * The release that a rollback of a service runs: the one named (404 unless it is the service's own), else the newest
   * other one before the present. 409 `release_not_usable` for one that never succeeded, or cannot run any more.
   */
  releaseFor(db: Queryable, serviceId: string, releaseId?: string): Promise<string>
  /**
   * The requests that bring an environment back to the result of an execution; absent: the newest earlier one that
   * succeeded. 404 for an execution that is not its own, 409 `nothing_to_roll_back`.
   */
  releasesOf(db: Queryable, environmentId: string, executionId?: string): Promise<ServiceRequest[]>
  /**
   * Cancels running and queued deployments of an environment, or only one of them. A job has its grace period to end,
   * unless it is forced. 409 if there is nothing to cancel.
   */
  cancel(tx: Queryable, environmentId: string, options?: { deploymentId?: string; force?: boolean }): Promise<void>
  /** In the order of the given ids; ids without a status are left out. One statement, however many they are. */
  statuses(db: Queryable, serviceIds: readonly string[]): Promise<ServiceStatus[]>
  environmentStatuses(
    db: Queryable,
    environmentId: string,
  ): Promise<{ kind: Kind; isSkipped: boolean; status: ServiceStatus }[]>
  /** Statuses of rows that were read before (`readStates`). */
  statusesOf(db: Queryable, rows: readonly StateRow[]): Promise<ServiceStatus[]>
}
