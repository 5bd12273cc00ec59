/** Kinds that this server keeps and answers, but cannot run: a deployment is refused with what it would need. */
import type { DeployableKind } from '../deployments/deployments.ts'

/** `sentence` is what the caller reads. */
export const undeployable = (sentence: string): Pick<DeployableKind, 'refusal' | 'source' | 'workload'> => {
  const never = (): never => {
    throw new Error(`asked to deploy what cannot be: ${sentence}`)
  }
  return { refusal: () => sentence, source: never, workload: never }
}
