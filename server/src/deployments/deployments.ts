/**
 * How a change reaches a runtime, as the layers above see it. Refuses to know kinds: a resource hands over a
 * `DeployableKind`. Whatever instant the process dies at, the next one goes on from the last finished step.
 */
import type { GitSource } from '../builds/builder.ts'
import type { Workload } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'
import type { StateRow } from './status.ts'

export type DeploymentAction = 'DEPLOY' | 'RESTART' | 'STOP' | 'DELETE'

/** What a service's image is made from. */
export interface BuildSpec {
  git: Omit<GitSource, 'credentials' | 'commitId'> & { gitTokenId: string | null }
  rootPath: string
  dockerfilePath: string
  targetStage: string | null
}

/** The part of a workload that a service's own configuration decides. */
export type WorkloadSpec = Pick<
  Workload,
  | 'entrypoint'
  | 'arguments'
  | 'cpuMillicores'
  | 'memoryMb'
  | 'instances'
  | 'ports'
  | 'volumes'
  | 'readiness'
  | 'liveness'
  | 'readyTimeoutMs'
  | 'stopGraceMs'
>

/** What a resource kind hands to the engine. Both functions are pure. */
export interface DeployableKind {
  /** Kind of the tree row: `application`. */
  kind: string
  /** `APPLICATION` … */
  serviceType: string
  /** Order of the kind's default stage: 0 databases, 1 jobs, 2 containers, 3 applications. */
  stage: number
  build(spec: Record<string, unknown>): BuildSpec
  workload(spec: Record<string, unknown>): WorkloadSpec
}

export interface DeploymentRequest {
  organizationId: string
  environmentId: string
  action: DeploymentAction
  /** True when the environment itself is the subject: DELETE then removes it too. */
  wholeEnvironment: boolean
  services: { id: string; commitId?: string; redeploy?: boolean }[]
  origin: string
  triggeredBy: string
  requestId: string
}

export interface AcceptedDeployment {
  deploymentId: string
  executionId: string
  /** RFC 3339 UTC. */
  createdAt: string
}

/** The public status record of one service (specification 2.5). */
export interface ServiceStatus {
  id: string
  state: string
  service_deployment_status: 'NEVER_DEPLOYED' | 'OUT_OF_DATE' | 'UP_TO_DATE'
  is_part_last_deployment: boolean
  status_details: { action: string; status: string; sub_action: 'NONE' }
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
}

export interface Deployments {
  /**
   * Writes the deployment, the new service states and the STARTED events in `tx`, and wakes a worker at its commit.
   * A request that equals one still QUEUED joins it. 409 for a service that is being deleted.
   */
  request(tx: Queryable, request: DeploymentRequest): Promise<AcceptedDeployment>
  /** Cancels what runs or waits in an environment, or one of them only. 409 when there is nothing to cancel. */
  cancel(tx: Queryable, environmentId: string, deploymentId?: string): Promise<void>
  /**
   * Statuses in the order of the ids asked for; ids without a status are left out. One statement, however many they
   * are. `steps` comes with the status of one service only.
   */
  statuses(db: Queryable, serviceIds: readonly string[]): Promise<ServiceStatus[]>
  /** Statuses of all services of an environment, with their kinds. */
  environmentStatuses(db: Queryable, environmentId: string): Promise<{ kind: string; status: ServiceStatus }[]>
  /** Statuses of rows that were read before (`readStates`). */
  statusesOf(db: Queryable, rows: readonly StateRow[]): Promise<ServiceStatus[]>
}
