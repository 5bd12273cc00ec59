/** Locks of clusters: a locked cluster is not deployed, upgraded or deleted. A lock may have an expiry. */
import Type from 'typebox'
import { type Operation, operation, organizationInPath, reading, removing } from '../../api/operations/operation.ts'
import type { Spec } from '../../api/operations/resource.ts'
import { Maybe, Results, Text, Whole } from '../../api/operations/schema.ts'
import { changeInner, type InnerChange } from '../../facets/settings/inner-configuration.ts'
import { conflict } from '../../lib/errors.ts'
import { clusterInPath, type Lock as KeptLock, lockIn } from './rows.ts'
import { Lock } from './status.ts'

const path = '/cluster/{clusterId}/lock'
const field = { field: 'lock', empty: null } as const

const lock = operation({
  id: 'lockCluster',
  method: 'POST',
  path,
  tag: 'Clusters',
  summary: 'Lock a cluster: it cannot be deployed, upgraded or deleted',
  scope: 'Write',
  area: 'clusters',
  cluster: 'ADMIN',
  owner: clusterInPath,
  // A lock with -1 days, or without a time, lasts until it is removed.
  body: Type.Object({ reason: Text(2048, { minLength: 1 }), ttl_in_days: Maybe(Whole(-1, 3650)) }),
  status: 200,
  answer: Lock,
  async run(context) {
    const { body, node, parts, principal } = context
    const now = parts.clock.now()
    const made: KeptLock = { ...body, locked_at: now.toISOString(), owner_name: principal.name }
    const change = (kept: KeptLock | null) => {
      if (lockIn({ lock: kept }, now) !== null) throw conflict('cluster_locked', 'This cluster is already locked.')
      return made
    }
    const wanted: InnerChange<KeptLock | null> = { ...field, eventType: 'LOCK', change }
    return changeInner(context, wanted, () => ({ ...made, cluster_id: node.id }))
  },
})

const unlock = operation({
  id: 'unlock-cluster',
  ...removing,
  path,
  tag: 'Clusters',
  summary: 'Unlock a cluster',
  area: 'clusters',
  cluster: 'ADMIN',
  owner: clusterInPath,
  run: (context) =>
    changeInner<KeptLock | null, undefined>(
      context,
      { ...field, eventType: 'UNLOCK', change: () => null },
      () => undefined,
    ),
})

const list = operation({
  id: 'list-cluster-lock',
  ...reading,
  path: '/organization/{organizationId}/lock',
  tag: 'Organization Cluster Lock',
  summary: 'List the current locks',
  area: 'resources',
  owner: organizationInPath,
  answer: Results(Lock),
  async run({ db, node, parts }) {
    const rows = await db.query<{ id: string; spec: Spec }>(
      `select id, spec from node where parent_id = $1 and kind = 'cluster' and spec ->> 'lock' is not null
       order by created_at, id`,
      [node.id],
    )
    const now = parts.clock.now()
    const held = rows.flatMap(({ id, spec }) => {
      const kept = lockIn(spec, now)
      return kept === null ? [] : [{ ...kept, cluster_id: id }]
    })
    return { results: held }
  },
})

export const clusterLockOperations: Operation[] = [lock, unlock, list]
