/** What can be done with a service that runs: deploy, redeploy, restart, stop, delete, and reading its status. */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, type Owner } from '../api/operation.ts'
import type { ApiSettings } from '../api/parts.ts'
import type { DeploymentAction, DeploymentRequest, ServiceStatus } from '../deployments/deployments.ts'
import { notFound } from '../lib/errors.ts'
import type { Queryable } from '../store/database.ts'
import { MaybeCommitId, request, serviceToDeploy } from './request.ts'
import { AcceptedStatus, Status, StatusOfEither } from './status-schema.ts'

export interface DeployableOptions {
  /** Tree kind, also the first word of its paths. */
  kind: string
  param: string
  /** Tags of the public API: of actions and of reads. */
  tags: { actions: string; main: string }
  words: string
  ids: { deploy: string; redeploy: string; restart?: string; stop: string; remove: string; status: string }
  /** Only applications answer in the running vocabulary. */
  speaksRunning?: boolean
}

const typedClients = /^(CLI |Terraform provider |OpenAPI-Generator\/)/

/** Whether this caller gets the exact state of 3.2 where the running vocabulary is spoken (answers 15). */
export const wantsDeploymentState = (
  setting: ApiSettings['statusVocabulary'],
  headers: Context['headers'],
): boolean => {
  if (setting !== 'auto') return setting === 'deployment'
  return headers['x-state-vocabulary'] === 'deployment' || typedClients.test(String(headers['user-agent'] ?? ''))
}

const failed = new Set(['BUILD_ERROR', 'DEPLOYMENT_ERROR', 'RESTART_ERROR'])

/** RUNNING once deployed and its instances answer, ERROR when it failed; otherwise the exact state. */
export const runningWord = (status: ServiceStatus): string => {
  const { deployment_state: state, running_state: running } = status
  if (failed.has(state)) return 'ERROR'
  if (state !== 'DEPLOYED' && state !== 'RESTARTED') return state
  return running === 'RUNNING' || running === 'ERROR' ? running : state
}

const readStatus = async (context: Context, db: Queryable): Promise<ServiceStatus> => {
  const [status] = await context.parts.deployments.statuses(db, [context.node.id])
  if (status === undefined) throw notFound()
  return status
}

/** Asks for one service and answers its status as it is from now on. */
const act = (
  context: Context,
  action: DeploymentAction,
  service: DeploymentRequest['services'][number],
): Promise<unknown> =>
  context.transaction(async (tx) => {
    const environmentId = context.node.parentId!
    const accepted = await request(tx, context, { environmentId, action, services: [service] })
    if (action === 'DELETE') return undefined
    const status = await readStatus(context, tx)
    return {
      ...status,
      deployment_request_id: accepted.deploymentId,
      execution_id: accepted.executionId,
      status: 'QUEUED',
      ...(context.node.kind === 'application' ? { application_id: context.node.id } : {}),
      created_at: accepted.createdAt,
    }
  })

const DeployBody = Type.Object({ git_commit_id: MaybeCommitId() })

const actions = (options: DeployableOptions, owner: Owner): Operation[] => {
  const { kind, param, ids, words } = options
  const base = `/${kind}/{${param}}`
  const common = {
    method: 'POST' as const,
    tag: options.tags.actions,
    scope: 'Deploy' as const,
    owner,
    status: 202 as const,
  }
  const answer = AcceptedStatus
  const deploy: Operation = {
    ...common,
    id: ids.deploy,
    path: `${base}/deploy`,
    summary: `Deploy ${words}: the commit named, else the head of its branch`,
    body: DeployBody,
    bodyOptional: true,
    answer,
    run: (context) => act(context, 'DEPLOY', serviceToDeploy(context.node.id, context.body.git_commit_id)),
  }
  const redeploy: Operation = {
    ...common,
    id: ids.redeploy,
    path: `${base}/redeploy`,
    summary: `Deploy ${words} again: the present configuration at the version that is deployed`,
    answer,
    run: (context) => act(context, 'DEPLOY', { id: context.node.id, redeploy: true }),
  }
  const stop: Operation = {
    ...common,
    id: ids.stop,
    path: `${base}/stop`,
    summary: `Stop ${words}; its configuration and volumes stay`,
    answer,
    run: (context) => act(context, 'STOP', { id: context.node.id }),
  }
  if (ids.restart === undefined) return [deploy, redeploy, stop]
  const restart: Operation = {
    ...common,
    id: ids.restart,
    path: `${base}/restart-service`,
    summary: `Restart the instances of ${words} as they are`,
    answer,
    run: (context) => act(context, 'RESTART', { id: context.node.id }),
  }
  return [deploy, redeploy, stop, restart]
}

const statusOf = (options: DeployableOptions, owner: Owner): Operation => ({
  id: options.ids.status,
  method: 'GET',
  path: `/${options.kind}/{${options.param}}/status`,
  tag: options.tags.main,
  summary: `Read the status of ${options.words}`,
  scope: 'Read',
  owner,
  status: 200,
  answer: options.speaksRunning === true ? StatusOfEither : Status,
  async run(context) {
    const status = await readStatus(context, context.db)
    if (options.speaksRunning !== true) return status
    context.setHeader('vary', 'User-Agent, X-State-Vocabulary')
    if (wantsDeploymentState(context.parts.settings.statusVocabulary, context.headers)) return status
    return { ...status, state: runningWord(status) }
  },
})

const removal = (options: DeployableOptions, owner: Owner): Operation => ({
  id: options.ids.remove,
  method: 'DELETE',
  path: `/${options.kind}/{${options.param}}`,
  tag: options.tags.main,
  summary: `Delete ${options.words} and all it has, volumes included; the work goes on after the answer`,
  scope: 'Admin',
  owner,
  status: 204,
  run: (context) => act(context, 'DELETE', { id: context.node.id }),
})

export const deployable = (options: DeployableOptions): Operation[] => {
  const owner = nodeInPath(options.kind, options.param)
  return [...actions(options, owner), removal(options, owner), statusOf(options, owner)]
}
