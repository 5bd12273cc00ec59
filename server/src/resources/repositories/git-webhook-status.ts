/** Whether pushes to a service's repository are noticed, how, and what became of the last one. */
import Type from 'typebox'
import { nodeInPath, type Operation, operation } from '../../api/operations/operation.ts'
import { List, Nullable, OneOf, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { internalUrl } from '../../builds/git/names.ts'
import { badRequest } from '../../lib/errors.ts'
import { timestampSql } from '../../store/tree.ts'
import { repositorySql } from '../service/git-head.ts'
import { gitProviders } from '../service/git-source.ts'
import type { Service } from '../service/service.ts'

/** The repository of a service, wherever its kind has it. */
const repositoryOf = (services: readonly Service[]): string => {
  const places = services.flatMap(({ definition: { git } }) => (git === undefined ? [] : [repositorySql(git)]))
  return `coalesce(${[...new Set(places)].map((place) => `nullif(${place}, 'null')`).join(', ')})`
}

const outcomes = ['DEPLOYED', 'SKIPPED', 'REFUSED', 'WAITING']

const LastPush = Type.Object(
  {
    commit_id: Text(64),
    at: Timestamp(),
    outcome: OneOf(outcomes),
    reason: Nullable(Text(500)),
    deployment_request_id: Nullable(Uuid()),
  },
  { title: 'LastPush' },
)

interface Row {
  provider: string | null
  isInternal: boolean
  isHeard: boolean | null
  webhooks: number
  lastPush: Type.Static<typeof LastPush> | null
  nextLookAt: string | null
  lookError: string | null
}

// Told of a push within the days in which the poll counts on being told.
const rowSql = (
  repository: string,
): string => `select ${repository} ->> 'provider' as provider, ${repository} ->> 'url' = '${internalUrl}' as "isInternal",
    w.heard_at > clock_timestamp() - interval '7 days' as "isHeard", coalesce(f.judged, o.judged) as "lastPush", w.error ->> 'message' as "lookError",
    case when w.next_at between clock_timestamp() - interval '1 year' and clock_timestamp() + interval '1 year'
      then ${timestampSql('w.next_at')} end as "nextLookAt",
    (select count(*)::int from node h where h.organization_id = n.organization_id and h.kind = 'git_webhook'
      and (h.spec ->> 'git_token_id' is null or h.spec ->> 'git_token_id' = ${repository} ->> 'git_token_id')) as webhooks
  from node n left join followed_branch f on f.service_id = n.id left join watched_repository w on w.id = f.repository_id
    left join git_repository o on o.id = n.id
  where n.id = $1`

/** Without asking the host: a webhook of ours that was never called may be missing there, or nobody has pushed. */
const statusOf = ({ isHeard, isInternal, webhooks }: Row): string => {
  if (isHeard === true || isInternal) return 'ACTIVE'
  return webhooks > 0 ? 'UNABLE_TO_VERIFY' : 'NOT_CONFIGURED'
}

export const gitWebhookStatus = (services: readonly Service[]): Operation => {
  const sql = rowSql(repositoryOf(services))
  return operation({
    id: 'getServiceGitWebhookStatus',
    method: 'GET',
    path: '/service/{serviceId}/gitWebhookStatus',
    tag: 'Service Main Calls',
    summary:
      'Read whether the git host tells this server of pushes to the repository of a service (ACTIVE: it did in the last seven days), and what became of the last push',
    scope: 'Read',
    area: 'projects',
    owner: nodeInPath('service', 'serviceId'),
    status: 200,
    answer: Type.Object({
      status: OneOf(['ACTIVE', 'NOT_CONFIGURED', 'MISCONFIGURED', 'UNABLE_TO_VERIFY']),
      provider: OneOf(gitProviders),
      missing_events: List(Text()),
      last_push: Nullable(LastPush),
      next_look_at: Nullable(Timestamp(), {
        description: 'When the repository is asked for new commits at the latest.',
      }),
      look_error: Nullable(Text(500, { description: 'Why the repository could not be asked the last time.' })),
    }),
    async run({ db, node }) {
      const [row] = await db.query<Row>(sql, [node.id])
      if (row?.provider == null) throw badRequest('This service is not built from a git repository.')
      const { provider, lastPush, nextLookAt, lookError } = row
      return {
        status: statusOf(row),
        provider,
        missing_events: [],
        last_push: lastPush,
        next_look_at: nextLookAt,
        look_error: lookError,
      }
    },
  })
}
