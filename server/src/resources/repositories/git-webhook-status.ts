/**
 * Whether pushes to a service's repository are noticed, how, and the result of the last one; and the webhook's sync.
 */
import Type from 'typebox'
import { gitWebhookPath } from '../../api/git-webhooks.ts'
import { isSelective } from '../../api/operations/access.ts'
import { type Context, nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { List, Nullable, OneOf, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { internalUrl } from '../../builds/git/names.ts'
import { type GitHost, GitHostError, openGitHost } from '../../deployments/git-hosts/git-host.ts'
import { badRequest, DeploymentError, forbidden } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { timestampSql } from '../../store/tree.ts'
import { repositorySql } from '../service/git-head.ts'
import { gitProviders } from '../service/git-source.ts'
import type { Service } from '../service/service.ts'
import { ensureGitWebhook } from './git-webhook.ts'

/** The path of a service's repository in its kind's configuration. */
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

// `isHeard`: a delivery arrived within the days in which polling relies on webhooks.
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

/** Without asking the host: a webhook of ours that was never called may be missing there, or nothing was pushed. */
const statusOf = ({ isHeard, isInternal, webhooks }: Row): string => {
  if (isHeard === true || isInternal) return 'ACTIVE'
  return webhooks > 0 ? 'UNABLE_TO_VERIFY' : 'NOT_CONFIGURED'
}

const GitWebhookStatus = Type.Object({
  status: OneOf(['ACTIVE', 'NOT_CONFIGURED', 'MISCONFIGURED', 'UNABLE_TO_VERIFY']),
  provider: OneOf(gitProviders),
  missing_events: List(Text()),
  last_push: Nullable(LastPush),
  next_look_at: Nullable(Timestamp(), {
    description: 'When the repository is polled for new commits at the latest.',
  }),
  look_error: Nullable(Text(500, { description: 'Why the repository could not be asked the last time.' })),
})

const notBuilt = () => badRequest('This service is not built from a git repository.')

const readStatus = async (db: Queryable, sql: string, id: string) => {
  const [row] = await db.query<Row>(sql, [id])
  if (row?.provider == null) throw notBuilt()
  const { provider, lastPush, nextLookAt, lookError } = row
  return {
    status: statusOf(row),
    provider,
    missing_events: [],
    last_push: lastPush,
    next_look_at: nextLookAt,
    look_error: lookError,
  }
}

const common = { tag: 'Service Main Calls', area: 'projects', owner: nodeInPath('service', 'serviceId') } as const

const readOne = (sql: string): Operation =>
  operation({
    ...common,
    id: 'getServiceGitWebhookStatus',
    ...reading,
    path: '/service/{serviceId}/gitWebhookStatus',
    summary:
      'Read whether the git host notifies this server of pushes to the repository of a service (ACTIVE: it did in the last seven days), and the result of the last push',
    answer: GitWebhookStatus,
    run: ({ db, node }) => readStatus(db, sql, node.id),
  })

const patienceMs = 30_000

interface Place {
  url: string | null
  gitTokenId: string | null
}

const noAddress =
  'No webhook can be set up: the operator must set SLIPWAY_PUBLIC_URL to the address at which git hosts reach this server.'
const noToken =
  'The git host is asked with the git token of the repository, and this service has none: set git_token_id, or enter a webhook at the host by hand.'
const noHost =
  'The repository is not at the git host of its git token (git_api_url), so no webhook can be set up: add one at the host by hand.'

/** The host refuses, or does not answer: the caller gets the reason. */
const askHost = async (
  context: Context,
  place: { url: string; gitTokenId: string },
  hook: (host: GitHost) => Promise<void>,
) => {
  const { parts, principal } = context
  try {
    const host = await openGitHost(parts, principal.organizationId, place.url, place.gitTokenId)
    if (host === null) throw badRequest(noHost, undefined, 'git_host_unknown')
    await hook(host)
  } catch (error) {
    if (error instanceof GitHostError)
      throw badRequest(error.message, undefined, error.code === 'unreachable' ? 'git_unreachable' : 'git_denied')
    if (error instanceof DeploymentError) throw badRequest(error.message, undefined, error.code)
    throw error
  }
}

const sync = (sql: string, repository: string): Operation =>
  operation({
    ...common,
    id: 'syncServiceGitWebhook',
    method: 'POST',
    path: '/service/{serviceId}/gitWebhook/sync',
    summary:
      "Set up a webhook for pushes and pull requests at the git host of a service's repository, or correct the existing one, with the repository's git token",
    scope: 'Write',
    status: 200,
    answer: GitWebhookStatus,
    async run(context) {
      const { db, node, parts, principal } = context
      // The token and the webhook belong to the organization: a role for some projects is not enough.
      if (isSelective(principal)) throw forbidden('This needs a role that may use the git tokens of the organization.')
      const [place] = await db.query<Place>(
        `select ${repository} ->> 'url' as url, ${repository} ->> 'git_token_id' as "gitTokenId" from node n where n.id = $1`,
        [node.id],
      )
      if (place?.url == null) throw notBuilt()
      const { url, gitTokenId } = place
      const { publicUrl } = parts.settings
      if (publicUrl === undefined) throw badRequest(noAddress, undefined, 'public_url_missing')
      if (gitTokenId === null) throw badRequest(noToken, undefined, 'git_token_missing')
      await askHost(context, { url, gitTokenId }, async (host) => {
        const { id, secret } = await ensureGitWebhook(context, gitTokenId)
        await host.hook(`${publicUrl}${gitWebhookPath}/${id}`, secret, AbortSignal.timeout(patienceMs))
      })
      return readStatus(db, sql, node.id)
    },
  })

export const gitWebhookStatus = (services: readonly Service[]): Operation[] => {
  const repository = repositoryOf(services)
  const sql = rowSql(repository)
  return [readOne(sql), sync(sql, repository)]
}
