/** The order of a deployment. Pure. */
import type { DeploymentAction } from './deployments.ts'

/** Services by stage, in the order they are worked on: up the stages to deploy, down to stop and delete. */
export const inStages = <T extends { stage: number }>(action: DeploymentAction, services: readonly T[]): T[][] => {
  const stages = new Map<number, T[]>()
  for (const service of services) stages.set(service.stage, [...(stages.get(service.stage) ?? []), service])
  const ascending = [...stages].sort(([a], [b]) => a - b).map(([, members]) => members)
  return action === 'STOP' || action === 'DELETE' ? ascending.reverse() : ascending
}
