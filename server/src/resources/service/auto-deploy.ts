/**
 * A CI system reports that an image has a new tag: every service of the kind that uses the image with auto_deploy gets
 * the tag and is deployed with it. A stopped service stays stopped and later starts with the new tag.
 */
import Type from 'typebox'
import { type Context, type Operation, operation, organizationInPath } from '../../api/operations/operation.ts'
import { auditOf } from '../../api/operations/resource.ts'
import type { ServiceStatus } from '../../deployments/deployments.ts'
import { leavingSql } from '../../deployments/status/service-state.ts'
import { openStates } from '../../deployments/status/states.ts'
import { ImageTag, request } from '../../facets/deployment-request.ts'
import type { Facet } from '../../facets/facet.ts'
import { Status } from '../../facets/status-schema.ts'
import { auditTargetOf, type Kind } from '../../kinds.ts'
import type { Queryable } from '../../store/database.ts'
import { type Node, writeAudit } from '../../store/tree.ts'
import { ImageName } from './image-source.ts'

interface Follower {
  id: string
  name: string
  stopped: boolean
  environmentId: string
  environmentName: string
  projectId: string
}

/** The path of the image in a configuration: `['source', 'image']`. */
type ImagePath = readonly string[]

const at = (path: ImagePath, field: string): string => `'{${[...path, field].join(',')}}'`

/**
 * Services that follow an image and have another tag of it; those being deleted are skipped. Environments are locked
 * before their services, as everywhere.
 */
const followersSql = (kind: Kind, path: ImagePath): string =>
  `select n.id, n.name, s.action = 'STOP' as stopped, e.id as "environmentId", e.name as "environmentName",
     e.parent_id as "projectId"
   from node n join service_state s on s.service_id = n.id join node e on e.id = n.parent_id
   where n.organization_id = $1 and n.kind = '${kind}' and n.spec ->> 'auto_deploy' = 'true'
     and n.spec #>> ${at(path, 'image_name')} = $2 and n.spec #>> ${at(path, 'tag')} <> $3
     and s.action <> 'DELETE' and not ${leavingSql} and not exists (select from deployment d where d.environment_id = e.id
       and d.whole_environment and d.action = 'DELETE' and d.state in ${openStates})
   order by e.id, n.created_at, n.id for no key update of e, n`

const retagSql = (path: ImagePath): string =>
  `update node set spec = jsonb_set(spec, ${at(path, 'tag')}, to_jsonb($2::text)), version = version + 1,
     updated_by = $3, updated_at = clock_timestamp() where id = any($1)`

const environmentOf = (context: Context, { environmentId: id, environmentName: name, projectId }: Follower): Node => ({
  id,
  organizationId: context.principal.organizationId,
  kind: 'environment',
  parentId: projectId,
  grandparentId: null,
  name,
})

/** Sets the tag of the followers, each with its audit row. */
const retag = async (tx: Queryable, context: Context, sql: string, followers: readonly Follower[], target: string) => {
  const { organizationId, tokenId } = context.principal
  await tx.query(sql, [followers.map(({ id }) => id), context.body.tag, tokenId])
  for (const follower of followers) {
    const audit = auditOf(context, 'UPDATE', { target }, follower, { tag: context.body.tag })
    await writeAudit(tx, organizationId, follower, audit)
  }
}

const deployAll = async (tx: Queryable, context: Context, followers: readonly Follower[]): Promise<void> => {
  for (const [, together] of Map.groupBy(followers, ({ environmentId }) => environmentId)) {
    const environment = environmentOf(context, together[0]!)
    const services = together.map(({ id }) => ({ id, imageTag: String(context.body.tag) }))
    await request(tx, { ...context, node: environment }, { environmentId: environment.id, action: 'DEPLOY', services })
  }
}

const Answer = Type.Object(
  { ...Status.properties, results: Type.Array(Status) },
  {
    title: 'AutoDeployStatus',
    description:
      'Statuses of all services that are deployed now. The first is repeated at the top level; without one, the status there has the id 0 and is of no service.',
  },
)

/** Strict clients read the status of a service whether any follows the image or not. */
const ofNone: ServiceStatus = {
  id: '00000000-0000-0000-0000-000000000000',
  state: 'READY',
  service_deployment_status: 'NEVER_DEPLOYED',
  is_part_last_deployment: false,
  status_details: { action: 'UNKNOWN', status: 'NEVER', sub_action: 'NONE' },
  deployment_request_id: null,
  deployment_requests_count: 0,
  deployment_state: 'READY',
  running_state: 'STOPPED',
}

/** `POST /organization/{organizationId}/container/deploy` */
export const autoDeploy =
  (path: ImagePath): Facet =>
  (self): Operation[] => {
    const find = followersSql(self.kind, path)
    const change = retagSql(path)
    return [
      operation({
        id: `autoDeploy${self.noun}Environments`,
        method: 'POST',
        path: `/organization/{organizationId}/${self.path}/deploy`,
        tag: `${self.noun}s`,
        summary: `Deploy every service that follows an image, such as ${self.nounWithArticle} with auto_deploy, at its new tag`,
        scope: 'Deploy',
        area: 'resources',
        cluster: 'ENV_CREATOR',
        owner: organizationInPath,
        body: Type.Object({ image_name: ImageName(), tag: ImageTag() }),
        status: 202,
        answer: Answer,
        run: (context) =>
          context.transaction(async (tx) => {
            const { image_name: image, tag } = context.body
            const followers = await tx.query<Follower>(find, [context.principal.organizationId, image, tag])
            await retag(tx, context, change, followers, auditTargetOf(self.kind))
            const started = followers.filter(({ stopped }) => !stopped)
            await deployAll(tx, context, started)
            const ids = started.map(({ id }) => id)
            const results = await context.parts.deployments.statuses(tx, ids)
            return { ...(results[0] ?? ofNone), results }
          }),
      }),
    ]
  }
