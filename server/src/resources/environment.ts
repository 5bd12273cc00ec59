/** Environments: they are tied to a cluster for life and own services. Deleting one is the engine's work. */
import Type from 'typebox'
import type { Context, Operation } from '../api/operation.ts'
import { type Change, resource, type Spec } from '../api/resource.ts'
import { Computed, Maybe, Name, Nullable, OneOf, Reference, Text, Timestamp, Uuid } from '../api/schema.ts'
import { deploymentLogOperations } from '../facets/deployment-log.ts'
import { deploymentStageOperations } from '../facets/deployment-stages.ts'
import { environmentActions } from '../facets/environment-actions.ts'
import { environmentHistories } from '../facets/environment-history.ts'
import { environmentStatusOperations } from '../facets/environment-status.ts'
import { environmentLinks } from '../facets/links.ts'
import { queueOperations } from '../facets/queue.ts'
import { invalidField } from '../lib/errors.ts'
import type { ListForm } from '../store/long-list.ts'

const modes = ['DEVELOPMENT', 'PREVIEW', 'PRODUCTION', 'STAGING']

/** Id of the default cluster of a project's organization. */
const defaultCluster = {
  text: `(select d.id::text from node d where d.organization_id = n.organization_id and d.kind = 'cluster'
    and (d.spec ->> 'is_default')::boolean order by d.created_at limit 1)`,
  joins: '',
}

/** Id of a cluster of the organization, null when it has no such cluster. */
const findCluster = async ({ db, principal }: Context, id: string): Promise<string | null> => {
  const [found] = await db.query<{ id: string }>(
    `select id from node where organization_id = $1 and kind = 'cluster' and id = $2`,
    [principal.organizationId, id],
  )
  return found?.id ?? null
}

/** The cluster that was named, under either of its names, or the default one, which was read with the project. */
const chooseCluster = async (spec: Spec, context: Context, change: Change): Promise<Spec> => {
  if (change.previous !== null) return spec
  const { cluster, cluster_id: id = cluster, ...rest } = spec as { cluster?: string; cluster_id?: string }
  const found = id === undefined ? (change.parent.record ?? null) : await findCluster(context, id)
  if (found === null)
    throw invalidField(
      '/cluster_id',
      id === undefined ? 'is required, for there is no default cluster' : 'not found in this organization',
    )
  return { ...rest, cluster_id: found }
}

/** What `columns` below makes in SQL, made of plain columns. */
const list: ListForm = {
  columns: `n.spec ->> 'mode' as mode, n.updated_by as "updatedBy", c.id as "clusterId", c.name as "clusterName",
    c.spec ->> 'cloud_provider' as provider`,
  joins: `join node c on c.id = (n.spec ->> 'cluster_id')::uuid`,
  quotes: 'cluster',
  write({ organizationId, parentId, mode, updatedBy, clusterId, clusterName, provider }) {
    const cluster = JSON.stringify(clusterName)
    const updater = updatedBy === null ? 'null' : `"${updatedBy}"`
    return `,"organization":{"id":"${organizationId}"},"project":{"id":"${parentId}"},"cloud_provider":{"provider":${JSON.stringify(provider)},"cluster":${cluster}},"mode":${JSON.stringify(mode)},"cluster_id":"${clusterId}","cluster_name":${cluster},"last_updated_by":${updater}`
  },
}

const environment = resource({
  kind: 'environment',
  parent: { kind: 'project', param: 'projectId' },
  tag: 'Environments',
  words: ['an environment', 'environments'],
  collection: '/project/{projectId}/environment',
  item: '/environment/{environmentId}',
  param: 'environmentId',
  ids: { list: 'listEnvironment', create: 'createEnvironment', read: 'getEnvironment', edit: 'editEnvironment' },
  spec: Type.Object({
    name: Name(),
    mode: Maybe(OneOf(modes, { default: 'DEVELOPMENT' })),
    cluster_id: Maybe(Uuid()),
    cluster: Maybe(Uuid()),
  }),
  notEditable: ['cluster', 'cluster_id'],
  record: {
    organization: Computed(Reference()),
    project: Computed(Reference()),
    cloud_provider: Computed(Type.Object({ provider: Text(), cluster: Text() })),
    mode: OneOf(modes),
    cluster_id: Uuid(),
    cluster_name: Maybe(Text()),
    last_updated_by: Nullable(Uuid()),
    expires_at: Maybe(Nullable(Timestamp())),
  },
  wholeSpec: false,
  list,
  parentRecord: defaultCluster,
  joins: list.joins,
  columns: {
    organization: `'{"id":"' || n.organization_id || '"}'`,
    project: `'{"id":"' || n.parent_id || '"}'`,
    cloud_provider: `'{"provider":' || (c.spec -> 'cloud_provider') || ',"cluster":' || to_json(c.name) || '}'`,
    mode: `(n.spec -> 'mode')`,
    cluster_id: `(n.spec -> 'cluster_id')`,
    cluster_name: 'to_json(c.name)',
    last_updated_by: `coalesce(to_json(n.updated_by)::text, 'null')`,
  },
  validate: chooseCluster,
  audit: { target: 'ENVIRONMENT' },
})

export const environmentOperations: Operation[] = [
  ...environment.operations,
  ...environmentActions,
  ...environmentStatusOperations,
  ...environmentHistories,
  ...queueOperations,
  ...deploymentLogOperations,
  ...deploymentStageOperations,
  environmentLinks,
]
