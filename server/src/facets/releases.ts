/** The releases of a service and rolling back to one: its image, configuration and variables run again. */
import Type from 'typebox'
import { type Operation, operation, reading } from '../api/operations/operation.ts'
import { Flag, Maybe, Nullable, Text, Timestamp, Uuid } from '../api/operations/schema.ts'
import { wasSuccessfulSql } from '../deployments/release/rollback.ts'
import type { Queryable } from '../store/database.ts'
import { timestampSql } from '../store/tree.ts'
import { act } from './deployable.ts'
import { type Facet, itemOf, onService, type Self } from './facet.ts'
import { answerPage, Commit, Page, Paging, paging } from './history.ts'
import { planned } from './plan-schema.ts'
import { AcceptedStatus } from './status-schema.ts'

const Release = Type.Object(
  {
    id: Uuid(),
    created_at: Timestamp(),
    execution_id: Nullable(Text()),
    deployment_request_id: Uuid(),
    image: Text(1024),
    image_name: Nullable(Text()),
    tag: Nullable(Text()),
    commit: Nullable(Commit),
    is_current: Flag(),
    was_successful: Flag(),
  },
  { title: 'Release' },
)

/** A commit may be stored without a tag. */
type ReleaseRow = Omit<Type.Static<typeof Release>, 'commit'> & {
  commit: (Omit<Type.Static<typeof Commit>, 'tag'> & { tag?: string }) | null
}

const readReleases = (db: Queryable, serviceId: string, limit: number, offset: number) =>
  db.query<ReleaseRow>(
    `select r.id, ${timestampSql('r.created_at')} as created_at,
       d.environment_id || '-' || d.execution_number as execution_id, r.deployment_id as deployment_request_id, r.image,
       r.source ->> 'name' as image_name, r.source ->> 'tag' as tag, r.commit,
       coalesce(r.id = s.current_release_id, false) as is_current, ${wasSuccessfulSql} as was_successful
     from release r join service_state s on s.service_id = r.service_id left join deployment d on d.id = r.deployment_id
     where r.service_id = $1 order by r.created_at desc, r.id desc limit $2 offset $3`,
    [serviceId, limit, offset],
  )

const listOf = (self: Self): Operation =>
  operation({
    id: `list${self.noun}Releases`,
    ...reading,
    path: `${itemOf(self)}/release`,
    tag: `${self.noun} Deployment History`,
    summary: `List the releases of ${self.nounWithArticle}, newest first`,
    ...onService(self),
    query: Paging,
    answer: Page(Release),
    async run(context) {
      const { pageSize, offset } = paging(context)
      const rows = await readReleases(context.db, context.node.id, pageSize, offset)
      const results = rows.map((row) => ({
        ...row,
        commit: row.commit && { ...row.commit, tag: row.commit.tag ?? '' },
      }))
      return answerPage(context, results)
    },
  })

const RollbackBody = Type.Object({ release_id: Maybe(Nullable(Uuid())) })

const rollbackOf = (self: Self): Operation =>
  operation({
    id: `rollback${self.noun}`,
    method: 'POST',
    path: `${itemOf(self)}/rollback`,
    tag: `${self.noun} Actions`,
    summary: `Roll ${self.nounWithArticle} back to an earlier release: the given one, else the one before the current`,
    scope: 'Deploy',
    ...onService(self),
    cluster: 'ENV_CREATOR',
    ...planned(),
    body: RollbackBody,
    bodyOptional: true,
    status: 202,
    answer: AcceptedStatus,
    async run(context) {
      const { db, node, parts, body } = context
      const releaseId = await parts.deployments.releaseFor(db, node.id, body.release_id?.toLowerCase())
      return act(context, 'DEPLOY', { id: node.id, releaseId })
    },
  })

export const releases: Facet = (self) => [listOf(self), rollbackOf(self)]
