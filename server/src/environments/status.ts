/** The state of an environment, from its services and its last deployment; and the operations that read it. */
import type Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation, reading } from '../api/operations/operation.ts'
import { Results } from '../api/operations/schema.ts'
import type { DeploymentAction, Deployments, ServiceStatus } from '../deployments/deployments.ts'
import { type Placement, readPlacement } from '../deployments/request/stage-rows.ts'
import { defaultOrder } from '../deployments/request/stages.ts'
import { actionStatusOf, environmentStateOf, isFinal, openStates, stateOf } from '../deployments/status/states.ts'
import { publicAction } from '../deployments/status/status.ts'
import {
  byStatusList,
  EnvironmentStatus,
  EnvironmentStatuses,
  EnvironmentStatusesWithStages,
} from '../facets/status-schema.ts'
import type { Kind } from '../kinds.ts'
import type { Queryable } from '../store/database.ts'
import { timestampSql } from '../store/tree.ts'

type Found = { kind: Kind; isSkipped: boolean; status: ServiceStatus }[]

interface Last {
  id: string
  action: DeploymentAction
  state: string
  executionId: string
  origin: string
  triggeredBy: string
  createdAt: string
  finishedAt: string | null
  seconds: number | null
}

const lastColumns = `d.id, d.action, d.state, d.environment_id || '-' || d.execution_number as "executionId", d.origin,
  d.triggered_by as "triggeredBy", ${timestampSql('d.created_at')} as "createdAt",
  ${timestampSql('d.finished_at')} as "finishedAt",
  round(extract(epoch from coalesce(d.finished_at, clock_timestamp()) - coalesce(d.started_at, d.created_at)))::int as seconds`

const readLast = async (db: Queryable, environmentId: string): Promise<{ last?: Last; open?: Last }> => {
  const rows = await db.query<Last & { wanted: string }>(
    `(select 'last' as wanted, ${lastColumns} from deployment d where d.environment_id = $1
        order by d.created_at desc, d.id desc limit 1)
     union all
     (select 'open', ${lastColumns} from deployment d where d.environment_id = $1 and d.state in ${openStates}
        order by d.state desc, d.seq limit 1)`,
    [environmentId],
  )
  const of = (wanted: string) => rows.find((row) => row.wanted === wanted)
  const [last, open] = [of('last'), of('open')]
  return { ...(last === undefined ? {} : { last }), ...(open === undefined ? {} : { open }) }
}

/**
 * Services that an action on the environment skips do not hide its result: an environment is STOPPED though a skipped
 * service runs.
 */
const stateOfServices = (services: Found): string => {
  const statesOf = (some: Found): string => environmentStateOf(some.map(({ status }) => status.state))
  const state = statesOf(services)
  const others = services.filter(({ isSkipped }) => !isSkipped)
  return !isFinal(state) || state.endsWith('_ERROR') || others.length === 0 ? state : statesOf(others)
}

/** Never final while a deployment is in progress: clients that poll would take it for the result. */
const stateNow = (services: Found, open: Last | undefined): string => {
  const state = stateOfServices(services)
  if (open === undefined || !isFinal(state)) return state
  return stateOf(open.action, open.state === 'RUNNING' ? 'working' : 'queued')
}

const deploymentStatusOf = (services: Found): string => {
  const all = services.map(({ status }) => status.service_deployment_status)
  if (all.every((status) => status === 'NEVER_DEPLOYED')) return 'NEVER_DEPLOYED'
  return all.every((status) => status === 'UP_TO_DATE') ? 'UP_TO_DATE' : 'OUT_OF_DATE'
}

export interface EnvironmentRead {
  environment: Type.Static<typeof EnvironmentStatus>
  services: Found
}

const errorOf = (services: Found): Pick<ServiceStatus, 'error'> => {
  const error = services.find(({ status }) => status.error !== undefined)?.status.error
  return error === undefined ? {} : { error }
}

export const readEnvironment = async (
  deployments: Deployments,
  db: Queryable,
  environmentId: string,
): Promise<EnvironmentRead> => {
  const services = await deployments.environmentStatuses(db, environmentId)
  const { last, open } = await readLast(db, environmentId)
  const state = stateNow(services, open)
  const environment = {
    id: environmentId,
    state,
    last_deployment_date: last?.finishedAt ?? last?.createdAt ?? null,
    last_deployment_state: state,
    last_deployment_id: last?.executionId ?? null,
    total_deployment_duration_in_seconds: last?.seconds ?? null,
    ...(last === undefined ? {} : { origin: last.origin }),
    triggered_by: last?.triggeredBy ?? null,
    deployment_status: deploymentStatusOf(services),
    deployment_request_id: open?.id ?? null,
    metrics: null,
    ...errorOf(services),
  }
  return { environment, services }
}

/** The same with the fields of a service's status, which some clients expect from an action on an environment. */
export const acceptedEnvironment = (
  { environment, services }: EnvironmentRead,
  accepted: { deploymentId: string; executionId: string; createdAt: string },
  action: DeploymentAction | 'UNKNOWN',
) => ({
  ...environment,
  deployment_request_id: accepted.deploymentId,
  service_deployment_status: environment.deployment_status,
  is_part_last_deployment: true,
  status_details: { action: publicAction(action), status: actionStatusOf(environment.state), sub_action: 'NONE' },
  deployment_requests_count: services.reduce((most, { status }) => Math.max(most, status.deployment_requests_count), 0),
  execution_id: accepted.executionId,
  ...(action === 'UNKNOWN' ? {} : { status: 'QUEUED' }),
  created_at: accepted.createdAt,
})

export const groupByType = (services: readonly Pick<Found[number], 'kind' | 'status'>[]) =>
  byStatusList((kind): ServiceStatus[] =>
    services.filter((service) => service.kind === kind).map(({ status }) => status),
  )

const stageStatusOf = (services: Found): string => {
  const states = services.map(({ status }) => actionStatusOf(status.state))
  if (states.length === 0) return 'SKIPPED'
  if (states.includes('ONGOING') || states.includes('CANCELING')) return 'ONGOING'
  if (states.includes('QUEUED')) return 'QUEUED'
  if (states.includes('ERROR')) return 'ERROR'
  if (states.includes('CANCELED')) return 'CANCELED'
  return states.includes('SUCCESS') ? 'DONE' : 'SKIPPED'
}

/** A stage lasts as long as its slowest service; null while one of them is in progress. */
export const stageSteps = (stageId: string, services: readonly Pick<Found[number], 'status'>[]) => {
  const durations = services.map(({ status }) => status.steps?.total_duration_sec ?? null)
  const known = durations.filter((each) => each !== null)
  const isOver = known.length > 0 && known.length === durations.length
  return { stage_id: stageId, total_duration_sec: isOver ? Math.max(...known) : null, details: [] }
}

/** Statuses in the order of stages; a stage without services is empty. */
export const withStages = ({ environment, services }: EnvironmentRead, { stages, stageOf }: Placement) => ({
  environment,
  stages: stages.map(({ id, name, description }) => {
    const mine = services.filter(({ kind, status }) => stageOf(status.id, defaultOrder(kind)).id === id)
    const latest = mine.filter(({ status }) => status.is_part_last_deployment)
    const steps = stageSteps(id, latest)
    return { ...groupByType(mine), stage: { id, name, description, status: stageStatusOf(mine), steps } }
  }),
  pre_check_stage: { status: 'SUCCESS', total_duration_sec: 0 },
})

const read = (context: Context): Promise<EnvironmentRead> =>
  readEnvironment(context.parts.deployments, context.db, context.node.id)

const environmentOwner = nodeInPath('environment', 'environmentId')

const common = {
  ...reading,
  tag: 'Environment Main Calls',
  area: 'projects' as const,
  owner: environmentOwner,
}

const projectStatuses = operation({
  ...common,
  id: 'getProjectEnvironmentsStatus',
  path: '/project/{projectId}/environment/status',
  summary: 'Read the statuses of all environments of a project',
  owner: nodeInPath('project', 'projectId'),
  answer: Results(EnvironmentStatus),
  async run({ parts, db, node }) {
    const rows = await db.query<{ id: string }>(
      `select id from node where parent_id = $1 and kind = 'environment' order by created_at, id`,
      [node.id],
    )
    const results: EnvironmentRead['environment'][] = []
    for (const { id } of rows) results.push((await readEnvironment(parts.deployments, db, id)).environment)
    return { results }
  },
})

export const environmentStatusOperations: Operation[] = [
  operation({
    ...common,
    id: 'getEnvironmentStatus',
    path: '/environment/{environmentId}/status',
    summary: 'Read the status of an environment',
    answer: EnvironmentStatus,
    run: async (context) => (await read(context)).environment,
  }),
  operation({
    ...common,
    id: 'getEnvironmentStatuses',
    path: '/environment/{environmentId}/statuses',
    summary: 'Read the status of an environment and of every service in it',
    answer: EnvironmentStatuses,
    async run(context) {
      const { environment, services } = await read(context)
      return { environment, ...groupByType(services) }
    },
  }),
  operation({
    ...common,
    id: 'getEnvironmentStatusesWithStages',
    path: '/environment/{environmentId}/statusesWithStages',
    summary: 'Read the statuses of an environment by deployment stage',
    answer: EnvironmentStatusesWithStages,
    run: async (context) => withStages(await read(context), await readPlacement(context.db, context.node.id)),
  }),
  projectStatuses,
]
