/** Actions on a service that runs: deploy, redeploy, restart, stop, delete, and reading its status. */
import Type, { type TObject } from 'typebox'
import {
  type Context,
  nodeInPath,
  type Operation,
  OtherAnswer,
  type Owner,
  operation,
  reading,
  removing,
} from '../api/operations/operation.ts'
import { merge, Results } from '../api/operations/schema.ts'
import type { ApiSettings, Parts } from '../api/parts.ts'
import { isTypedClient } from '../api/typed-clients.ts'
import {
  type DeploymentAction,
  type ServiceRequest,
  type ServiceStatus,
  type StateRow,
  versionChoiceOf,
} from '../deployments/deployments.ts'
import { readStates } from '../deployments/status/status.ts'
import { isKind, type Kind, kinds, oldIdOf } from '../kinds.ts'
import { notFound } from '../lib/errors.ts'
import { isUuid } from '../lib/ids.ts'
import type { Queryable } from '../store/database.ts'
import { followShared, type Shared, type View } from '../streams/shared-read.ts'
import { eventSink, lastEventId } from '../streams/sink.ts'
import { MaybeCommitId, planFor, request, SkipReconcile, serviceToDeploy } from './deployment-request.ts'
import { type Facet, itemOf, onService, ownerOf, type Self } from './facet.ts'
import { isDryRun, planned } from './plan-schema.ts'
import { AcceptedStatus, Status, StatusOfEither } from './status-schema.ts'

const ofService = (
  { database, deployments, streams }: Parts,
  environmentId: string,
  id: string,
): Shared<ServiceStatus> => ({
  subscribe: (changed) => streams.changes.subscribe(environmentId, changed),
  read: async () => (await deployments.statuses(database, [id]))[0] ?? null,
})

/** `viewFor` returns the form in which the caller wants the status. */
const liveService = (self: Self, viewFor: (context: Context) => View<ServiceStatus>): Operation =>
  operation({
    id: `stream${self.noun}Status`,
    ...reading,
    path: `${itemOf(self)}/status/stream`,
    tag: `${self.noun} Main Calls`,
    summary: `Follow the status of ${self.nounWithArticle}, as server-sent events`,
    ...onService(self),
    produces: 'text/event-stream',
    async run(context) {
      const { parts, node } = context
      const view = viewFor(context)
      const sink = eventSink(context, 'the status of this service, now and on every change')
      followShared(parts, `service ${node.id}`, () => ofService(parts, node.parentId!, node.id), {
        sink,
        view,
        has: lastEventId(context),
      })
    },
  })

interface Removal {
  summary: string
  /** The query of a delete. */
  query: TObject
  /** The query of a delete and an uninstall. */
  endingQuery: TObject
  /** A delete that keeps the configuration is an uninstall. */
  keepsConfiguration(query: Context['query']): boolean
  /** Whether to skip the commands that the service runs when it ends. */
  skipsEnding(query: Context['query']): boolean
}

interface DeployableOptions {
  /** The content of the body of a deploy; default the commit. */
  deployBody?: TObject
  /** False if there is nothing to stop. */
  stops?: boolean
  deployQuery?: TObject
  /** Throws an `ApiError` for an invalid deploy; returns false if there is nothing to do. */
  mayDeploy?(context: Context): Promise<boolean>
  /** Only applications answer in the running vocabulary. */
  speaksRunning?: boolean
  /** What a delete does, for kinds whose delete has options. */
  removal?: Removal
  /** False if its status is read only with those of its environment. */
  status?: boolean
}

/** Whether this caller gets the exact state where others get the running vocabulary. */
const wantsDeploymentState = (setting: ApiSettings['statusVocabulary'], headers: Context['headers']): boolean => {
  if (setting !== 'auto') return setting === 'deployment'
  return headers['x-state-vocabulary'] === 'deployment' || isTypedClient(headers)
}

const failed = new Set(['BUILD_ERROR', 'DEPLOYMENT_ERROR', 'RESTART_ERROR'])

const runningWords = new Set(['RUNNING', 'STOPPED', 'ERROR', 'UNAVAILABLE'])

/**
 * RUNNING once deployed with instances that answer, ERROR if it failed, UNAVAILABLE while unknown; otherwise the exact
 * state.
 */
const runningWord = (status: ServiceStatus): string => {
  const { deployment_state: state, running_state: running } = status
  if (failed.has(state)) return 'ERROR'
  if (state !== 'DEPLOYED' && state !== 'RESTARTED') return state
  return runningWords.has(running) ? running : state
}

const readStatus = async (context: Context, db: Queryable): Promise<ServiceStatus> => {
  const [status] = await context.parts.deployments.statuses(db, [context.node.id])
  if (status === undefined) throw notFound()
  return status
}

const isDeployed = ({ service_deployment_status: status }: ServiceStatus): boolean => status !== 'NEVER_DEPLOYED'

/** Requests an action for one service and returns its new status, or the plan. */
export const act = async (context: Context, action: DeploymentAction, service: ServiceRequest) => {
  const actionRequest = { environmentId: context.node.parentId!, action, services: [service] }
  if (isDryRun(context)) return planFor(context, actionRequest)
  return context.transaction(async (tx) => {
    const accepted = await request(tx, context, actionRequest)
    if (action === 'DELETE') return undefined
    const status = await readStatus(context, tx)
    return {
      ...status,
      deployment_request_id: accepted.deploymentId,
      execution_id: accepted.executionId,
      status: 'QUEUED',
      ...(action === 'DEPLOY' ? { version_choice: versionChoiceOf(service, isDeployed(status)) } : {}),
      ...(isKind(context.node.kind) ? oldIdOf(context.node.kind, context.node.id) : {}),
      created_at: accepted.createdAt,
    }
  })
}

const DeployBody = Type.Object({ git_commit_id: MaybeCommitId() })

interface Known extends DeployableOptions {
  self: Self
  owner: Owner
}

const action = ({ self, owner }: Known, verb: string, word: string) => ({
  id: `${word}${self.noun}`,
  method: 'POST' as const,
  path: `${itemOf(self)}/${verb}`,
  tag: `${self.noun} Actions`,
  area: 'projects' as const,
  owner,
  status: 202 as const,
  answer: AcceptedStatus,
})

const deploys = { scope: 'Deploy' as const, cluster: 'ENV_CREATOR' as const }

const deployWith = async ({ mayDeploy }: Known, context: Context, more: Partial<ServiceRequest>) => {
  if ((await mayDeploy?.(context)) === false && !isDryRun(context)) return readStatus(context, context.db)
  const asked = serviceToDeploy(context.node.id, { ...context.body, ...context.query })
  return act(context, 'DEPLOY', { ...asked, ...more })
}

const deploysOf = (known: Known): Operation[] => [
  operation({
    ...action(known, 'deploy', 'deploy'),
    summary: `Deploy ${known.self.nounWithArticle}: the given version, else the newest that its configuration allows`,
    ...deploys,
    ...planned(known.deployQuery),
    body: known.deployBody ?? DeployBody,
    bodyOptional: true,
    run: (context) => deployWith(known, context, {}),
  }),
  operation({
    ...action(known, 'redeploy', 'redeploy'),
    summary: `Deploy ${known.self.nounWithArticle} again: the current configuration with the deployed version`,
    ...deploys,
    ...planned(known.deployQuery),
    run: (context) => deployWith(known, context, { redeploy: true }),
  }),
]

const stopOf = (known: Known): Operation =>
  operation({
    ...action(known, 'stop', 'stop'),
    ...deploys,
    ...planned(),
    summary: `Stop ${known.self.nounWithArticle}; its configuration and volumes are kept`,
    run: (context) => act(context, 'STOP', { id: context.node.id }),
  })

const restartOf = (known: Known): Operation =>
  operation({
    ...action(known, 'restart-service', 'reboot'),
    ...deploys,
    ...planned(),
    summary: `Restart the instances of ${known.self.nounWithArticle} without other changes`,
    run: (context) => act(context, 'RESTART', { id: context.node.id }),
  })

/** Whether the engine has anything of a service, or is about to. */
const mayRun = async ({ db, node }: Context): Promise<boolean> => {
  const rows = await db.query(
    `select 1 from service_state where service_id = $1 and (current_release_id is not null or state <> 'READY'
       or exists (select from task_state t where t.id = service_id))`,
    [node.id],
  )
  return rows.length > 0
}

const endedAs = ({ removal }: Known, { node, query }: Context): ServiceRequest => ({
  id: node.id,
  ...(removal?.skipsEnding(query) === true ? { skipEnding: true } : {}),
})

const uninstall = async (known: Known, context: Context) =>
  isDryRun(context) || (await mayRun(context)) ? act(context, 'UNINSTALL', endedAs(known, context)) : undefined

const uninstallOf = (known: Known): Operation =>
  operation({
    ...action(known, 'uninstall', 'uninstall'),
    summary: `Remove what ${known.self.nounWithArticle} has on its cluster, including volumes; its configuration is kept`,
    // It destroys data, so it requires the same rights as a delete.
    scope: 'Admin',
    ...planned(known.removal?.endingQuery),
    emptyStatus: 204,
    run: (context) => uninstall(known, context),
  })

const viewFor =
  ({ speaksRunning }: Known) =>
  (context: Context): View<ServiceStatus, ServiceStatus> => {
    if (speaksRunning === true) context.setHeader('vary', 'User-Agent, X-State-Vocabulary')
    const { settings } = context.parts
    return speaksRunning !== true || wantsDeploymentState(settings.statusVocabulary, context.headers)
      ? { name: 'exact', show: (status) => status }
      : { name: 'running', show: (status) => ({ ...status, state: runningWord(status) }) }
  }

const statusOf = (known: Known): Operation =>
  operation({
    id: `get${known.self.noun}Status`,
    ...reading,
    path: `${itemOf(known.self)}/status`,
    tag: `${known.self.noun} Main Calls`,
    summary: `Read the status of ${known.self.nounWithArticle}`,
    area: 'projects',
    owner: known.owner,
    answer: known.speaksRunning === true ? StatusOfEither : Status,
    async run(context) {
      const status = await readStatus(context, context.db)
      return viewFor(known)(context).show(status)
    },
  })

/**
 * Finds the environment through the states of its services of a kind, which have its organization; directly if there
 * are none.
 */
const statesOfKind = (kind: Kind): Owner => {
  const environment = nodeInPath('environment', 'environmentId')
  return {
    ...environment,
    async find(db, params, principal) {
      const { environmentId: id } = params
      const { organizationId } = principal
      if (typeof id !== 'string' || !isUuid(id)) return null
      const rows = await readStates(db, id, organizationId, kind)
      if (rows.length === 0) return environment.find(db, params, principal)
      return { id, organizationId, kind: 'environment', parentId: null, grandparentId: null, name: '', rows }
    },
  }
}

const statusesOf = ({ self }: Known): Operation =>
  operation({
    id: `getEnvironment${self.noun}Status`,
    ...reading,
    path: `/environment/{environmentId}/${self.path}/status`,
    tag: `${self.noun}s`,
    summary: `Read the status of every service of the same kind as ${self.nounWithArticle} in an environment`,
    area: 'projects',
    owner: statesOfKind(self.kind),
    answer: Results(Status),
    run: async ({ parts, db, node }) => ({
      results: await parts.deployments.statusesOf(db, (node.rows ?? []) as StateRow[]),
    }),
  })

const removalOf = (known: Known): Operation => {
  const { self, owner, removal } = known
  const plan = planned(merge(SkipReconcile, removal?.endingQuery.properties ?? {}))
  return operation({
    id: `delete${self.noun}`,
    ...removing,
    path: itemOf(self),
    tag: `${self.noun} Main Calls`,
    summary:
      removal?.summary ??
      `Delete ${self.nounWithArticle} with everything it has, including volumes; continues after the response`,
    area: 'projects',
    owner,
    ...plan,
    query: merge(plan.query, removal?.query.properties ?? {}),
    async run(context) {
      if (removal?.keepsConfiguration(context.query) === true) {
        const answer = await uninstall(known, context)
        return answer instanceof OtherAnswer ? answer : undefined
      }
      return act(context, 'DELETE', endedAs(known, context))
    },
  })
}

export const deployable =
  (options: DeployableOptions = {}): Facet =>
  (self) => {
    const known: Known = { ...options, self, owner: ownerOf(self) }
    return [
      ...deploysOf(known),
      ...(options.stops === false ? [] : [stopOf(known)]),
      ...(kinds[self.kind].runs === 'instances' ? [restartOf(known)] : []),
      uninstallOf(known),
      removalOf(known),
      ...(options.status === false ? [] : [statusOf(known), statusesOf(known), liveService(self, viewFor(known))]),
    ]
  }
