/** Cases of deployment rules. */
import type { Cases } from './case.ts'

const schedule = {
  timezone: 'Europe/Paris',
  start_time: '2026-01-01T08:00:00Z',
  stop_time: '2026-01-01T19:00:00Z',
  weekdays: ['MONDAY', 'FRIDAY'],
}

export const ruleBody = (name: string, clusterId: string, more: object = {}): Record<string, unknown> => ({
  name,
  mode: 'STAGING',
  cluster_id: clusterId,
  wildcard: 'review-*',
  ...schedule,
  ...more,
})

export const deploymentRuleCases: Cases = {
  makers: {
    async deploymentRuleId(values, { api, post, count, need }) {
      if (values.environmentId !== undefined)
        return (await api.call('GET', `/environment/${values.environmentId}/deploymentRule`)).body.id
      const project = await need(values, 'projectId')
      return (await post(`/project/${project}/deploymentRule`, ruleBody(`rule ${count}`, api.clusterId))).id
    },
  },
  cases: {
    createDeploymentRule: { body: (_, { api, count }) => ruleBody(`made ${count}`, api.clusterId) },
    editProjectDeployemtnRule: { body: () => ({ wildcard: '*' }) },
    updateDeploymentRulesPriorityOrder: {
      before: (values, { need }) => need(values, 'deploymentRuleId'),
      body: ({ deploymentRuleId }) => ({ project_deployment_rule_ids_in_order: [deploymentRuleId] }),
    },
    editEnvironmentDeploymentRule: { body: () => schedule },
  },
}
