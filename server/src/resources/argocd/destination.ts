/**
 * Which of our clusters an Argo CD means by an address that it deploys to. Stored below the cluster in which it runs;
 * the list shows the destinations that were last found for each Argo CD, linked to a cluster or not.
 */
import Type from 'typebox'
import {
  type Context,
  type Fields,
  type Operation,
  operation,
  organizationInPath,
  reading,
  removing,
} from '../../api/operations/operation.ts'
import { auditOf, checkRefs } from '../../api/operations/resource.ts'
import { List, OneOf, Ref, Results, Text, Timestamp, Uuid, Whole } from '../../api/operations/schema.ts'
import { invalidField, notFound } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { writeAudit } from '../../store/tree.ts'
import { kubernetesKinds, vendors } from '../cluster/schema.ts'
import type { Destination } from './server.ts'

const kind = 'argocd_destination'
const path = '/organization/{organizationId}/argoCdDestinationClusterMapping'
const Url = () => Text(1024, { minLength: 1 })

const Request = Type.Object({
  agent_cluster_id: Ref('cluster'),
  argocd_cluster_url: Url(),
  cluster_id: Ref('cluster'),
})

const Named = Type.Object({ agentClusterId: Uuid(), argocdClusterUrl: Url() })

const place = { argocd_cluster_url: Text(1024), argocd_cluster_name: Text(1024), applications_count: Whole(0) }
const Instance = Type.Object({
  agent_cluster_id: Uuid(),
  agent_cluster_name: Text(),
  agent_cluster_cloud_provider: OneOf(vendors),
  credentials_id: Uuid(),
  argocd_url: Text(1024),
  status: OneOf(['connected', 'error']),
  last_checked_at: Timestamp(),
  linked_clusters: List(
    Type.Object({
      ...place,
      qovery_cluster_id: Uuid(),
      qovery_cluster_name: Text(),
      qovery_cluster_cloud_provider: OneOf(vendors),
      qovery_cluster_type: OneOf(kubernetesKinds),
    }),
    1000,
  ),
  unlinked_clusters: List(Type.Object(place), 1000),
})

interface Link {
  agentId: string
  url: string
  qovery_cluster_id: string
  qovery_cluster_name: string
  qovery_cluster_cloud_provider: string
  qovery_cluster_type: string
}

interface Agent {
  agent_cluster_id: string
  agent_cluster_name: string
  agent_cluster_cloud_provider: string
  credentials_id: string
  argocd_url: string
  status: string
  last_checked_at: string
  destinations: Destination[]
}

const agentsSql = `select c.id as agent_cluster_id, c.name as agent_cluster_name,
    c.spec ->> 'cloud_provider' as agent_cluster_cloud_provider, a.id as credentials_id,
    a.spec ->> 'argocd_url' as argocd_url, a.spec ->> 'status' as status,
    a.spec ->> 'last_checked_at' as last_checked_at, a.spec -> 'destinations' as destinations
  from node a join node c on c.id = a.parent_id
  where a.organization_id = $1 and a.kind = 'argocd_config' order by c.created_at, c.id`

// Deleting a cluster unlinks the addresses that pointed to it.
const linksSql = `select m.parent_id as "agentId", m.name as url, t.id as qovery_cluster_id, t.name as qovery_cluster_name,
    t.spec ->> 'cloud_provider' as qovery_cluster_cloud_provider, t.spec ->> 'kubernetes' as qovery_cluster_type
  from node m join node t on t.id = (m.spec ->> 'cluster_id')::uuid and t.kind = 'cluster'
  where m.organization_id = $1 and m.kind = '${kind}' order by m.created_at, m.id`

const placeOfUrl = (destinations: readonly Destination[], url: string) => {
  const found = destinations.find((each) => each.url === url)
  return {
    argocd_cluster_url: url,
    argocd_cluster_name: found?.name ?? url,
    applications_count: found?.applications ?? 0,
  }
}

const instanceOf = ({ destinations, ...agent }: Agent, links: readonly Link[]) => {
  const own = links.filter(({ agentId }) => agentId === agent.agent_cluster_id)
  const free = destinations.filter(({ url }) => !own.some((link) => link.url === url))
  return {
    ...agent,
    linked_clusters: own.map(({ agentId: _, url, ...cluster }) => ({ ...placeOfUrl(destinations, url), ...cluster })),
    unlinked_clusters: free.map(({ url }) => placeOfUrl(destinations, url)),
  }
}

const list = async ({ db, node }: Context) => {
  const [agents, links] = await Promise.all([
    db.query<Agent>(agentsSql, [node.id]),
    db.query<Link>(linksSql, [node.id]),
  ])
  return { results: agents.map((agent) => instanceOf(agent, links)) }
}

const upsert = `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec, updated_by)
  values ($1, $2, '${kind}', $3, '${kind}', $4, jsonb_build_object('cluster_id', $5::text), $6)
  on conflict (parent_id, name_scope, lower(name)) do update set name = excluded.name, spec = excluded.spec,
    updated_by = excluded.updated_by, version = node.version + 1, updated_at = clock_timestamp()`

const audit = (tx: Queryable, context: Context, eventType: 'UPDATE' | 'DELETE', clusterId: string, change: unknown) => {
  const target = { target: 'CLUSTER', subTarget: 'ARGOCD_CLUSTER_MAPPING' }
  const row = auditOf(context, eventType, target, { projectId: null, environmentId: null }, change)
  return writeAudit(tx, context.principal.organizationId, { id: clusterId, name: null }, row)
}

const save = async (context: Context<Type.Static<typeof Request>>) => {
  const { db, body, principal } = context
  await checkRefs(db, Request, body, principal.organizationId)
  const [agentId, clusterId] = [body.agent_cluster_id.toLowerCase(), body.cluster_id.toLowerCase()]
  const url = body.argocd_cluster_url
  return context.transaction(async (tx) => {
    const configs = await tx.query(`select 1 from node where parent_id = $1 and kind = 'argocd_config' for share`, [
      agentId,
    ])
    if (configs.length === 0) throw invalidField('/agent_cluster_id', 'this cluster has no Argo CD configuration')
    await tx.query(upsert, [newId(), principal.organizationId, agentId, url, clusterId, principal.tokenId])
    await audit(tx, context, 'UPDATE', agentId, body)
    return { agent_cluster_id: agentId, argocd_cluster_url: url, cluster_id: clusterId }
  })
}

const remove = (context: Context<Fields, Type.Static<typeof Named>>) =>
  context.transaction(async (tx) => {
    const { agentClusterId, argocdClusterUrl } = context.query
    const rows = await tx.query(
      `delete from node where organization_id = $1 and kind = '${kind}' and parent_id = $2 and lower(name) = lower($3)
       returning id`,
      [context.node.id, agentClusterId, argocdClusterUrl],
    )
    if (rows.length === 0) throw notFound()
    await audit(tx, context, 'DELETE', agentClusterId, { argocd_cluster_url: argocdClusterUrl })
  })

const common = { path, tag: 'ArgoCD', owner: organizationInPath }

export const argocdDestinationOperations: Operation[] = [
  operation({
    ...common,
    id: 'listArgoCdDestinationClusterMappings',
    ...reading,
    summary: 'List the Argo CDs of an organization and the clusters they deploy to',
    area: 'resources',
    answer: Results(Instance),
    run: list,
  }),
  operation({
    ...common,
    id: 'saveArgoCdDestinationClusterMapping',
    method: 'POST',
    summary: 'Link an address that an Argo CD deploys to with a cluster',
    scope: 'Write',
    area: 'resources',
    body: Request,
    status: 200,
    answer: Request,
    run: save,
  }),
  operation({
    ...common,
    id: 'deleteArgoCdDestinationClusterMapping',
    ...removing,
    summary: 'Unlink an address that an Argo CD deploys to from its cluster',
    area: 'resources',
    query: Named,
    run: remove,
  }),
]
