/** Cases of organizations, tokens, clusters, projects and environments. */
import type { Case, Cases, Scene, Values } from './case.ts'

/** Deploys the application of the values and waits for its end. */
export const deployed = async (values: Values, scene: Scene): Promise<void> => {
  await scene.need(values, 'applicationId')
  const { deployment_request_id } = await scene.post(`/application/${values.applicationId}/deploy`, {})
  values.deploymentRequestId = deployment_request_id
  await scene.settled(values.environmentId!)
}

/** Case of an action that runs until it is canceled. */
export const deploying: Case = {
  async before(values, scene) {
    await scene.need(values, 'applicationId')
    scene.api.source.image = 'fake/never-ready'
    const { deployment_request_id } = await scene.post(`/application/${values.applicationId}/deploy`, {})
    values.deploymentRequestId = deployment_request_id
  },
  async after(values, scene) {
    scene.api.source.image = 'fake/serve'
    await scene.api.call('POST', `/environment/${values.environmentId}/cancelDeployment`)
    await scene.settled(values.environmentId!)
  },
}

const withApplication = async (values: Values, scene: Scene): Promise<unknown> => scene.need(values, 'applicationId')
const chosen: Case = { before: withApplication, body: ({ applicationId }) => ({ application_ids: [applicationId] }) }

export const coreCases: Cases = {
  makers: {
    organizationId: async (_, { api }) => api.organizationId,
    clusterId: async (_, { api }) => api.clusterId,
    async projectId(_, { api, post, count }) {
      return (await post(`/organization/${api.organizationId}/project`, { name: `project ${count}` })).id
    },
    async environmentId(values, scene) {
      const project = await scene.need(values, 'projectId')
      return (await scene.post(`/project/${project}/environment`, { name: `env ${scene.count}` })).id
    },
    apiTokenId: async (_, { api, post, count }) =>
      (await post(`/organization/${api.organizationId}/apiToken`, { name: `api ${count}` })).id,
    gitTokenId: async (_, { api, post, count }) =>
      (await post(`/organization/${api.organizationId}/gitToken`, { name: `git ${count}`, type: 'GITHUB', token: 'x' }))
        .id,
  },
  cases: {
    cleanUpOrganization: { scopes: [] },
    editOrganization: { body: () => ({ description: 'ours' }) },
    createOrganizationApiToken: { body: (_, { count }) => ({ name: `made ${count}`, scopes: ['Read'] }) },
    createGitToken: { body: (_, { count }) => ({ name: `made ${count}`, type: 'GITLAB', token: 'x' }) },
    editGitToken: { body: () => ({ description: 'changed' }) },
    createProject: { body: (_, { count }) => ({ name: `made ${count}` }) },
    editProject: { body: () => ({ description: 'changed' }) },
    createEnvironment: { body: (_, { count }) => ({ name: `made ${count}`, mode: 'STAGING' }) },
    editEnvironment: { body: () => ({ mode: 'PRODUCTION' }) },
    redeployEnvironment: { before: deployed },
    cancelEnvironmentDeployment: deploying,
    cancelDeploymentRequest: deploying,
    getDeploymentStatusByDeploymentRequestId: {
      before: deployed,
      query: ({ deploymentRequestId }) => ({ deploymentRequestId: deploymentRequestId! }),
    },
    deployAllServices: {
      before: withApplication,
      body: ({ applicationId }) => ({ applications: [{ application_id: applicationId }] }),
    },
    rebootServices: { before: deployed, body: ({ applicationId }) => ({ application_ids: [applicationId] }) },
    stopSelectedServices: chosen,
    deleteSelectedServices: chosen,
    getEnvironmentStatuses: { before: deployed },
    getEnvironmentStatusesWithStages: { before: deployed },
    listEnvironmentDeploymentHistory: { before: deployed },
    listEnvironmentDeploymentHistoryV2: { before: deployed },
    listDeploymentRequestByServiceId: deploying,
    listDeploymentRequestByEnvironmentId: deploying,
    listEnvironmentLogs: { before: deployed },
    listEnvironmentLog: { before: deployed },
  },
}
