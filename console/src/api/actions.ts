/** What can be done to services and environments. Each can be planned first: then nothing happens. */
import { answerOf, client, Problem, type Schemas } from './client.ts'
import type { Kind } from './queries.ts'

export type Plan = Schemas['DeploymentPlan']
export type Verb = 'deploy' | 'redeploy' | 'restart-service' | 'stop' | 'rollback' | 'uninstall' | 'delete'

export interface Action {
  verb: Verb
  /** An environment without `kind`. */
  target: { id: string; name: string; kind?: Kind | undefined; environmentId: string }
  /** Of a rollback: the release of a service, or the execution of an environment. */
  to?: string | undefined
}

const bodyOf = ({ verb, target, to }: Action): object | undefined => {
  if (verb !== 'rollback' || to === undefined) return undefined
  return target.kind === undefined ? { execution_id: to } : { release_id: to }
}

/** Only the words of the path differ between kinds and verbs: the types are those of one of them. */
const send = (action: Action, dryRun: boolean) => {
  const { verb, target } = action
  const noun = target.kind ?? 'environment'
  const init = { params: { path: { environmentId: target.id }, query: dryRun ? { dry_run: true } : {} } }
  if (verb === 'delete') {
    const path = `/${noun}/{environmentId}` as '/environment/{environmentId}'
    return client.DELETE(path, init as never)
  }
  const path = `/${noun}/{environmentId}/${verb}` as '/environment/{environmentId}/deploy'
  const body = bodyOf(action)
  return client.POST(path, { ...init, ...(body === undefined ? {} : { body }) } as never)
}

export const planOf = async (action: Action): Promise<Plan> => (await answerOf(send(action, true) as never)) as Plan

export const run = async (action: Action): Promise<void> => {
  await answerOf(send(action, false) as never)
}

export const cancel = async (environmentId: string): Promise<void> => {
  await answerOf(
    client.POST('/environment/{environmentId}/cancelDeployment', { params: { path: { environmentId } }, body: {} }),
  )
}

/** Whether a problem says that there is nothing to go back to. */
export const isNothingToDo = (error: unknown): boolean => error instanceof Problem && error.status === 409
