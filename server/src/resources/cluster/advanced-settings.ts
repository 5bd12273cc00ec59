/** Advanced settings of clusters: what is set is stored with the cluster, everything else has its default. */
import Type from 'typebox'
import { actingIn } from '../../api/operations/effects.ts'
import { type Operation, operation, ownOrganization } from '../../api/operations/operation.ts'
import { settingsBody, settingsEditor } from '../../facets/settings/advanced-settings.ts'
import { readInner } from '../../facets/settings/inner-configuration.ts'
import { defaultsOf } from '../../facets/settings/settings.ts'
import { moduleOf } from './managed/requests.ts'
import { noteUnread } from './managed/unread.ts'
import { clusterInOrganization, engineOf, readCluster } from './rows.ts'
import { clusterSettings } from './settings.ts'

const path = '/organization/{organizationId}/cluster/{clusterId}/advancedSettings'
const defaults = defaultsOf(clusterSettings)
const edit = settingsEditor(clusterSettings, defaults)
const answer = Type.Object(clusterSettings, { title: 'ClusterAdvancedSettings' })
const common = { tag: 'Clusters', answer }

export const clusterAdvancedSettingsOperations: Operation[] = [
  operation({
    ...common,
    id: 'getDefaultClusterAdvancedSettings',
    method: 'GET',
    path: '/defaultClusterAdvancedSettings',
    summary: 'Read the default advanced settings of a cluster',
    scope: 'Read',
    area: 'resources',
    owner: ownOrganization,
    status: 200,
    run: async () => defaults,
  }),
  operation({
    ...common,
    id: 'getClusterAdvancedSettings',
    method: 'GET',
    path,
    summary: 'Read all advanced settings of a cluster, including those at their defaults',
    scope: 'Read',
    area: 'clusters',
    cluster: 'VIEWER',
    owner: clusterInOrganization,
    status: 200,
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
      noteUnread(context, module, schema, '/advanced_settings')
      if (module === null && (await engineOf(context, context.db)) !== 'kubernetes')
        for (const { path: unused } of actingIn('kubernetes', schema, context.body)) context.onlyRecorded(unused)
      return edit(context)
    },
  }),
]
