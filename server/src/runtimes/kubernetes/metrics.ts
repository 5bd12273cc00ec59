/** The cluster's own metrics, from metrics-server if it has one. */
import { KubernetesError } from '../../lib/kubernetes/kubernetes-errors.ts'

export const metricsPath = '/apis/metrics.k8s.io/v1beta1'

/** For `catch`: null if there are no metrics, or not yet. */
export const orNoMetrics = (error: unknown): null => {
  if (error instanceof KubernetesError && [403, 404, 503].includes(error.status)) return null
  throw error
}
