/** What to tell a user of a cluster that does not answer, whatever it is. */
import { explainEngine, isRefusedLogin } from '../lib/docker/engine-errors.ts'
import { isRefusedAccess, KubernetesError } from '../lib/kubernetes/kubernetes-errors.ts'

/** One plain sentence. */
export const explainCluster = (error: unknown): string =>
  error instanceof KubernetesError ? error.message : explainEngine(error)

/** Whether it was reached and did not let us in, or is not the one it was. */
export const isRefusedByCluster = (error: unknown): boolean =>
  error instanceof KubernetesError ? isRefusedAccess(error) : isRefusedLogin(error)
