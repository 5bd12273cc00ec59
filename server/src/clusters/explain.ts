/** Explains to a user why a cluster does not answer, whatever its kind. */
import { explainEngine, isRefusedLogin } from '../lib/docker/engine-errors.ts'
import { isRefusedAccess, KubernetesError } from '../lib/kubernetes/kubernetes-errors.ts'

/** One plain sentence. */
export const explainCluster = (error: unknown): string =>
  error instanceof KubernetesError ? error.message : explainEngine(error)

/** Whether it was reached, but refused the login or is not the same cluster as before. */
export const isRefusedByCluster = (error: unknown): boolean =>
  error instanceof KubernetesError ? isRefusedAccess(error) : isRefusedLogin(error)
