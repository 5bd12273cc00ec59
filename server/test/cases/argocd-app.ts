/** Cases of Argo CD apps. */
import type { Case, Cases, Scene, Values } from './case.ts'

/** Something was asked of it, so that there may be something to remove. */
const uninstallable = (values: Values, { api }: Scene): Promise<unknown> =>
  api.database.query(`update service_state set state = 'DEPLOYED' where service_id = $1`, [values.argocdAppId])

/** Its Argo CD is on a Kubernetes cluster. */
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
    uninstallArgoCdApp: { before: uninstallable, scopes: [] },
    listArgoCdApps: { before: (values, { need }) => need(values, 'argocdAppId') },
  },
}
