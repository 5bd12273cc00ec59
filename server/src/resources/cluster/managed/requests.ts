/**
 * Requests for clusters that a module makes: each is one transaction that locks the cluster's row, checks the request,
 * and writes the run to be done. One run at a time: during a run only a stop is accepted, which cancels it.
 */
import type { Context } from '../../../api/operations/operation.ts'
import { auditOf, placeOf, type Spec } from '../../../api/operations/resource.ts'
import { type ClusterModule, moduleOfCluster, moduleProviders } from '../../../clusters/modules.ts'
import { loginRefusal } from '../../../clusters/provider-login.ts'
import { badRequest, conflict, notFound } from '../../../lib/errors.ts'
import { newId } from '../../../lib/ids.ts'
import { readEngines } from '../../../limits/engine-room.ts'
import { limitReached, takeTurns, usualLimits } from '../../../limits/limits.ts'
import type { Queryable } from '../../../store/database.ts'
import { writeAudit } from '../../../store/tree.ts'
import { refuseLocked } from '../rows.ts'
import { markSql, readDocument } from './document.ts'
import { ask, cancelRun, countMaking, freeState, hasMade, type Managed, readManaged } from './rows.ts'
import { type Action, courses } from './states.ts'

const modulesSetting = 'SLIPWAY_CLUSTER_MODULES'

/** The module for the cluster of this configuration; null if there is none. */
export const moduleOf = ({ parts }: Pick<Context, 'parts'>, spec: Spec): ClusterModule | null =>
  moduleOfCluster(parts.settings.clusterModules, spec)

/** The refusal of a MANAGED cluster whose provider has no module. */
export const noModuleSentence = ({ cloud_provider: provider }: Spec): string =>
  !moduleProviders.some((each) => each === provider)
    ? `This server makes Kubernetes clusters at ${moduleProviders.join(', ')} only, by Terraform modules of its operator: use a Docker engine or a Kubernetes cluster of your own.`
    : `This server has no Terraform module that makes clusters at ${String(provider)}: its operator can name one in ${modulesSetting}. Until then, use a Docker engine or a Kubernetes cluster of your own.`

interface Asking {
  tx: Queryable
  context: Context
  module: ClusterModule
  node: { id: string; organizationId: string; name: string; spec: Spec; mark: string }
  managed: Managed | null
}

const rowSql = `select n.id, n.organization_id as "organizationId", n.name, n.spec, ${markSql('n')} as mark
  from node n where n.id = $1 for no key update`

/** In a transaction that has locked the cluster's row. */
const asking = async (tx: Queryable, context: Context): Promise<Asking> => {
  const [node] = await tx.query<Asking['node']>(rowSql, [context.node.id])
  if (node === undefined) throw notFound()
  const module = moduleOf(context, node.spec)
  if (module === null) throw badRequest(noModuleSentence(node.spec))
  const managed = (await readManaged(tx, [node.id])).get(node.id) ?? null
  return { tx, context, module, node, managed }
}

const busy = (managed: Managed): Error =>
  conflict(
    'cluster_busy',
    managed.status === 'CANCELING'
      ? 'The last action on this cluster is being canceled: try again when that has ended.'
      : 'Another action on this cluster has not ended yet: wait for its end, or stop the cluster to cancel it.',
  )

const refuseManyClusters = async ({ tx, context, node, managed }: Asking): Promise<void> => {
  const { engines: most } = context.parts.settings.limits ?? usualLimits
  if (most === 0 || managed?.isConnected === true) return
  await takeTurns(tx, node.organizationId, 'engines')
  const engines = (await readEngines(tx, node.organizationId)) + (await countMaking(tx, node.organizationId))
  if (engines >= most) throw limitReached('engines', most, engines)
}

const write = async (its: Asking, action: Action, version: string | null): Promise<void> => {
  const { tx, context, node, managed } = its
  if (managed?.runId) throw busy(managed)
  refuseLocked(node.spec, context.parts.clock.now())
  const refusal = await loginRefusal(tx, node.organizationId, node.spec)
  if (refusal !== null) throw badRequest(refusal)
  if (action !== 'STOP' && action !== 'DELETE') await refuseManyClusters(its)
  const stopped = action === 'STOP' || (action === 'DELETE' && managed?.isStopped === true)
  const document = await readDocument(tx, node, { kubernetes_version: version, stopped })
  await freeState(tx, node.id)
  const [queued, asked] = [courses[action].queued, courses[action].events[0]]
  const askedBy = context.principal.name
  await ask(tx, node.id, { runId: newId(), action, status: queued, document, mark: node.mark, version, askedBy })
  const audit = auditOf(context, 'UPDATE', { target: 'CLUSTER' }, placeOf(context.node), null)
  await writeAudit(tx, node.organizationId, context.node, { ...audit, eventType: asked })
}

/** The version for a deployment: that of the cluster, or the newest for a new one. */
const versionOf = ({ managed, module }: Asking): string | null => managed?.version ?? module.versions.at(-1) ?? null

/** The next version after that of a cluster; null if there is none. */
export const nextVersion = (module: ClusterModule | null, current: string | null): string | null => {
  const at = module === null || current === null ? -1 : module.versions.indexOf(current)
  return at < 0 ? null : (module!.versions[at + 1] ?? null)
}

/** Deploys, or restarts a stopped cluster; `dryRun`: only shows the changes. */
export const askDeploy = async (tx: Queryable, context: Context, dryRun: boolean): Promise<void> => {
  const its = await asking(tx, context)
  const action = dryRun ? 'DRY_RUN' : its.managed?.isStopped === true ? 'RESTART' : 'DEPLOY'
  await write(its, action, versionOf(its))
}

const isDeployed = ({ managed }: Asking): boolean => managed !== null && managed.applied !== null

export const askUpgrade = async (tx: Queryable, context: Context): Promise<void> => {
  const its = await asking(tx, context)
  const { module, managed } = its
  if (managed?.runId) throw busy(managed)
  if (module.versions.length === 0)
    throw badRequest(`The module of this cluster lists no \`versions\` in ${modulesSetting}: it cannot be upgraded.`)
  if (!isDeployed(its))
    throw badRequest('This cluster is not deployed: deploy it first, which makes it at its newest version.')
  if (managed!.isStopped) throw badRequest('This cluster is stopped: deploy it first.')
  const next = nextVersion(module, managed!.version)
  if (next === null) throw badRequest('This cluster has the newest version of Kubernetes that its module lists.')
  await write(its, 'UPGRADE', next)
}

/** Stops a cluster, or cancels the action in progress. */
export const askStop = async (tx: Queryable, context: Context): Promise<void> => {
  const its = await asking(tx, context)
  const { module, managed, node } = its
  if (managed?.runId) {
    if (managed.action === 'DELETE')
      throw conflict('cluster_deleting', 'This cluster is being deleted, which cannot be canceled.')
    if (managed.action === 'STOP' || managed.status === 'CANCELING') return
    await cancelRun(tx, node.id)
    const audit = auditOf(context, 'UPDATE', { target: 'CLUSTER' }, placeOf(context.node), null)
    await writeAudit(tx, node.organizationId, context.node, { ...audit, eventType: 'TRIGGER_CANCEL' })
    return
  }
  if (!isDeployed(its)) throw badRequest('This cluster has never been deployed: there is nothing to stop.')
  if (!Object.values(module.inputs).includes('/stopped'))
    throw badRequest(
      `The module of this cluster has no input for \`/stopped\` in ${modulesSetting}: it cannot be stopped.`,
    )
  await write(its, 'STOP', managed!.version)
}

/**
 * Whether the cluster's deletion continues after the answer, because its resources at the provider must be destroyed
 * first.
 */
export const askDelete = async (tx: Queryable, context: Context, onlyConfiguration: boolean): Promise<boolean> => {
  const { id } = context.node
  const managed = (await readManaged(tx, [id])).get(id) ?? null
  if (managed?.runId) {
    if (managed.action === 'DELETE') return true
    throw busy(managed)
  }
  if (onlyConfiguration || !(await hasMade(tx, id))) return false
  const its = await asking(tx, context)
  await write(its, 'DELETE', managed?.version ?? null)
  return true
}
