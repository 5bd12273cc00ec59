/** Kinds that this server records but cannot run: a deployment is refused with what it would need. */
import type { DeployableKind } from '../../deployments/deployments.ts'

/** `sentence` is the message to the caller. */
export const undeployable = (sentence: string): Pick<DeployableKind, 'refusal' | 'source' | 'workload'> => {
  const never = (): never => {
    throw new Error(`deployment of an unsupported kind requested: ${sentence}`)
  }
  return { refusal: () => sentence, source: never, workload: never }
}
