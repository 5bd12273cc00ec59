/** Cases of helm services. */
import type { Case, Cases, Scene, Values } from './case.ts'

const git_repository = { url: 'https://github.com/example/charts.git', branch: 'main', root_path: '/shop' }

export const helmBody = (name: string) => ({ name, auto_deploy: false, source: { git_repository }, arguments: [] })

/** Something was asked of it, so that there may be something to remove. */
const stopped = async (values: Values, { post, settled }: Scene): Promise<void> => {
  await post(`/helm/${values.helmId}/stop`, {})
  await settled(values.environmentId!)
}

/** The local cluster has no Kubernetes. */
const refused: Case = { refused: 400 }

export const helmCases: Cases = {
  makers: {
    async helmId(values, scene) {
      const environment = await scene.need(values, 'environmentId')
      return (await scene.post(`/environment/${environment}/helm`, helmBody(`helm ${scene.count}`))).id
    },
  },
  cases: {
    createHelm: { body: (_, { count }) => helmBody(`made ${count}`) },
    editHelm: { body: () => ({ timeout_sec: 60 }) },
    createHelmDefaultValues: { body: () => ({ source: { git_repository } }), refused: 400 },
    checkHelmRepository: { body: () => ({ git_repository }), refused: 400 },
    listHelmReleases: {},
    rollbackHelm: { body: () => ({ release_id: null }), refused: 409, scopes: ['Deploy'] },
    deployHelm: refused,
    redeployHelm: refused,
    uninstallHelm: { before: stopped, scopes: [] },
    listHelmDeploymentHistory: { before: stopped },
    listHelmDeploymentHistoryV2: { before: stopped },
    getEnvironmentHelmStatus: { before: (values, { need }) => need(values, 'helmId') },
    listHelms: { before: (values, { need }) => need(values, 'helmId') },
  },
}
