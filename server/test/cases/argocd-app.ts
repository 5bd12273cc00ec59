/** Cases of Argo CD apps. */
import type { Case, Cases, Scene, Values } from './case.ts'

/** Something was asked of it, so that there may be something to remove. */
const stopped = async (values: Values, { post, settled }: Scene): Promise<void> => {
  await post(`/argocdApp/${values.argocdAppId}/stop`, {})
  await settled(values.environmentId!)
}

/** The local cluster has no Argo CD. */
const refused: Case = { refused: 400 }

export const argocdAppCases: Cases = {
  makers: {
    async argocdAppId(values, scene) {
      const environment = await scene.need(values, 'environmentId')
      return (await scene.post(`/environment/${environment}/argocdApp`, { name: `app of argo ${scene.count}` })).id
    },
  },
  cases: {
    createArgoCdApp: { body: (_, { count }) => ({ name: `made ${count}`, namespace: 'shop' }) },
    editArgoCdApp: { body: () => ({ namespace: 'other' }) },
    deployArgoCdApp: refused,
    redeployArgoCdApp: refused,
    uninstallArgoCdApp: { before: stopped, scopes: [] },
    listArgoCdAppReleases: {},
    rollbackArgoCdApp: { body: () => ({ release_id: null }), refused: 409, scopes: ['Deploy'] },
    listArgoCdAppDeploymentHistory: { before: stopped },
    listArgoCdAppDeploymentHistoryV2: { before: stopped },
    getEnvironmentArgoCdAppStatus: { before: (values, { need }) => need(values, 'argocdAppId') },
    getArgoCdAssociatedServices: { before: (values, { need }) => need(values, 'argocdAppId') },
    listArgoCdApps: { before: (values, { need }) => need(values, 'argocdAppId') },
  },
}
