/** Why an action cannot be done with a service, told before it is begun; a plan tells the same. Pure. */
import { type ApiError, badRequest, conflict } from '../lib/errors.ts'
import { type DeployableKind, type DeploymentAction, needsOwnTool, type ServiceRequest } from './deployments.ts'
import { taskFor, tasksIn } from './tasks.ts'

export interface Candidate {
  name: string
  spec: Record<string, unknown>
  /** It has a current release. */
  released: boolean
  /** A deployment that deletes it waits or runs. */
  leaving: boolean
}

/** What its kind cannot do; null when nothing is against it. */
export const kindRefusal = (
  action: DeploymentAction,
  kind: Pick<DeployableKind, 'workload' | 'tasks'>,
  { name, spec }: Candidate,
  { forceEvent, task }: Partial<ServiceRequest>,
): ApiError | null => {
  const { tasks, isAlone } = tasksIn(kind, spec)
  if (action === 'RESTART' && isAlone)
    return badRequest(`The service ${name} has no instances to restart: deploy it to run it again.`)
  if (forceEvent !== undefined && taskFor(tasks, forceEvent, task) === null)
    return badRequest(`The service ${name} does nothing at this event.`, undefined, 'event_missing')
  return null
}

/** Why a service of this kind cannot be deployed on this server, whatever state it is in; null when it can. */
export const deployRefusal = async (
  kind: Pick<DeployableKind, 'refusal' | 'source'>,
  missingTool: (name: string) => Promise<string | null>,
  spec: Record<string, unknown>,
  { forceEvent, releaseId }: Partial<ServiceRequest>,
): Promise<string | null> => {
  const refusal = kind.refusal?.(spec) ?? null
  // What is freed runs nothing, and an older release has its image.
  if (refusal !== null || forceEvent === 'UNLOCK' || releaseId !== undefined) return refusal
  const source = kind.source(spec)
  return source.from === 'git' && needsOwnTool(source) ? missingTool(source.tool.name) : null
}

/** What its present state does not allow; null when nothing is against it. */
export const stateRefusal = (
  action: DeploymentAction,
  { name, released, leaving }: Pick<Candidate, 'name' | 'released' | 'leaving'>,
): ApiError | null => {
  if (leaving) return conflict('deletion_in_progress', `The service ${name} is being deleted.`)
  if (action === 'RESTART' && !released)
    return conflict('not_deployed', `The service ${name} is not deployed, so it cannot be restarted.`)
  return null
}
