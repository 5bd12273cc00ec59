/** Actions on a whole environment, or on some of its services given in the body. */
import Type, { type TObject, type TSchema } from 'typebox'
import { type Context, nodeInPath, type Operation, operation } from '../api/operations/operation.ts'
import { Flag, List, Maybe, Nullable, OneOf, Text, Uuid } from '../api/operations/schema.ts'
import {
  type DeploymentAction,
  type DeploymentRequest,
  type VersionChoice,
  versionChoiceOf,
} from '../deployments/deployments.ts'
import { lockEnvironment } from '../deployments/status/service-state.ts'
import { openStates } from '../deployments/status/states.ts'
import {
  MaybeChartVersion,
  MaybeCommitId,
  MaybeImageTag,
  noteCancel,
  planFor,
  request,
  SkipReconcile,
  servicesOf,
  serviceToDeploy,
} from '../facets/deployment-request.ts'
import { isDryRun, planned } from '../facets/plan-schema.ts'
import { AcceptedEnvironmentStatus } from '../facets/status-schema.ts'
import { ahead, type Kind, type KindRow, kinds, type OwnKind, ownKinds } from '../kinds.ts'
import { badRequest, invalidField } from '../lib/errors.ts'
import type { Queryable } from '../store/database.ts'
import { acceptedEnvironment, readEnvironment } from './status.ts'

type Services = DeploymentRequest['services']

const owner = nodeInPath('environment', 'environmentId')
const common = {
  method: 'POST' as const,
  tag: 'Environment Actions',
  area: 'projects' as const,
  owner,
}
const deploys = { scope: 'Deploy' as const, cluster: 'ENV_CREATOR' as const }
const accepted = { status: 202 as const, answer: AcceptedEnvironmentStatus }
// They destroy data, so they require the same rights as a delete.
const destroying = { ...common, scope: 'Admin' as const }
const deploying = { ...common, ...deploys, ...accepted, ...planned() }

/** Empty unless it is the same for all. */
const choiceOfAll = async (tx: Queryable, services: Services): Promise<{ version_choice?: VersionChoice }> => {
  const rows = await tx.query<{ id: string }>(
    'select service_id as id from service_state where service_id = any($1) and current_release_id is not null',
    [services.map(({ id }) => id)],
  )
  const deployed = new Set(rows.map(({ id }) => id))
  const [choice, ...others] = new Set(services.map((service) => versionChoiceOf(service, deployed.has(service.id))))
  return choice === undefined || others.length > 0 ? {} : { version_choice: choice }
}

const act = async (
  context: Context,
  action: DeploymentAction,
  choose: (tx: Queryable) => Promise<Services> | Services,
  wholeEnvironment: boolean,
) => {
  const actionRequest = { environmentId: context.node.id, action, wholeEnvironment }
  if (isDryRun(context)) return planFor(context, { ...actionRequest, services: await choose(context.db) })
  return context.transaction(async (tx) => {
    const services = await choose(tx)
    const answer = await request(tx, context, { ...actionRequest, services })
    if (action === 'DELETE') return undefined
    const read = await readEnvironment(context.parts.deployments, tx, context.node.id)
    return {
      ...acceptedEnvironment(read, answer, action),
      ...(action === 'DEPLOY' ? await choiceOfAll(tx, services) : {}),
    }
  })
}

const all =
  (context: Context) =>
  async (tx: Queryable): Promise<Services> =>
    (await servicesOf(tx, context.node.id)).map((id) => ({ id }))

/** All services except those skipped in their deployment stages. */
const requestAll =
  (context: Context, more: Partial<Services[number]> = {}) =>
  async (tx: Queryable): Promise<Services> => {
    const rows = await tx.query<{ id: string }>(
      'select service_id as id from service_state where environment_id = $1 and not is_skipped',
      [context.node.id],
    )
    return rows.map(({ id }) => ({ id, ...more }))
  }

const releasesThen =
  ({ parts, node, body }: Context<{ execution_id?: string | null }>) =>
  (tx: Queryable): Promise<Services> =>
    parts.deployments.releasesOf(tx, node.id, body.execution_id ?? undefined)

const wholeActions: Operation[] = [
  operation({
    ...deploying,
    id: 'deployEnvironment',
    path: '/environment/{environmentId}/deploy',
    summary: 'Deploy every service of an environment that is not skipped, by stage',
    run: (context) => act(context, 'DEPLOY', requestAll(context), true),
  }),
  operation({
    ...deploying,
    id: 'redeployEnvironment',
    path: '/environment/{environmentId}/redeploy',
    summary: 'Deploy every service again with the deployed versions',
    run: (context) => act(context, 'DEPLOY', requestAll(context, { redeploy: true }), true),
  }),
  operation({
    ...deploying,
    id: 'stopEnvironment',
    path: '/environment/{environmentId}/stop',
    summary: 'Stop every service of an environment that is not skipped',
    run: (context) => act(context, 'STOP', requestAll(context), true),
  }),
  operation({
    ...destroying,
    ...accepted,
    ...planned(),
    id: 'uninstallEnvironment',
    path: '/environment/{environmentId}/uninstall',
    summary:
      'Remove what every service of an environment has on its cluster, including volumes; configurations are kept',
    run: (context) => act(context, 'UNINSTALL', all(context), true),
  }),
  operation({
    ...deploying,
    id: 'rollbackEnvironment',
    path: '/environment/{environmentId}/rollback',
    summary: 'Roll every service back to its release after an execution: the given one, else the last successful one',
    body: Type.Object({ execution_id: Maybe(Nullable(Text(100))) }),
    bodyOptional: true,
    run: (context) => act(context, 'DEPLOY', releasesThen(context), true),
  }),
  operation({
    ...destroying,
    ...planned(SkipReconcile),
    id: 'deleteEnvironment',
    method: 'DELETE',
    path: '/environment/{environmentId}',
    tag: 'Environment Main Calls',
    summary: 'Delete an environment with all its services; continues after the response',
    status: 204,
    run: (context) => act(context, 'DELETE', all(context), true),
  }),
]

const cancelWords =
  'A running job, or terraform service, is killed instead of being asked to end within its termination grace period. The state that terraform leaves is saved in any case. May be sent after a cancel without it.'

const openSql = `select id, environment_id || '-' || execution_number as "executionId" from deployment
  where environment_id = $1 and state in ${openStates} order by state desc, seq limit 1`

const cancelAction = operation({
  ...common,
  ...deploys,
  ...accepted,
  id: 'cancelEnvironmentDeployment',
  path: '/environment/{environmentId}/cancelDeployment',
  summary: 'Cancel running and queued deployments of an environment',
  body: Type.Object({ force_cancel: Maybe(Nullable(Flag({ description: cancelWords }))) }),
  bodyOptional: true,
  run: (context) =>
    context.transaction(async (tx) => {
      const { parts, node } = context
      // Before the read: no deployment is added between it and the cancel.
      await lockEnvironment(tx, node.id)
      // Read separately: a status may write a fingerprint, and no service's row may be locked before its deployment's.
      const [open] = await tx.query<{ id: string; executionId: string }>(openSql, [node.id])
      await parts.deployments.cancel(tx, node.id, { force: context.body.force_cancel === true })
      await noteCancel(tx, context, node.id, null)
      const read = await readEnvironment(parts.deployments, tx, node.id)
      const createdAt = parts.clock.now().toISOString()
      const canceled = { deploymentId: open!.id, executionId: open!.executionId, createdAt }
      return acceptedEnvironment(read, canceled, 'UNKNOWN')
    }),
})

/** 400 unless every id is a service of the environment and of the kind of its field. */
const checkChosen = async (tx: Queryable, environmentId: string, chosen: readonly Chosen[]): Promise<void> => {
  if (chosen.length === 0) throw badRequest('Validation error: name at least one service.')
  const rows = await tx.query<{ id: string; kind: Kind }>(
    'select service_id as id, kind from service_state where environment_id = $1 and service_id = any($2)',
    [environmentId, chosen.map((one) => one.service.id)],
  )
  const found = new Map(rows.map((row) => [row.id, row.kind]))
  for (const { kind, service, field } of chosen)
    if (found.get(service.id) !== kind) throw invalidField(field, 'not found in this environment')
}

interface Chosen {
  kind: Kind
  field: string
  service: Services[number]
}

const idsOf = (kind: Kind): string => `${kind}_ids`

const ids = () => Maybe(Nullable(List(Uuid(), 500)))

const IdsOf = (chosen: readonly Kind[]) =>
  Type.Object(Object.fromEntries(chosen.map((kind) => [idsOf(kind), ids()]))) as TObject

const ChosenIds = IdsOf(ownKinds)

/** Only these have instances that can be restarted. */
const RestartedIds = IdsOf(ownKinds.filter((kind) => kinds[kind].runs === 'instances'))

const chosenIds = ({ body }: Context): Chosen[] =>
  ownKinds.flatMap((kind) =>
    ((body[idsOf(kind)] as string[] | null | undefined) ?? []).map((id, index) => ({
      kind,
      field: `/${idsOf(kind)}/${index}`,
      service: { id: id.toLowerCase() },
    })),
  )

/** The version that can be requested for a service, besides a commit. */
const asked: Record<Exclude<KindRow['asks'], 'nothing'>, Record<string, TSchema>> = {
  commit: {},
  image: { image_tag: MaybeImageTag() },
  chart: {
    chart_version: MaybeChartVersion(),
    values_override_git_commit_id: MaybeCommitId(),
  },
  'terraform action': { action: Maybe(Nullable(OneOf(['PLAN', 'FORCE_UNLOCK', 'MIGRATE_STATE']))) },
}

const Versions = (kind: OwnKind) => {
  const { asks, old } = kinds[kind]
  if (asks === 'nothing') return ids()
  const item = { [old?.id ?? 'id']: Uuid(), git_commit_id: MaybeCommitId(), ...asked[asks] }
  return Maybe(Nullable(List(Type.Object(item), 500)))
}

/** In the order of their publication. */
const deployed = ahead(['application', 'database'], ownKinds)

const DeployAll = Type.Object(
  Object.fromEntries(deployed.map((kind) => [kinds[kind].plural, Versions(kind)])),
) as TObject

type Item = string | { application_id?: string; id?: string; git_commit_id?: string | null; image_tag?: string }

const chosenVersions = ({ body }: Context): Chosen[] =>
  deployed.flatMap((kind) =>
    ((body[kinds[kind].plural] as Item[] | null | undefined) ?? []).map((item, index) => {
      const id = typeof item === 'string' ? item : (item.application_id ?? item.id!)
      const sent = typeof item === 'string' ? {} : item
      return { kind, field: `/${kinds[kind].plural}/${index}`, service: serviceToDeploy(id.toLowerCase(), sent) }
    }),
  )

const actOn = (context: Context, action: DeploymentAction, chosen: readonly Chosen[]) => {
  const choose = async (tx: Queryable): Promise<Services> => {
    await checkChosen(tx, context.node.id, chosen)
    return [...new Map(chosen.map(({ service }) => [service.id, service])).values()]
  }
  return act(context, action, choose, false)
}

const chosenActions: Operation[] = [
  operation({
    ...deploying,
    id: 'deployAllServices',
    path: '/environment/{environmentId}/service/deploy',
    summary: 'Deploy the services in the body, at the given versions',
    body: DeployAll,
    run: (context) => actOn(context, 'DEPLOY', chosenVersions(context)),
  }),
  operation({
    ...deploying,
    id: 'rebootServices',
    path: '/environment/{environmentId}/service/restart-service',
    summary: 'Restart the services in the body',
    body: RestartedIds,
    run: (context) => actOn(context, 'RESTART', chosenIds(context)),
  }),
  operation({
    ...common,
    ...deploys,
    ...planned(),
    id: 'stopSelectedServices',
    path: '/environment/{environmentId}/service/stop',
    summary: 'Stop the services in the body',
    status: 200,
    body: ChosenIds,
    run: (context) => actOn(context, 'STOP', chosenIds(context)),
  }),
  operation({
    ...destroying,
    ...planned(),
    id: 'uninstallSelectedServices',
    path: '/environment/{environmentId}/service/uninstall',
    summary: 'Remove what the services in the body have on their cluster; their configurations are kept',
    status: 200,
    body: ChosenIds,
    run: (context) => actOn(context, 'UNINSTALL', chosenIds(context)),
  }),
  operation({
    ...destroying,
    ...planned(SkipReconcile),
    id: 'deleteSelectedServices',
    path: '/environment/{environmentId}/service/delete',
    summary: 'Delete the services in the body',
    status: 200,
    body: ChosenIds,
    run: (context) => actOn(context, 'DELETE', chosenIds(context)),
  }),
]

export const environmentActions: Operation[] = [...wholeActions, cancelAction, ...chosenActions]
