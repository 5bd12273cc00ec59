/**
 * The operator's decision about a cluster whose database is older than the objects found there, or one of two copies:
 * afterwards the cluster is managed from this database, and any other one is held.
 */
import type { Cluster } from '../../clusters/clusters.ts'
import { clearConflict } from '../../clusters/lines/rows.ts'
import { environmentKeySql, localKey } from '../../clusters/local.ts'
import type { Database, Queryable } from '../../store/database.ts'
import type { Deployments } from '../deployments.ts'
import { deleteOrphans, listOrphans, type Orphan, readOrphans } from '../reconcile/orphans.ts'
import { judgeIds, servicesIn } from '../reconcile/sweeps.ts'
import { type Adoption, type AdoptionParts, adopt } from './adopt.ts'

/**
 * adopt: orphans become services again where possible, and queued deployments are canceled, because the running
 * versions are newer. ignore: they keep running, and are listed as ignored. remove: their deletion is recorded. In
 * each case the objects that the database knows are restored to its rows.
 */
export const choices = ['adopt', 'ignore', 'remove'] as const
export type Choice = (typeof choices)[number]

interface ResolveParts extends AdoptionParts {
  database: Database
  deployments: Pick<Deployments, 'cancel'>
}

const deadlineMs = 60_000

const lookForOrphans = async (parts: AdoptionParts, cluster: Cluster): Promise<Orphan[]> => {
  const owned = await cluster.runtime.owned()
  const { unknown } = await judgeIds(parts, cluster.key, [...servicesIn(owned).keys(), ...owned.environments])
  await listOrphans(parts, cluster, owned, unknown)
  return readOrphans(parts.database, cluster.key)
}

const cancelOpen = async ({ deployments }: ResolveParts, tx: Queryable, cluster: string): Promise<void> => {
  const rows = await tx.query<{ id: string }>(
    `select distinct environment_id as id from deployment d
     where d.state in ('QUEUED', 'RUNNING') and d.action not in ('DELETE', 'UNINSTALL')
       and coalesce(${environmentKeySql('d.environment_id')}, '${localKey}') = $1`,
    [cluster],
  )
  for (const { id } of rows) await deployments.cancel(tx, id, { force: true })
}

export const ignoreOrphans = async (tx: Queryable, cluster: string, ids: readonly string[]): Promise<string[]> => {
  const rows = await tx.query<{ id: string }>(
    `update orphan set ignored_at = coalesce(ignored_at, clock_timestamp()) where cluster = $1 and id = any($2)
     returning id`,
    [cluster, ids],
  )
  return rows.map(({ id }) => id)
}

/** Rejects if the cluster does not answer: then nothing is decided. */
export const resolveConflict = async (parts: ResolveParts, cluster: Cluster, choice: Choice): Promise<Adoption> => {
  const { key, line } = cluster
  const { database } = parts
  const orphans = await lookForOrphans(parts, cluster)
  const ids = orphans.map(({ id }) => id)
  const result: Adoption = choice === 'adopt' ? await adopt(parts, cluster, orphans) : { adopted: [], left: [] }
  await database.transaction(async (tx) => {
    if (choice === 'adopt') await cancelOpen(parts, tx, key)
    if (choice === 'ignore') await ignoreOrphans(tx, key, ids)
    if (choice === 'remove') await deleteOrphans(tx, key, ids)
  })
  // The cluster is this database's before anything may be changed there.
  await line?.takeOver(AbortSignal.timeout(deadlineMs))
  await database.transaction((tx) => clearConflict(tx, key))
  await line?.check()
  return result
}
