/** Whether a git host tells this server of pushes to a service's repository: it does not, and this says so. */
import Type from 'typebox'
import { nodeInPath, type Operation, operation } from '../../api/operations/operation.ts'
import { List, OneOf, Text } from '../../api/operations/schema.ts'
import { badRequest } from '../../lib/errors.ts'
import { repositorySql } from '../service/git-head.ts'
import { gitProviders } from '../service/git-source.ts'
import type { Service } from '../service/service.ts'

/** The provider of the service's repository, wherever its kind has it. */
const providerSql = (services: readonly Service[]): string => {
  const places = services.flatMap(({ definition: { git } }) => (git === undefined ? [] : [repositorySql(git)]))
  return `coalesce(${[...new Set(places)].map((place) => `${place} ->> 'provider'`).join(', ')})`
}

export const gitWebhookStatus = (services: readonly Service[]): Operation =>
  operation({
    id: 'getServiceGitWebhookStatus',
    method: 'GET',
    path: '/service/{serviceId}/gitWebhookStatus',
    tag: 'Service Main Calls',
    summary:
      'Read whether the git host tells this server of pushes: always NOT_CONFIGURED, because this server registers no webhooks at git hosts',
    scope: 'Read',
    area: 'projects',
    owner: nodeInPath('service', 'serviceId'),
    status: 200,
    answer: Type.Object({
      status: OneOf(['ACTIVE', 'NOT_CONFIGURED', 'MISCONFIGURED', 'UNABLE_TO_VERIFY']),
      provider: OneOf(gitProviders),
      missing_events: List(Text()),
    }),
    async run({ db, node }) {
      const [row] = await db.query<{ provider: string | null }>(
        `select ${providerSql(services)} as provider from node n where n.id = $1`,
        [node.id],
      )
      if (row?.provider == null) throw badRequest('This service is not built from a git repository.')
      return { status: 'NOT_CONFIGURED', provider: row.provider, missing_events: [] }
    },
  })
