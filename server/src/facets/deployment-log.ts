/** What deployments say while they work: lines of the table `deployment_log`, in the two public forms. */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation } from '../api/operation.ts'
import { Maybe, Nullable, OneOf, Results, Text, Timestamp, Uuid } from '../api/schema.ts'
import { steadyId } from './steady-id.ts'

const maxLines = 5000
const maxOldLines = 1000

interface Row {
  chunk: string
  index: string
  at: string
  text: string
  level: string
  step: string
  serviceId: string | null
  name: string | null
  kind: string | null
  stageId: string | null
  stageName: string | null
  state: string | null
  executionId: string
}

const readSql = (condition: string): string => `
  with d as (select id, environment_id, execution_number, state from deployment where environment_id = $1 and ${condition}
      order by created_at desc, id desc limit 1)
  select * from (
    select l.id as chunk, x.index, x.line ->> 'at' as at, x.line ->> 'text' as text, x.line ->> 'level' as level, l.step,
      l.service_id as "serviceId", w.name, w.kind, w.stage_id as "stageId", w.stage_name as "stageName", w.state,
      d.environment_id || '-' || d.execution_number as "executionId"
    from d join deployment_log l on l.deployment_id = d.id
      cross join lateral jsonb_array_elements(l.lines) with ordinality as x (line, index)
      left join deployment_service w on w.deployment_id = d.id and w.service_id = l.service_id
    order by l.id desc, x.index desc limit $3) newest
  order by chunk, index`

const readOne = readSql('execution_number = $2')
const readLast = readSql('$2::int is null')

/** The execution that the query names; `undefined` when it is not one of this environment. */
const executionOf = ({ query, node }: Context): number | null | undefined => {
  const { version } = query as { version?: string }
  if (version === undefined) return null
  const number = version.startsWith(`${node.id}-`)
    ? Number(version.slice(node.id.length + 1).split('-')[0])
    : Number.NaN
  return Number.isInteger(number) && number > 0 && number < 2 ** 31 ? number : undefined
}

const readLines = async (context: Context, limit: number): Promise<Row[]> => {
  const execution = executionOf(context)
  if (execution === undefined) return []
  return context.db.query<Row>(execution === null ? readLast : readOne, [context.node.id, execution, limit])
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

const readClusterId = async ({ db, node }: Context): Promise<string> => {
  const [row] = await db.query<{ id: string }>(`select spec ->> 'cluster_id' as id from node where id = $1`, [node.id])
  return row!.id
}

const toLine = (row: Row, context: Context, clusterId: string) => {
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
      stage: { step: row.step, id: row.stageId, name: row.stageName },
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

const kinds = [
  'CANCELED',
  'CANCELING',
  'DELETED',
  'DELETE_ERROR',
  'DELETE_IN_PROGRESS',
  'DEPLOYED',
  'DEPLOYMENT_ERROR',
  'DEPLOYMENT_IN_PROGRESS',
  'ERROR',
  'PAUSED',
  'PAUSE_ERROR',
  'PAUSE_IN_PROGRESS',
  'WAITING',
]

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

const toOldLine = (row: Row, { node }: Context) => ({
  id: steadyId('log', row.chunk, row.index),
  created_at: row.at,
  scope: {
    type: row.kind === 'application' || row.kind === 'database' ? row.kind.toUpperCase() : 'ENVIRONMENT',
    name: row.name ?? node.name,
    id: row.serviceId ?? node.id,
  },
  state: oldState(row.state),
  message: row.text,
  execution_id: row.executionId,
  hint: '',
})

const common = {
  method: 'GET' as const,
  tag: 'Environment Logs',
  scope: 'Read' as const,
  owner: nodeInPath('environment', 'environmentId'),
  query: Query,
  status: 200 as const,
}

export const deploymentLogOperations: Operation[] = [
  {
    ...common,
    id: 'listEnvironmentLogs',
    path: '/environment/{environmentId}/logs',
    summary: 'Read the log of one deployment (`version` is its execution_id), else of the last one, oldest line first',
    answer: Type.Array(Line),
    async run(context) {
      const clusterId = await readClusterId(context)
      return (await readLines(context, maxLines)).map((row) => toLine(row, context, clusterId))
    },
  },
  {
    ...common,
    id: 'listEnvironmentLog',
    path: '/environment/{environmentId}/log',
    summary: 'Read the last 1000 lines of a deployment (older form)',
    answer: Results(
      Type.Object({
        id: Uuid(),
        created_at: Timestamp(),
        scope: Type.Object({ type: OneOf(['APPLICATION', 'DATABASE', 'ENVIRONMENT']), name: Text(), id: Uuid() }),
        state: OneOf(kinds),
        message: Nullable(Text()),
        execution_id: Text(),
        hint: Text(),
      }),
    ),
    run: async (context) => ({
      results: (await readLines(context, maxOldLines)).map((row) => toOldLine(row, context)),
    }),
  },
]
