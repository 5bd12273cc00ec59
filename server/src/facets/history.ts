/**
 * Deployment histories of services: what was deployed, when, by whom, and with which result, in the older and the newer
 * form.
 */
import Type, { type TSchema } from 'typebox'
import { type Context, operation, reading } from '../api/operations/operation.ts'
import { Maybe, Nullable, OneOf, Open, Text, Timestamp, Uuid, Whole } from '../api/operations/schema.ts'
import { actionStatusOf } from '../deployments/status/states.ts'
import { publicAction } from '../deployments/status/status.ts'
import { kinds, serviceTypes, typeOf } from '../kinds.ts'
import type { Queryable } from '../store/database.ts'
import { timestampSql } from '../store/tree.ts'
import { type Facet, itemOf, onService, type Self } from './facet.ts'
import { type DetailRow, Details, detailColumns, detailsOf, imageDetails, oldSchedule } from './history-details.ts'
import { origins, StatusDetails, states } from './status-schema.ts'

export const Paging = Type.Object({
  pageSize: Maybe(Whole(1, 100, { default: 20 })),
  page: Maybe(Whole(1, 100_000, { default: 1 })),
})

/** For the older forms: a page can be given by the last entry of the one before, instead of by number. */
export const OldPaging = Type.Object({
  ...Paging.properties,
  startId: Maybe(Uuid({ description: 'The id of an entry: the page begins after it, and is empty if there is none.' })),
})

export const Page = <T extends TSchema>(item: T) =>
  Type.Object({ page: Whole(1), page_size: Whole(1), results: Type.Array(item) })

export const paging = ({ query }: Context) => {
  const { pageSize, page, startId = null } = query as { pageSize: number; page: number; startId?: string }
  return { page, pageSize, offset: (page - 1) * pageSize, startId }
}

export const answerPage = <T>(context: Context, results: T[]) => {
  const { page, pageSize } = paging(context)
  return { page, page_size: pageSize, results }
}

export const Commit = Type.Object(
  {
    created_at: Timestamp(),
    git_commit_id: Text(),
    tag: Text(),
    message: Text(65_536),
    author_name: Text(),
    author_avatar_url: Maybe(Text(2048)),
    commit_page_url: Maybe(Text(2048)),
  },
  { title: 'Commit' },
)

export const Auditing = Type.Object(
  {
    created_at: Timestamp(),
    updated_at: Timestamp(),
    triggered_by: Text(),
    origin: OneOf(origins),
  },
  { title: 'DeploymentHistoryAuditing' },
)

export const ServiceEntry = Type.Object(
  {
    identifier: Type.Object({
      name: Text(),
      service_id: Uuid(),
      service_type: OneOf(serviceTypes),
      execution_id: Text(),
    }),
    status: OneOf(states),
    auditing_data: Auditing,
    details: Details(Commit),
    status_details: StatusDetails,
    icon_uri: Text(),
    total_duration: Text(),
    error: Maybe(Nullable(Open())),
  },
  { title: 'DeploymentHistoryService' },
)

interface KeptCommit {
  git_commit_id: string
  created_at: string
  message: string
  author_name: string
  tag: string
}

export interface ServiceRow extends DetailRow {
  deploymentId: string
  executionId: string
  serviceId: string
  name: string
  stage: number
  stageName: string | null
  action: string
  subAction: string
  state: string
  origin: string
  triggeredBy: string
  createdAt: string
  updatedAt: string
  seconds: number
  commit: KeptCommit | null
  repository: string | null
  icon: string | null
  error: Record<string, unknown> | null
}

export const seconds = (alias: string): string =>
  `greatest(0, round(extract(epoch from coalesce(${alias}.finished_at, clock_timestamp())
    - coalesce(${alias}.started_at, ${alias}.created_at))))::int`

/** Deployments still waiting are in the queue; clients show both lists as one. */
export const begun = (alias: string): string => `${alias}.state <> 'QUEUED'`

const serviceColumns = `w.deployment_id as "deploymentId", d.environment_id || '-' || d.execution_number as "executionId",
  w.service_id as "serviceId", w.kind, w.name, w.stage, w.stage_name as "stageName", w.action,
  w.sub_action as "subAction", w.state, d.origin, d.triggered_by as "triggeredBy",
  ${timestampSql('w.created_at')} as "createdAt",
  ${timestampSql('coalesce(w.finished_at, w.started_at, w.created_at)')} as "updatedAt", ${seconds('w')} as seconds,
  coalesce(r.commit, (select p.result from deployment_step p where p.deployment_id = w.deployment_id
    and p.service_id = w.service_id and p.name = 'source')) as commit, coalesce(n.spec #>> '{git_repository,url}', n.spec #>> '{source,docker,git_repository,url}') as repository,
  n.spec ->> 'icon_uri' as icon, w.error, ${detailColumns}`

const serviceTables = `deployment_service w join deployment d on d.id = w.deployment_id
  left join release r on r.id = w.release_id left join node n on n.id = w.service_id`

const readOfService = (
  db: Queryable,
  serviceId: string,
  { pageSize, offset, startId }: ReturnType<typeof paging>,
): Promise<ServiceRow[]> =>
  db.query<ServiceRow>(
    `select ${serviceColumns} from ${serviceTables} where w.service_id = $1 and ${begun('d')}
       and ($4::uuid is null or (w.created_at, w.deployment_id) < (select s.created_at, s.deployment_id
         from deployment_service s where s.service_id = $1 and s.deployment_id = $4))
     order by w.created_at desc, w.deployment_id desc limit $2 offset $3`,
    [serviceId, pageSize, offset, startId],
  )

export const readOfDeployments = (db: Queryable, ids: readonly string[]): Promise<ServiceRow[]> =>
  db.query<ServiceRow>(
    `select ${serviceColumns} from ${serviceTables} where w.deployment_id = any($1)
     order by w.stage, w.created_at, w.service_id`,
    [ids],
  )

const pageOf = (repository: string | null, id: string): { commit_page_url?: string } =>
  repository?.startsWith('https://') === true
    ? { commit_page_url: `${repository.replace(/(\.git)?\/?$/, '')}/commit/${id}` }
    : {}

export const commitOf = ({ commit, repository }: ServiceRow) => {
  if (commit === null) return null
  const { git_commit_id: id, created_at, message, author_name, tag } = commit
  return { git_commit_id: id, created_at, message, author_name, tag: tag ?? '', ...pageOf(repository, id) }
}

/** ISO 8601. */
export const duration = (total: number): string => `PT${total}S`

export const serviceEntry = (row: ServiceRow) => ({
  identifier: {
    name: row.name,
    service_id: row.serviceId,
    service_type: typeOf(row.kind),
    execution_id: row.executionId,
  },
  status: row.state,
  auditing_data: {
    created_at: row.createdAt,
    updated_at: row.updatedAt,
    triggered_by: row.triggeredBy,
    origin: row.origin,
  },
  details: detailsOf(row, commitOf(row)),
  status_details: { action: publicAction(row.action), status: actionStatusOf(row.state), sub_action: row.subAction },
  icon_uri: row.icon ?? `app://slipway/${row.kind}`,
  total_duration: duration(row.seconds),
  ...(row.error === null ? {} : { error: row.error }),
})

const oldStatus: Record<string, string> = { SUCCESS: 'SUCCESS', ERROR: 'FAILED', CANCELED: 'FAILED' }

/** The older form for applications has only success and failure; a running deployment has no status there. */
const outcomeOf = (row: ServiceRow): { status?: string } => {
  const status = oldStatus[actionStatusOf(row.state)]
  return status === undefined ? {} : { status }
}

const oldServiceEntry = (row: ServiceRow) => ({
  id: row.deploymentId,
  created_at: row.createdAt,
  updated_at: row.updatedAt,
  name: row.name,
  commit: commitOf(row),
  ...(kinds[row.kind].old?.outcome === true ? outcomeOf(row) : { status: row.state }),
  ...imageDetails(row),
  ...oldSchedule(row),
})

const commonOf = (self: Self) => ({
  ...reading,
  tag: `${self.noun} Deployment History`,
  ...onService(self),
  query: Paging,
})

const rowsFor = (context: Context): Promise<ServiceRow[]> => readOfService(context.db, context.node.id, paging(context))

const OldEntry = Type.Object(
  {
    id: Uuid(),
    created_at: Timestamp(),
    updated_at: Timestamp(),
    name: Text(),
    commit: Nullable(Commit),
    image_name: Maybe(Text()),
    tag: Maybe(Text()),
    arguments: Maybe(Type.Array(Text())),
    entrypoint: Maybe(Text()),
    schedule: Maybe(
      Type.Object({ event: OneOf(['ON_START', 'ON_STOP', 'ON_DELETE', 'CRON']), schedule_at: Nullable(Text()) }),
    ),
    status: Maybe(OneOf(['FAILED', 'SUCCESS', ...states])),
  },
  { title: 'DeploymentHistory' },
)

export const newHistory: Facet = (self) => [
  operation({
    ...commonOf(self),
    id: `list${self.noun}DeploymentHistoryV2`,
    path: `${itemOf(self)}/deploymentHistoryV2`,
    summary: `List deployments of ${self.nounWithArticle}, newest first`,
    answer: Page(ServiceEntry),
    run: async (context) => answerPage(context, (await rowsFor(context)).map(serviceEntry)),
  }),
]

/** Both histories of one kind of service. */
export const history: Facet = (self) => [
  operation({
    ...commonOf(self),
    id: `list${self.noun}DeploymentHistory`,
    path: `${itemOf(self)}/deploymentHistory`,
    summary: `List deployments of ${self.nounWithArticle}, newest first (older form)`,
    query: OldPaging,
    answer: Page(OldEntry),
    run: async (context) => answerPage(context, (await rowsFor(context)).map(oldServiceEntry)),
  }),
  ...newHistory(self),
]
