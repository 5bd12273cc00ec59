/**
 * The audit log of an organization, newest first. Pages are delimited by the time and id of an event, so that new
 * events neither repeat nor hide any.
 */
import Type from 'typebox'
import {
  type Context,
  type Fields,
  type Operation,
  operation,
  organizationInPath,
} from '../../api/operations/operation.ts'
import { Flag, Maybe, Nullable, OneOf, Text, Timestamp, Uuid, Whole } from '../../api/operations/schema.ts'
import { absent, allKinds, kinds } from '../../kinds.ts'
import { badRequest } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import { words } from '../../lib/words.ts'
import { timestampSql } from '../../store/tree.ts'

/** The vocabulary of the audit log, as existing clients know it. */
const eventTypes: string[] = words(
  'CREATE UPDATE DELETE ACCEPT EXPORT CLONE DEPLOY_QUEUED STOP_QUEUED RESTART_QUEUED DELETE_QUEUED',
  'UNINSTALL_QUEUED MAINTENANCE DRY_RUN TRIGGER_REDEPLOY TRIGGER_CANCEL FORCE_RUN_QUEUED FORCE_RUN_QUEUED_DEPLOY',
  'FORCE_RUN_QUEUED_STOP FORCE_RUN_QUEUED_DELETE TRIGGER_DEPLOY TRIGGER_STOP TRIGGER_RESTART TRIGGER_DELETE',
  'TRIGGER_UNINSTALL TRIGGER_DEPLOY_DRY_RUN TRIGGER_TERRAFORM_FORCE_UNLOCK TRIGGER_TERRAFORM_MIGRATE_STATE',
  'TRIGGER_FORCE_RUN TRIGGER_FORCE_RUN_DEPLOY TRIGGER_FORCE_RUN_STOP TRIGGER_FORCE_RUN_DELETE DEPLOYED STOPPED',
  'DELETED UNINSTALLED RESTARTED DEPLOYED_DRY_RUN FORCE_RUN_SUCCEEDED TERRAFORM_FORCE_UNLOCK_SUCCEEDED',
  'TERRAFORM_MIGRATE_STATE_SUCCEEDED DEPLOY_FAILED STOP_FAILED DELETE_FAILED UNINSTALL_FAILED RESTART_FAILED',
  'DEPLOYED_DRY_RUN_FAILED FORCE_RUN_FAILED TERRAFORM_FORCE_UNLOCK_FAILED TERRAFORM_MIGRATE_STATE_FAILED SHELL',
  'PORT_FORWARD REMOTE_DEBUG MCP IMPORT LOCK UNLOCK POLICY_FAILED',
)

/** In the order that clients know. */
const publishedTargets = [
  absent.audit,
  'APPLICATION',
  'CLUSTER',
  'CONTAINER',
  'CONTAINER_REGISTRY',
  'DATABASE',
  'ENTERPRISE_CONNECTION',
  'ENVIRONMENT',
  'JOB',
  'HELM',
  'HELM_REPOSITORY',
  'MEMBERS_AND_ROLES',
  'ORGANIZATION',
  'PROJECT',
  'WEBHOOK',
  'TERRAFORM',
]

const targetTypes = [...new Set([...publishedTargets, ...allKinds.map((kind) => kinds[kind].audit)])]

const subTargetTypes: string[] = words(
  'ADVANCED_SETTINGS ALERT_RECEIVER ALERT_RULE ANNOTATIONS_GROUP API_TOKEN ARGOCD_CLUSTER_MAPPING',
  'ARGOCD_CONFIGURATION BILLING_INFO BILLING_USAGE_REPORT BLUEPRINT_MIGRATION CLOUD_PROVIDER_CREDENTIALS',
  'CLUSTER_CREDENTIALS CLUSTER_ROUTING_TABLE CONFIG CREDIT_CARD CREDIT_CODE CUSTOM_DOMAIN CUSTOM_ROLE',
  'DEPLOYMENT_RULE DEPLOYMENT_STAGE DNS_PROVIDER GITHUB_APP GIT_REPOSITORY GIT_TOKEN INVITATION JWT_TOKEN_FORGED',
  'KUBERNETES_CONFIGURATION KUBERNETES_CREDENTIALS LABELS_GROUP MCP_SERVER MEMBER_ROLE PLAN POLICY_API_TOKEN',
  'REMOTE_ACCESS SECRET SSO TERRAFORM TOOL_CALL TRANSFER_OWNERSHIP VARIABLE',
)

const origins = ['API', 'CLI', 'CONSOLE', 'GIT', 'QOVERY_INTERNAL', 'SKILL', 'TERRAFORM_PROVIDER']

/** The kind of actor; OPERATOR is the environment or a program on the server's machine, SYSTEM the server itself. */
const actorTypes = ['API_TOKEN', 'USER', 'OPERATOR', 'SYSTEM']

const common = {
  method: 'GET' as const,
  tag: 'Organization Event',
  scope: 'Admin' as const,
  area: 'audit' as const,
  owner: organizationInPath,
}

const Event = Type.Object(
  {
    id: Uuid(),
    timestamp: Timestamp(),
    event_type: OneOf(eventTypes),
    target_id: Nullable(Uuid()),
    target_name: Text(),
    target_type: OneOf(targetTypes),
    sub_target_type: Nullable(OneOf(subTargetTypes)),
    change: Text(2_000_000),
    origin: OneOf(origins),
    triggered_by: Text(),
    actor_type: Maybe(Nullable(OneOf(actorTypes))),
    actor_id: Maybe(Nullable(Uuid())),
    project_id: Nullable(Uuid()),
    project_name: Text(),
    environment_id: Nullable(Uuid()),
    environment_name: Text(),
    user_agent: Nullable(Text()),
    original_change: Nullable(Text(2_000_000)),
  },
  { title: 'OrganizationEvent' },
)

const filters = {
  fromTimestamp: Maybe(Text(40)),
  toTimestamp: Maybe(Text(40)),
  eventType: Maybe(OneOf(eventTypes)),
  targetType: Maybe(OneOf(targetTypes)),
  triggeredBy: Maybe(Text()),
  origin: Maybe(OneOf(origins)),
}

const Filters = Type.Object(filters)
type Filters = Type.Static<typeof Filters>

const eventQuery = Type.Object({
  ...filters,
  pageSize: Maybe(Whole(1, 100, { default: 10 })),
  continueToken: Maybe(Text(80)),
  stepBackToken: Maybe(Text(80)),
  targetId: Maybe(Uuid()),
  subTargetType: Maybe(OneOf(subTargetTypes)),
  serviceProjectId: Maybe(Uuid()),
  serviceEnvironmentId: Maybe(Uuid()),
})

/** Its defaults are filled in. */
type EventQuery = Type.Static<typeof eventQuery> & { pageSize: number }

/** The database knows no years that are as early as some of this language. */
const earliestMs = Date.parse('0001-01-01T00:00:00Z')

/** Clients send a time as text or as a number since 1970, whose length gives the unit: seconds to nanoseconds. */
const unitOf = (digits: number): number => Math.max(-1, Math.floor((digits - 11) / 3))

const momentOf = (text: string | undefined, field: string): Date | null => {
  if (text === undefined || text === '') return null
  const moment = /^\d{9,20}$/.test(text) ? new Date(Number(text) / 1000 ** unitOf(text.length)) : new Date(text)
  if (!(moment.getTime() >= earliestMs))
    throw badRequest(`${field}: must be a date and time`, [{ field: `/${field}`, message: 'must be a date and time' }])
  return moment
}

interface Cursor {
  micros: string
  id: string
}

const cursorOf = (text: string | undefined, field: string): Cursor | null => {
  if (text === undefined || text === '') return null
  const [, micros, id] = /^(\d{1,18})-(.{36})$/.exec(text) ?? []
  if (micros === undefined || !isUuid(id!))
    throw badRequest(`${field}: is not a valid page token`, [
      { field: `/${field}`, message: 'is not a valid page token' },
    ])
  return { micros, id: id! }
}

const sharedSql = `e.organization_id = $1 and ($2::timestamptz is null or e.created_at >= $2)
  and ($3::timestamptz is null or e.created_at <= $3) and ($4::text is null or e.event_type = $4)
  and ($5::text is null or e.target_type = $5) and ($6::text is null or e.triggered_by = $6)
  and ($7::text is null or e.origin = $7)`

const sharedValues = ({ node }: Context, query: Filters): unknown[] => [
  node.id,
  momentOf(query.fromTimestamp, 'fromTimestamp'),
  momentOf(query.toTimestamp, 'toTimestamp'),
  query.eventType ?? null,
  query.targetType ?? null,
  query.triggeredBy ?? null,
  query.origin ?? null,
]

const columns = `e.id, ${timestampSql('e.created_at')} as timestamp, e.event_type, e.target_id,
  coalesce(e.target_name, '') as target_name, e.target_type, e.sub_target_type, coalesce(e.change::text, '') as change,
  e.original::text as original_change,
  e.origin, e.triggered_by, e.actor_type, e.actor_id, e.project_id, coalesce(p.name, '') as project_name, e.environment_id,
  coalesce(v.name, '') as environment_name, e.user_agent,
  (extract(epoch from e.created_at) * 1000000)::bigint::text as micros`

/** A page before or after a cursor: $12 its time, $13 its id, $14 the page size plus one. */
const pageSql = (isBack: boolean): string => `select ${columns}
  from event e left join node p on p.id = e.project_id left join node v on v.id = e.environment_id
  where ${sharedSql} and ($8::uuid is null or e.target_id = $8) and ($9::text is null or e.sub_target_type = $9)
    and ($10::uuid is null or e.project_id = $10) and ($11::uuid is null or e.environment_id = $11)
    and ($12::bigint is null or (e.created_at, e.id) ${isBack ? '>' : '<'}
      (timestamptz 'epoch' + $12::bigint * interval '1 microsecond', $13::uuid))
  order by e.created_at ${isBack ? 'asc' : 'desc'}, e.id ${isBack ? 'asc' : 'desc'} limit $14`

const [backSql, onSql] = [pageSql(true), pageSql(false)]

type Row = Type.Static<typeof Event> & { micros: string }

/** Clients would break on an unknown value: they get the next wider one. */
const show = ({ micros: _, ...row }: Row) => ({
  ...row,
  event_type: eventTypes.includes(row.event_type) ? row.event_type : 'UPDATE',
  target_type: targetTypes.includes(row.target_type) ? row.target_type : 'ORGANIZATION',
  sub_target_type: subTargetTypes.includes(row.sub_target_type ?? '') ? row.sub_target_type : null,
  origin: origins.includes(row.origin) ? row.origin : 'API',
})

const linkTo = (context: Context<Fields, EventQuery>, name: 'continueToken' | 'stepBackToken', row: Row): string => {
  const { continueToken: _, stepBackToken: __, ...kept } = context.query
  const query = new URLSearchParams(Object.entries(kept).map(([key, value]): [string, string] => [key, String(value)]))
  query.set(name, `${row.micros}-${row.id}`)
  return `/organization/${context.node.id}/events?${query}`
}

const readPage = async (context: Context<Fields, EventQuery>) => {
  const { query } = context
  const back = cursorOf(query.stepBackToken, 'stepBackToken')
  const cursor = back ?? cursorOf(query.continueToken, 'continueToken')
  const { targetId, subTargetType, serviceProjectId, serviceEnvironmentId, pageSize } = query
  const own = [targetId, subTargetType, serviceProjectId, serviceEnvironmentId].map((value) => value ?? null)
  const values = [...sharedValues(context, query), ...own, cursor?.micros ?? null, cursor?.id ?? null, pageSize + 1]
  const found = await context.db.query<Row>(back === null ? onSql : backSql, values)
  const rows = found.slice(0, pageSize)
  const hasMore = found.length > pageSize
  if (back !== null) return { rows: rows.reverse(), hasNext: true, hasPrevious: hasMore }
  return { rows, hasNext: hasMore, hasPrevious: cursor !== null }
}

const list = operation({
  ...common,
  id: 'getOrganizationEvents',
  path: '/organization/{organizationId}/events',
  summary: 'Read the audit log, newest first, a page at a time',
  query: eventQuery,
  status: 200,
  answer: Type.Object({
    links: Type.Object({ previous: Maybe(Text(2048)), next: Maybe(Text(2048)) }),
    organization_max_limit_reached: Flag(),
    events: Type.Array(Event),
  }),
  async run(context: Context<Fields, EventQuery, { organizationId: string }>) {
    const { rows, hasNext, hasPrevious } = await readPage(context)
    const [first, last] = [rows[0], rows.at(-1)]
    return {
      links: {
        ...(hasPrevious && first !== undefined ? { previous: linkTo(context, 'stepBackToken', first) } : {}),
        ...(hasNext && last !== undefined ? { next: linkTo(context, 'continueToken', last) } : {}),
      },
      organization_max_limit_reached: false,
      events: rows.map(show),
    }
  },
})

const levels = ['PROJECT', 'ENVIRONMENT'] as const
const idOfLevel = { PROJECT: 'e.project_id', ENVIRONMENT: 'e.environment_id' }

/** The latest name of each target; $8 and $9 narrow to a project and an environment. */
const targetSql = (level: (typeof levels)[number] | undefined): string => {
  const id = level === undefined ? 'e.target_id' : idOfLevel[level]
  const name = level === undefined ? `coalesce(e.target_name, '')` : `coalesce(t.name, '')`
  return `select json_agg(json_build_object('id', id, 'name', name) order by name, id) as targets from (
    select distinct on (${id}) ${id} as id, ${name} as name
    from event e left join node t on t.id = ${id}
    where ${sharedSql} and ${id} is not null and ($8::uuid is null or e.project_id = $8)
      and ($9::uuid is null or e.environment_id = $9)
    order by ${id}, e.created_at desc limit 5000) found`
}

const targets = operation({
  ...common,
  id: 'getOrganizationEventTargets',
  path: '/organization/{organizationId}/targets',
  summary: 'List the targets in the audit log, to filter it by',
  query: Type.Object({
    ...filters,
    projectId: Maybe(Uuid()),
    environmentId: Maybe(Uuid()),
    targetLevelToFetch: Maybe(OneOf(levels)),
  }),
  status: 200,
  answer: Type.Object({ targets: Type.Array(Type.Object({ id: Uuid(), name: Text() })) }),
  async run(context) {
    const { query } = context
    const values = [...sharedValues(context, query), query.projectId ?? null, query.environmentId ?? null]
    const [row] = await context.db.query<{ targets: { id: string; name: string }[] | null }>(
      targetSql(query.targetLevelToFetch as (typeof levels)[number] | undefined),
      values,
    )
    return { targets: row!.targets ?? [] }
  },
})

export const auditEventOperations: Operation[] = [list, targets]
