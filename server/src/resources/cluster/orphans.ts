/**
 * Orphans of clusters, and conflicts: objects on a cluster with our labels that the database does not know, and the
 * decisions about them. On the engine of this server, which all organizations share, each sees its own; the operator
 * sees all, and alone decides about a conflict.
 */
import Type from 'typebox'
import { type Context, type Fields, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { auditOf, placeOf } from '../../api/operations/resource.ts'
import { Flag, List, Maybe, Nullable, OneOf, Text, Timestamp, Uuid, Whole } from '../../api/operations/schema.ts'
import type { Parts } from '../../api/parts.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { type ConflictRow, readConflicts } from '../../clusters/lines/rows.ts'
import { localKey } from '../../clusters/local.ts'
import { type Adoption, adopt } from '../../deployments/adoption/adopt.ts'
import { type Choice, choices, ignoreOrphans, resolveConflict } from '../../deployments/adoption/conflict.ts'
import { deleteOrphans, type ListedOrphan, readOrphans } from '../../deployments/reconcile/orphans.ts'
import { badRequest, conflict, forbidden } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { tryTextLockSql } from '../../store/locks.ts'
import { writeAudit } from '../../store/tree.ts'
import { clusterInPath } from './rows.ts'

const most = 1000

const Orphan = Type.Object(
  {
    id: Uuid({ description: 'Id of the former service, or environment.' }),
    kind: OneOf(['SERVICE', 'ENVIRONMENT', 'VERSION'], {
      description:
        'SERVICE: instances and volumes of a service. ENVIRONMENT: the network or namespace of an environment. VERSION: a service of the database runs a version that the database does not know.',
    }),
    environment_id: Uuid(),
    organization_id: Nullable(Uuid(), { description: 'As its labels say.' }),
    instances: List(Type.Object({ name: Text(), state: Text(20) }), 20),
    volumes: List(
      Type.Object({
        id: Text(),
        size_gb: Nullable(Type.Number(), { description: 'How much it may hold; null if nothing limits it.' }),
      }),
      most,
    ),
    created_at: Nullable(Timestamp(), { description: 'The time of its oldest object, if the cluster says.' }),
    first_seen_at: Timestamp(),
    ignored_at: Nullable(Timestamp()),
  },
  { title: 'ClusterOrphan' },
)

const Conflict = Type.Object(
  {
    code: OneOf(['older_database', 'other_server']),
    message: Text(1000),
    since: Timestamp(),
  },
  { title: 'ClusterConflict' },
)

const Listed = Type.Object({
  conflict: Nullable(Conflict, {
    description: 'Why nothing is changed on this cluster until an operator decides; null if there is no conflict.',
  }),
  results: List(Orphan, most),
})

const Left = Type.Object({ id: Uuid(), reason: Text(500) })
const Adopted = Type.Object({ adopted: List(Uuid(), most), left: List(Left, most) })
const Ids = Type.Object({ ids: List(Uuid(), most, { minItems: 1 }) })
const Changed = Type.Object({ ids: List(Uuid(), most), pending: Whole(0) })

/** On an engine that all organizations share, an organization sees the objects with its label. */
const visibleTo = ({ principal }: Context, { key }: Cluster): string | null =>
  key !== localKey || principal.isOperator ? null : principal.organizationId

const viewOrphan = ({ id, kind, environmentId, organizationId, found, firstSeen, ignoredAt }: ListedOrphan) => ({
  ...{ id, kind, environment_id: environmentId, organization_id: organizationId },
  instances: found.instances,
  volumes: found.volumes.slice(0, most),
  created_at: found.created_at,
  first_seen_at: firstSeen.toISOString(),
  ignored_at: ignoredAt?.toISOString() ?? null,
})

const viewConflict = ({ code, message, since }: ConflictRow) => ({ code, message, since: since.toISOString() })

const clusterOf = ({ parts, node }: Context): Promise<Cluster> => parts.clusters.of(node.id)

const list = async (context: Context) => {
  const cluster = await clusterOf(context)
  const found = (await readConflicts(context.db)).find(({ cluster: key }) => key === cluster.key)
  const orphans = await readOrphans(context.db, cluster.key, visibleTo(context, cluster))
  return { conflict: found === undefined ? null : viewConflict(found), results: orphans.map(viewOrphan) }
}

/** The objects among these ids that the caller sees. */
const seenBy = async (context: Context, cluster: Cluster, ids: readonly string[]): Promise<ListedOrphan[]> => {
  const orphans = await readOrphans(context.db, cluster.key, visibleTo(context, cluster))
  const asked = new Set(ids)
  return orphans.filter(({ id }) => asked.has(id))
}

const audit = (tx: Queryable, context: Context, change: object): Promise<void> =>
  writeAudit(
    tx,
    context.node.organizationId,
    context.node,
    auditOf(context, 'UPDATE', { target: 'CLUSTER' }, placeOf(context.node), change),
  )

type IdsContext = Context<Type.Static<typeof Ids>, Fields>

const change = async (
  context: IdsContext,
  word: string,
  work: (tx: Queryable, cluster: Cluster, ids: readonly string[]) => Promise<string[]>,
) => {
  const cluster = await clusterOf(context)
  const seen = await seenBy(context, cluster, context.body.ids)
  return context.transaction(async (tx) => {
    const ids = await work(
      tx,
      cluster,
      seen.map(({ id }) => id),
    )
    await audit(tx, context, { orphans: { [word]: ids } })
    return { ids, pending: (await readOrphans(tx, cluster.key, visibleTo(context, cluster))).length }
  })
}

const adoptSome = async (context: IdsContext): Promise<Adoption> => {
  const cluster = await clusterOf(context)
  if (cluster.line?.conflict() != null)
    throw conflict('cluster_conflict', 'An operator must decide about the conflict of this cluster first.')
  const seen = await seenBy(context, cluster, context.body.ids)
  const { adopted, left } = await adopt(context.parts, cluster, seen)
  await context.transaction((tx) => audit(tx, context, { orphans: { adopted } }))
  const known = new Set(seen.map(({ id }) => id))
  const unknown = context.body.ids.filter((id) => !known.has(id))
  return {
    adopted,
    left: [...left, ...unknown.map((id) => ({ id, reason: 'No orphan of this cluster has this id.' }))],
  }
}

const Choose = Type.Object({
  action: OneOf(choices, {
    description:
      'What to do with the orphans. adopt: they become services again if they have a record of their configuration, and queued deployments are canceled. ignore: they keep running and stay listed. remove: they are deleted with their volumes. In each case the database is in charge of the cluster again.',
  }),
  confirm: Maybe(Flag({ description: 'Must be true with remove, which deletes data.' })),
})

/** Decides exclusively: of two concurrent decisions, the second finds nothing to decide. */
const alone = <T>({ database }: Pick<Parts, 'database'>, { key }: Cluster, decide: () => Promise<T>): Promise<T> =>
  database.transaction(async (tx) => {
    const [lock] = await tx.query<{ taken: boolean }>(tryTextLockSql, [`conflict of ${key}`])
    if (!lock!.taken) throw conflict('conflict_in_decision', 'Another request is deciding about this conflict.')
    const found = (await readConflicts(tx)).find(({ cluster }) => cluster === key)
    if (found === undefined) throw conflict('no_conflict', 'This cluster has no conflict.')
    return decide()
  })

const choose = async (context: Context<Type.Static<typeof Choose>, Fields>): Promise<Adoption> => {
  const { body, parts, principal } = context
  const cluster = await clusterOf(context)
  if (cluster.key === localKey && !principal.isOperator)
    throw forbidden("Only the operator's token decides about the engine that all organizations share.")
  if (body.action === 'remove' && body.confirm !== true)
    throw badRequest('confirm: must be true, because removing the orphans deletes their volumes')
  const result = await alone(parts, cluster, () => resolveConflict(parts, cluster, body.action as Choice))
  parts.log.warn({ cluster: cluster.key, action: body.action }, 'the conflict of a cluster was decided')
  await context.transaction((tx) => audit(tx, context, { conflict: body.action }))
  return result
}

const path = '/cluster/{clusterId}'
const common = { tag: 'Clusters', area: 'clusters' as const, owner: clusterInPath }
const act = { ...common, method: 'POST' as const, cluster: 'ADMIN' as const, status: 200 as const }

export const clusterOrphanOperations: Operation[] = [
  operation({
    ...common,
    id: 'listClusterOrphans',
    ...reading,
    path: `${path}/orphans`,
    summary: 'List what a cluster has that the database does not know, and the conflict of the cluster',
    cluster: 'VIEWER',
    answer: Listed,
    run: list,
  }),
  operation({
    ...act,
    id: 'removeClusterOrphans',
    path: `${path}/orphans/remove`,
    summary: 'Delete orphans with their volumes; with the id of an environment, everything in it',
    scope: 'Admin',
    body: Ids,
    answer: Changed,
    run: (context) => change(context, 'removed', (tx, { key }, ids) => deleteOrphans(tx, key, ids)),
  }),
  operation({
    ...act,
    id: 'ignoreClusterOrphans',
    path: `${path}/orphans/ignore`,
    summary: 'Keep orphans as they are, and do not count them any more',
    scope: 'Write',
    body: Ids,
    answer: Changed,
    run: (context) => change(context, 'ignored', (tx, { key }, ids) => ignoreOrphans(tx, key, ids)),
  }),
  operation({
    ...act,
    id: 'adoptClusterOrphans',
    path: `${path}/orphans/adopt`,
    summary: 'Take orphans back into the database, where they carry a record of their configuration',
    scope: 'Admin',
    body: Ids,
    answer: Adopted,
    run: adoptSome,
  }),
  operation({
    ...act,
    id: 'resolveClusterConflict',
    path: `${path}/conflict`,
    summary: 'Decide about a cluster whose database is older than the services there, or one of two',
    scope: 'Admin',
    body: Choose,
    answer: Adopted,
    run: choose,
  }),
]
