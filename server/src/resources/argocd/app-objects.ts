/** The existing objects of an Argo CD app, and the services that a cluster's Argo CD has. */
import Type from 'typebox'
import { nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { List, Maybe, Nullable, OneOf, Results, Text, Uuid } from '../../api/operations/schema.ts'
import { readRef } from '../../clusters/refs.ts'
import { typeOf } from '../../kinds.ts'
import { DeploymentError, notFound, unavailable } from '../../lib/errors.ts'
import { answerFrom } from '../answer-from.ts'
import { clusterInPath } from '../cluster/rows.ts'

const kind = 'argocd_app'
const readMs = 10_000
const longest = 64 * 1024

const Resource = Type.Object({
  kind: Text(),
  name: Text(),
  namespace: Text(),
  targetState: Text(longest, { description: 'JSON of what was applied; empty where it cannot be read.' }),
  liveState: Text(longest, { description: 'JSON of what there is; empty where there is nothing.' }),
})

const Manifest = Type.Object({
  manifest_revision: Nullable(Text()),
  manifest_metadata: Type.Object({ managed_resources: Maybe(List(Resource, 1000)) }),
})

const Service = Type.Object({
  project_id: Uuid(),
  project_name: Text(),
  environment_id: Uuid(),
  environment_name: Text(),
  service_id: Uuid(),
  service_name: Text(),
  service_type: OneOf([typeOf(kind)]),
})

const servicesSql = `select '{"results":' || coalesce(json_agg(json_build_object(
    'project_id', p.id, 'project_name', p.name, 'environment_id', e.id, 'environment_name', e.name,
    'service_id', n.id, 'service_name', n.name, 'service_type', '${typeOf(kind)}') order by n.created_at, n.id)::text, '[]')
    || '}' as text
  from service_state s join node n on n.id = s.service_id join node e on e.id = n.parent_id join node p on p.id = e.parent_id
  where s.cluster_id = $1 and s.organization_id = $2 and s.kind = '${kind}'`

export const argocdObjectOperations: Operation[] = [
  operation({
    id: 'getArgoCdAppManifest',
    ...reading,
    path: '/argocdApp/{argocdAppId}/manifest',
    tag: 'ArgoCD',
    summary: 'Read what an Argo CD app has made in its environment, as it was applied and as it is now',
    area: 'projects',
    reads: 'sensitive',
    owner: nodeInPath(kind, 'argocdAppId'),
    answer: Manifest,
    async run({ db, node, parts }) {
      const ref = await readRef(db, node.id)
      if (ref === null) throw notFound()
      const { runtime } = await parts.clusters.of(ref.clusterId, db)
      const found = await runtime.readApp?.(ref, AbortSignal.timeout(readMs)).catch((error: unknown) => {
        const isAway = error instanceof DeploymentError || (error as Error).name === 'TimeoutError'
        throw isAway ? unavailable('cluster_unavailable', 'The cluster does not answer: try again.', 5, error) : error
      })
      const resources = (found?.objects ?? []).map(({ target: targetState, live: liveState, ...each }) => ({
        ...each,
        targetState,
        liveState,
      }))
      return { manifest_revision: found?.commit ?? null, manifest_metadata: { managed_resources: resources } }
    },
  }),
  operation({
    id: 'getArgoCdAssociatedServices',
    ...reading,
    path: '/cluster/{clusterId}/argocdApps/associatedServices',
    tag: 'ArgoCD',
    summary: 'List the Argo CD apps in the environments of a cluster',
    area: 'clusters',
    cluster: 'VIEWER',
    owner: clusterInPath,
    answer: Results(Service),
    run: ({ db, node, principal }) => answerFrom(db, servicesSql, [node.id, principal.organizationId]),
  }),
]
