/**
 * Clusters: where environments run. The local Docker engine is the default one; a cluster whose credentials name
 * another engine is that engine. One whose credentials have a kubeconfig is that Kubernetes cluster. One at a cloud
 * provider is made by this server, with the module that the operator configured for the provider (managed/). Others
 * are only recorded: they are READY, never DEPLOYED, and refuse deployments.
 */
import Type from 'typebox'
import { actingIn } from '../../api/operations/effects.ts'
import { type Context, type Operation, operation, ownOrganization, reading } from '../../api/operations/operation.ts'
import { type Along, type Change, resource, type Spec } from '../../api/operations/resource.ts'
import { Maybe, OneOf } from '../../api/operations/schema.ts'
import { capacitySql } from '../../clusters/capacity.ts'
import { isLocal, isReachedSql } from '../../clusters/local.ts'
import { SkipReconcile } from '../../facets/deployment-request.ts'
import { settingsBody, settingsEditor } from '../../facets/settings/advanced-settings.ts'
import { readInner } from '../../facets/settings/inner-configuration.ts'
import { defaultsOf } from '../../facets/settings/settings.ts'
import { badRequest, conflict, invalidField } from '../../lib/errors.ts'
import { isLocalSql } from '../../store/cluster-rows.ts'
import type { Queryable } from '../../store/database.ts'
import { accessesOfN, writeAccesses } from '../secret-manager/access.ts'
import { refuseUsedAccesses, secretManagerUserOperations } from '../secret-manager/users.ts'
import { clusterAccessOperations } from './access.ts'
import { clusterDnsOperations } from './dns.ts'
import { refuseUnused, withEngine } from './engine.ts'
import { readFeatures, viewClusterFeature } from './features.ts'
import { clusterLockOperations } from './lock.ts'
import { markSql } from './managed/document.ts'
import { askDelete, moduleOf } from './managed/requests.ts'
import { managedSql } from './managed/rows.ts'
import { noteUnreadFields } from './managed/unread-fields.ts'
import { clusterOrphanOperations } from './orphans.ts'
import { clusterProviderOperations, completeInfo, infoSql } from './provider.ts'
import { clusterRoutingOperations } from './routing.ts'
import { clusterInOrganization, engineOf, readCluster, refuseLocked } from './rows.ts'
import { clusterRecord, clusterSpec } from './schema.ts'
import { clusterSettings } from './settings.ts'
import { clusterStatusOperations } from './status.ts'
import { clusterStreamOperations } from './streams.ts'

const path = '/organization/{organizationId}/cluster/{clusterId}/advancedSettings'
const defaults = defaultsOf(clusterSettings)
const edit = settingsEditor(clusterSettings, defaults)
const answer = Type.Object(clusterSettings, { title: 'ClusterAdvancedSettings' })
const common = { tag: 'Clusters', answer }

/** Advanced settings of clusters: settings are stored with the cluster, unset ones have their defaults. */
const clusterAdvancedSettingsOperations: Operation[] = [
  operation({
    ...common,
    id: 'getDefaultClusterAdvancedSettings',
    ...reading,
    path: '/defaultClusterAdvancedSettings',
    summary: 'Read the default advanced settings of a cluster',
    area: 'resources',
    owner: ownOrganization,
    run: async () => defaults,
  }),
  operation({
    ...common,
    id: 'getClusterAdvancedSettings',
    ...reading,
    path,
    summary: 'Read all advanced settings of a cluster, including those at their defaults',
    area: 'clusters',
    cluster: 'VIEWER',
    owner: clusterInOrganization,
    run: async ({ db, node }) => ({ ...defaults, ...(await readInner<object>(db, node.id, 'advanced_settings', {})) }),
  }),
  operation({
    ...common,
    id: 'editClusterAdvancedSettings',
    method: 'PUT',
    path,
    summary: 'Replace the advanced settings of a cluster; omitted keys get their defaults',
    scope: 'Write',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    body: settingsBody(clusterSettings),
    refusesMarked: true,
    status: 201,
    async run(context) {
      const spec = await readCluster(context, context.db)
      const [module, schema] = [moduleOf(context, spec), Type.Object(clusterSettings)]
      noteUnreadFields(context, module, schema, '/advanced_settings')
      if (module === null && (await engineOf(context, context.db)) !== 'kubernetes')
        for (const { path: unused } of actingIn('kubernetes', schema, context.body)) context.onlyRecorded(unused)
      return edit(context)
    },
  }),
]

/** The row that the first start stores for the engine of this machine. */
export const localClusterSpec: Spec = {
  description: 'The Docker engine of this machine',
  region: 'on-premise',
  cloud_provider: 'ON_PREMISE',
  kubernetes: 'SELF_MANAGED',
  min_running_nodes: 1,
  max_running_nodes: 1,
  disk_size: 40,
  production: false,
  is_demo: false,
  is_default: true,
  ssh_keys: [],
  features: [],
}

const validate = async (spec: Spec, context: Context, { previous }: Change): Promise<Spec> => {
  if (Number(spec.min_running_nodes ?? 1) > Number(spec.max_running_nodes ?? 1))
    throw invalidField('/min_running_nodes', 'must not be more than max_running_nodes')
  const info = await completeInfo(context.db, context.principal, spec, previous?.spec ?? null)
  await refuseUnused(context, { ...spec, cloud_provider_credentials: info })
  noteUnreadFields(context, moduleOf(context, spec), clusterSpec)
  const features = readFeatures((spec.features ?? []) as Spec[])
  return { ...spec, features, ...(info === undefined ? {} : { cloud_provider_credentials: info }) }
}

/** Fields that other operations store with a cluster. */
const inner = ['advanced_settings', 'lock', 'routes', 'dns_provider']

const view = ({ capacity, ...kept }: Spec): Spec => {
  const shown = Object.entries(kept).filter(([name, value]) => !inner.includes(name) && value !== null)
  const isKnown = isLocal(kept) || capacity !== null
  const here = isKnown ? { ...(capacity as object | null), estimated_cloud_provider_cost: 0 } : {}
  const features = ((kept.features ?? []) as Spec[]).map((one) => viewClusterFeature(kept.cloud_provider, one))
  return { ...Object.fromEntries(shown), ...here, features }
}

const usedSql = `select exists (select 1 from node e where e.kind = 'environment' and e.spec ->> 'cluster_id' = $1::text) as used`

const refuseNeeded = async (tx: Queryable, context: Context): Promise<'gone' | undefined> => {
  await tx.query('select 1 from node where id = $1 for update', [context.node.id])
  const { deleteMode, skipReconcile } = context.query
  if (skipReconcile === true && deleteMode === onlyConfiguration)
    throw badRequest(`skipReconcile: must not be true with the deleteMode ${onlyConfiguration}`)
  const spec = await readCluster(context, tx)
  const [row] = await tx.query<{ used: boolean }>(usedSql, [context.node.id])
  if (row?.used === true) throw conflict('cluster_in_use', 'This cluster still has an environment: delete it first.')
  if (isLocal(spec)) throw conflict('default_cluster', 'The default cluster of this machine cannot be deleted.')
  refuseLocked(spec, context.parts.clock.now())
  await refuseUsedAccesses(tx, context.node.id, [])
  // A cluster that exists at its provider is destroyed there first; its row is deleted afterwards.
  return (await askDelete(tx, context, deleteMode === onlyConfiguration)) ? 'gone' : undefined
}

const isReached = isReachedSql('n')

const inTurn =
  (...alongs: (Along | undefined)[]): Along =>
  async (tx, record) => {
    let shown = record
    for (const along of alongs) shown = (await along?.(tx, shown)) ?? shown
    return shown
  }

const onlyConfiguration = 'DELETE_QOVERY_CONFIG'
const removeQuery = Type.Object({
  deleteMode: Maybe(
    OneOf(['DEFAULT', 'DELETE_CLUSTER_AND_QOVERY_CONFIG', onlyConfiguration], {
      default: 'DEFAULT',
      description:
        'A cluster that this server has made at a cloud provider is destroyed there and then deleted, which continues after the answer; with DELETE_QOVERY_CONFIG it is kept there, and is no longer managed. Other clusters have only their configuration.',
    }),
  ),
  ...SkipReconcile.properties,
})

const cluster = resource({
  kind: 'cluster',
  area: 'clusters',
  parent: { kind: 'organization', param: 'organizationId' },
  tag: 'Clusters',
  words: ['a cluster', 'clusters'],
  collection: '/organization/{organizationId}/cluster',
  item: '/organization/{organizationId}/cluster/{clusterId}',
  param: 'clusterId',
  ids: {
    list: 'listOrganizationCluster',
    create: 'createCluster',
    read: 'getOrganizationCluster',
    edit: 'editCluster',
    remove: 'deleteCluster',
  },
  spec: clusterSpec,
  fixed: { cloud_provider: 'cloud_provider', kubernetes: 'kubernetes', region: 'region', is_demo: 'is_demo' },
  record: clusterRecord,
  columns: {
    organization: `json_build_object('id', n.organization_id)`,
    status: `coalesce(${managedSql('status', 'n')}, case when ${isReached} then 'DEPLOYED' else 'READY' end)`,
    deployment_status: `case when ${managedSql('applied', 'n')} <> ${markSql('n')} then 'OUT_OF_DATE'
      when ${isReached} then 'UP_TO_DATE' else 'NEVER_DEPLOYED' end`,
    version: '(select u.version from cluster_engine u where u.cluster_id = n.id)',
    has_access: 'true',
    is_default: isLocalSql('n'),
    capacity: capacitySql('n'),
    is_demo: `coalesce((n.spec ->> 'is_demo')::boolean, false)`,
    cloud_provider_credentials: infoSql,
    secret_manager_accesses: accessesOfN,
  },
  view,
  validate,
  around: (context, write) =>
    withEngine(context, (its, claimed) => writeAccesses(its, (inner, along) => write(inner, inTurn(along, claimed)))),
  removeQuery,
  onDelete: refuseNeeded,
  audit: { target: 'CLUSTER' },
})

export const clusterOperations: Operation[] = [
  ...cluster.operations,
  ...clusterStatusOperations,
  ...clusterStreamOperations,
  ...clusterRoutingOperations,
  ...clusterProviderOperations,
  ...clusterAccessOperations,
  ...clusterAdvancedSettingsOperations,
  ...clusterLockOperations,
  ...clusterOrphanOperations,
  ...clusterDnsOperations,
  ...secretManagerUserOperations,
]
