/** Logs of deployments: lines of the table `deployment_log`, in the two public forms. */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation, reading } from '../api/operations/operation.ts'
import { Maybe, Nullable, OneOf, Results, Text, Timestamp, Uuid } from '../api/operations/schema.ts'
import { readClusterId } from '../clusters/refs.ts'
import { kindsWith, typeOf } from '../kinds.ts'
import { notFound } from '../lib/errors.ts'
import { idOf } from '../lib/ids.ts'
import { words } from '../lib/words.ts'
import { executionOf, type LogRow, readLast } from './deployment-log-lines.ts'

/** Begun, done and failed, by the action of the deployment. */
const ofAction: Record<string, readonly [string, string, string]> = {
  DEPLOY: ['Deploy', 'Deployed', 'DeployedError'],
  RESTART: ['Restart', 'Restarted', 'RestartedError'],
  STOP: ['Pause', 'Paused', 'PausedError'],
  DELETE: ['Delete', 'Deleted', 'DeletedError'],
  UNINSTALL: ['Delete', 'Deleted', 'DeletedError'],
}

/** `output` is the end of a build's output. */
const ofStep: Record<string, string> = {
  source: 'Build',
  image: 'Build',
  output: 'Build',
  built: 'Built',
  task: 'Executing',
  run: 'Executing',
  unlock: 'Executing',
  resume: 'LoadConfiguration',
  cancel: 'Cancelled',
}

interface StepLine {
  step: string
  /** Null for a line of the deployment itself. */
  action: string | null
  /** The service's state in this deployment, or its result. */
  state: string | null
}

/**
 * The steps of deployment logs as clients know them: those of the original engine, whose console filters lines by
 * them. Pure. Stored lines have our own names; lines of older versions are read the same way.
 */
export const publicLogStep = ({ step, action, state }: StepLine): string => {
  const known = step.startsWith('task-') ? 'Executing' : ofStep[step]
  if (known !== undefined) return known
  const [begun, done, failed] = ofAction[action ?? 'DEPLOY'] ?? ofAction.DEPLOY!
  if (step === 'error') return state === 'BUILDING' || state === 'BUILD_ERROR' ? 'BuiltError' : failed!
  return step === 'done' || step === 'compare' ? done! : begun!
}

export const maxLines = 5000
const maxOldLines = 1000

const readLines = async (context: Context, limit: number): Promise<LogRow[]> => {
  const execution = executionOf(context)
  return execution === undefined ? [] : readLast(context.db, context.node.id, execution, limit)
}

const Query = Type.Object({ version: Maybe(Text(200)) })

const Line = Type.Object({
  type: Text(),
  timestamp: Timestamp(),
  details: Type.Object({
    organization_id: Uuid(),
    cluster_id: Uuid(),
    execution_id: Text(),
    transmitter: Type.Object({ id: Uuid(), name: Text(), type: Text() }),
    stage: Type.Object({ step: Text(), id: Nullable(Uuid()), name: Nullable(Text()) }),
  }),
  error: Nullable(
    Type.Object({
      tag: Text(),
      user_log_message: Text(),
      link: Text(),
      hint_message: Text(),
      underlying_error: Type.Object({ message: Text(), full_details: Text() }),
    }),
  ),
  message: Nullable(Type.Object({ safe_message: Text(), full_details: Text() })),
})

export const toLine = (row: LogRow, context: Context, clusterId: string) => {
  const { node, principal } = context
  const failed = row.level === 'error'
  const underlying = { message: row.text, full_details: '' }
  return {
    type: failed ? 'error' : 'info',
    timestamp: row.at,
    details: {
      organization_id: principal.organizationId,
      cluster_id: clusterId,
      execution_id: row.executionId,
      transmitter: {
        id: row.serviceId ?? node.id,
        name: row.name ?? node.name,
        type: row.kind === null ? 'Environment' : row.kind[0]!.toUpperCase() + row.kind.slice(1),
      },
      stage: { step: publicLogStep(row), id: row.stageId, name: row.stageName },
    },
    error: failed
      ? {
          tag: row.step.toUpperCase(),
          user_log_message: row.text,
          link: '',
          hint_message: '',
          underlying_error: underlying,
        }
      : null,
    message: { safe_message: row.text, full_details: '' },
  }
}

const kinds: string[] = words(
  'CANCELED CANCELING DELETED DELETE_ERROR DELETE_IN_PROGRESS DEPLOYED DEPLOYMENT_ERROR DEPLOYMENT_IN_PROGRESS',
  'ERROR PAUSED PAUSE_ERROR PAUSE_IN_PROGRESS WAITING',
)

const oldState = (state: string | null): string => {
  if (state === null) return 'DEPLOYMENT_IN_PROGRESS'
  if (kinds.includes(state)) return state
  const known: Record<string, string> = {
    RESTARTED: 'DEPLOYED',
    STOPPED: 'PAUSED',
    STOPPING: 'PAUSE_IN_PROGRESS',
    STOP_ERROR: 'PAUSE_ERROR',
    DELETING: 'DELETE_IN_PROGRESS',
    BUILD_ERROR: 'ERROR',
    RESTART_ERROR: 'ERROR',
  }
  return known[state] ?? (state.endsWith('_QUEUED') ? 'WAITING' : 'DEPLOYMENT_IN_PROGRESS')
}

/** Kinds that appear in lines of the older form. */
const named = kindsWith(({ old }) => old?.log === true)

const toOldLine = (row: LogRow, { node }: Context) => ({
  id: idOf('log', row.chunk, row.index),
  created_at: row.at,
  scope: {
    type: row.kind !== null && named.includes(row.kind) ? typeOf(row.kind) : 'ENVIRONMENT',
    name: row.name ?? node.name,
    id: row.serviceId ?? node.id,
  },
  state: oldState(row.state),
  service: row.name ?? '',
  status: oldState(row.state),
  message: row.text,
  execution_id: row.executionId,
  hint: '',
})

const common = {
  ...reading,
  tag: 'Environment Logs',
  area: 'projects' as const,
  owner: nodeInPath('environment', 'environmentId'),
  query: Query,
}

export const deploymentLogOperations: Operation[] = [
  operation({
    ...common,
    id: 'listEnvironmentLogs',
    path: '/environment/{environmentId}/logs',
    summary: 'Read the log of a deployment (`version` is its execution_id), by default the last one, oldest line first',
    answer: Type.Array(Line),
    async run(context) {
      const clusterId = await readClusterId(context.db, context.node.id)
      if (clusterId === null) throw notFound()
      return (await readLines(context, maxLines)).map((row) => toLine(row, context, clusterId))
    },
  }),
  operation({
    ...common,
    id: 'listEnvironmentLog',
    path: '/environment/{environmentId}/log',
    summary: 'Read the last 1000 lines of a deployment (older form)',
    answer: Results(
      Type.Object({
        id: Uuid(),
        created_at: Timestamp(),
        scope: Type.Object({ type: OneOf([...named.map(typeOf), 'ENVIRONMENT']), name: Text(), id: Uuid() }),
        state: OneOf(kinds),
        service: Text(),
        status: OneOf(kinds),
        message: Nullable(Text()),
        execution_id: Text(),
        hint: Text(),
      }),
    ),
    run: async (context) => ({
      results: (await readLines(context, maxOldLines)).map((row) => toOldLine(row, context)),
    }),
  }),
]
