/** Cases of deployment stages. */
import type { Cases } from './case.ts'

export const deploymentStageCases: Cases = {
  makers: {
    async deploymentStageId(values, scene) {
      const environment = await scene.need(values, 'environmentId')
      const path = `/environment/${environment}/deploymentStage`
      return (await scene.post(path, { name: `stage ${scene.count}` })).id
    },
    async stageId(values, scene) {
      const environment = await scene.need(values, 'environmentId')
      const path = `/environment/${environment}/deploymentStage`
      return (await scene.api.call('GET', path)).body.results[0].id
    },
  },
  cases: {
    CreateEnvironmentDeploymentStage: { body: (_, { count }) => ({ name: `made ${count}` }) },
    EditDeploymentStage: { body: () => ({ name: 'renamed', description: 'first of all' }) },
    AttachServiceToDeploymentStage: { body: () => ({ is_skipped: true }) },
  },
}
