/** Cases of actions on a whole environment, and of the statuses of environments in organizations and projects. */
import { newId } from '../../src/lib/ids.ts'
import type { Cases } from './case.ts'
import { deployed } from './core.ts'

export const environmentCases: Cases = {
  cases: {
    getEnvironmentLifecycleTemplate: {
      before: async (values) => Object.assign(values, { lifecycleTemplateId: newId() }),
      refused: 404,
    },
    uninstallEnvironment: { before: deployed, scopes: [] },
    exportEnvironmentConfigurationIntoTerraform: { scopes: ['Read', 'Write'] },
    uninstallSelectedServices: {
      before: deployed,
      body: ({ applicationId }) => ({ application_ids: [applicationId] }),
      scopes: [],
    },
  },
}
