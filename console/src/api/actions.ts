/** The actions on services and environments. Each can be planned first: then nothing happens. */
import { answerOf, client, Problem, pathLike, type Schemas } from './client.ts'
import type { Kind } from './queries.ts'

export type Plan = Schemas['DeploymentPlan']
export type Verb = 'deploy' | 'redeploy' | 'restart-service' | 'stop' | 'rollback' | 'uninstall' | 'delete'

/** One of several services of an environment. */
export interface Member {
  id: string
  name: string
  kind: Kind
}

export interface Action {
  verb: Verb
  /** An environment without `kind`. */
  target: { id: string; name: string; kind?: Kind | undefined; environmentId: string; several?: readonly Member[] }
  /** Target of a rollback: the release of a service, or the execution of an environment. */
  to?: string | undefined
}

const bodyOf = ({ verb, target, to }: Action): object | undefined => {
  if (verb !== 'rollback' || to === undefined) return undefined
  return target.kind === undefined ? { execution_id: to } : { release_id: to }
}

const withInstances: readonly Kind[] = ['application', 'container', 'database']
const ofThisServer: readonly Kind[] = [...withInstances, 'job', 'helm', 'terraform']

/** The actions on several services at once, and the kinds that they apply to. */
export const verbsOfSeveral: Partial<Record<Verb, readonly Kind[]>> = {
  deploy: ofThisServer,
  'restart-service': withInstances,
  stop: ofThisServer,
  delete: ofThisServer,
}

const bodyOfSeveral = (verb: Verb, members: readonly Member[]): object => {
  const of = (kind: Kind): string[] => members.filter((each) => each.kind === kind).map(({ id }) => id)
  const kinds = (verbsOfSeveral[verb] ?? []).filter((kind) => of(kind).length > 0)
  if (verb !== 'deploy') return Object.fromEntries(kinds.map((kind) => [`${kind}_ids`, of(kind)]))
  const one = (kind: Kind) => (id: string) =>
    kind === 'application' ? { application_id: id } : kind === 'database' ? id : { id }
  return Object.fromEntries(kinds.map((kind) => [`${kind}s`, of(kind).map(one(kind))]))
}

/** Kinds and verbs differ only in the path, so the types of one of them are used for all. */
const send = (action: Action, dryRun: boolean) => {
  const { verb, target } = action
  if (target.several !== undefined) {
    const path = pathLike('/environment/{environmentId}/service/deploy', 'deploy', verb)
    const body = bodyOfSeveral(verb, target.several)
    const query = dryRun ? { dry_run: true } : {}
    return client.POST(path, { params: { path: { environmentId: target.environmentId }, query }, body } as never)
  }
  const noun = target.kind ?? 'environment'
  const init = { params: { path: { environmentId: target.id }, query: dryRun ? { dry_run: true } : {} } }
  if (verb === 'delete') {
    const path = pathLike('/environment/{environmentId}', 'environment', noun)
    return client.DELETE(path, init as never)
  }
  const path = pathLike(pathLike('/environment/{environmentId}/deploy', 'environment', noun), 'deploy', verb)
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

/** True if the problem is that there is no version to roll back to. */
export const isNothingToDo = (error: unknown): boolean => error instanceof Problem && error.status === 409
