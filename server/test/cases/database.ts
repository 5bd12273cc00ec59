/** Cases of databases. */
import { newId } from '../../src/lib/ids.ts'
import { until } from '../support/until.ts'
import type { Case, Cases, Scene, Values } from './case.ts'

export const databaseBody = (name: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name,
  type: 'POSTGRESQL',
  version: '16',
  mode: 'CONTAINER',
  ...more,
})

/** The record of a path, once it is in this state. */
const reached = (scene: Scene, path: string, state: string): Promise<unknown> =>
  until(async () => (await scene.api.call('GET', path)).body.state === state, { what: `${path} to be ${state}` })

/** A verified backup of a database that runs. */
const backedUp = async (values: Values, scene: Scene): Promise<string> => {
  const databaseId = await scene.need(values, 'databaseId')
  await scene.post(`/database/${databaseId}/deploy`, {})
  await scene.settled(values.environmentId!)
  const { id } = await scene.post(`/database/${databaseId}/backup`, { name: 'made', message: '' })
  await reached(scene, `/database/${databaseId}/backup/${id}`, 'VERIFIED')
  return id
}

const restored = async (values: Values, scene: Scene): Promise<string> => {
  const backupId = await backedUp(values, scene)
  const { id } = await scene.post(`/database/${values.databaseId}/restore`, { backup_id: backupId, confirm: true })
  await reached(scene, `/database/${values.databaseId}/restore/${id}`, 'SUCCEEDED')
  return id
}

const deployed: Case = {
  async before(values, scene) {
    await scene.post(`/database/${values.databaseId}/deploy`, {})
    await scene.settled(values.environmentId!)
  },
}

export const databaseCases: Cases = {
  makers: {
    backupId: backedUp,
    restoreId: restored,
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
    addBackupDatabase: { ...deployed, body: () => ({ name: 'made', message: 'by hand' }) },
    downloadDatabaseBackup: { scopes: ['Write'] },
    listDatabaseRestore: { before: restored },
    editDatabaseBackupSchedule: { body: () => ({ scheduled_at: '0 3 * * *' }) },
    restoreDatabase: {
      async before(values, scene) {
        values.backupId = await backedUp(values, scene)
      },
      body: ({ backupId }) => ({ backup_id: backupId }),
    },
  },
}
