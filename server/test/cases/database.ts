/** Cases of databases. */
import { newId } from '../../src/lib/ids.ts'
import type { Case, Cases } from './case.ts'

export const databaseBody = (name: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name,
  type: 'POSTGRESQL',
  version: '16',
  mode: 'CONTAINER',
  ...more,
})

const deployed: Case = {
  async before(values, scene) {
    await scene.post(`/database/${values.databaseId}/deploy`, {})
    await scene.settled(values.environmentId!)
  },
}

export const databaseCases: Cases = {
  makers: {
    async databaseId(values, { need, post }) {
      const environmentId = await need(values, 'environmentId')
      return (await post(`/environment/${environmentId}/database`, databaseBody(`database ${newId()}`))).id
    },
  },
  cases: {
    createDatabase: { body: (_, { count }) => databaseBody(`made ${count}`) },
    editDatabase: { body: () => ({ memory: 300 }) },
    redeployDatabase: deployed,
    rebootDatabase: deployed,
    uninstallDatabase: { ...deployed, scopes: [] },
    listDatabaseDeploymentHistory: deployed,
    listDatabaseDeploymentHistoryV2: deployed,
    listDatabaseLog: deployed,
    getDatabaseMasterCredentials: { scopes: ['Write'] },
  },
}
