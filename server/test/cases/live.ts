/** Cases of the websocket API: over plain HTTP each of its paths asks for an upgrade. */
import type { Case, Cases } from './case.ts'

const upgrade = (param: string): Case => ({ query: (values) => ({ [param]: values[param]! }), refused: 400 })

export const liveCases: Cases = {
  makers: {
    project: (values, { need }) => need(values, 'projectId'),
    environment: (values, { need }) => need(values, 'environmentId'),
    cluster: (values, { need }) => need(values, 'clusterId'),
  },
  cases: {
    streamOrganizationChanges: { refused: 400 },
    handleDeploymentStatus: upgrade('project'),
    handleServiceStatus: upgrade('project'),
    handleServiceListPods: upgrade('service'),
    handleDeploymentLogs: upgrade('environment'),
    handleServiceMetrics: upgrade('service'),
    handleClusterStatus: upgrade('cluster'),
    handleClusterMetrics: upgrade('cluster'),
  },
}
