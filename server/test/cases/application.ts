/** Cases of applications. */
import { applicationBody } from '../support/api.ts'
import type { Cases } from './case.ts'
import { deployed } from './core.ts'

export const applicationCases: Cases = {
  makers: {
    async applicationId(values, scene) {
      const environment = await scene.need(values, 'environmentId')
      return (await scene.post(`/environment/${environment}/application`, applicationBody(`app ${scene.count}`))).id
    },
    serviceId: (values, { need }) => need(values, 'applicationId'),
    service: (values, { need }) => need(values, 'applicationId'),
  },
  cases: {
    createApplication: { body: (_, { count }) => applicationBody(`made ${count}`) },
    editApplication: { body: () => ({ cpu: 600 }) },
    redeployApplication: { before: deployed },
    rebootApplication: { before: deployed },
    uninstallApplication: { before: deployed, scopes: [] },
    listApplicationDeploymentHistory: { before: deployed },
    listApplicationDeploymentHistoryV2: { before: deployed },
    listApplicationLog: { before: deployed },
    getApplicationStatus: { before: deployed },
    getApplication: { before: deployed },
    // Its repository is elsewhere; server/test/source-archive.test.ts has the rest.
    deployApplicationSource: { scopes: ['Write'], refused: 409 },
    handleServiceLogs: { query: ({ service }) => ({ service: service! }), refused: 400 },
  },
}
