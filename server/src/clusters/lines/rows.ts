/** The data about a database's own line on a cluster: its generations, its conflict, and which ids are known. */
import { randomBytes } from 'node:crypto'
import { isUuid } from '../../lib/ids.ts'
import type { Mark } from '../../runtimes/marks.ts'
import type { Owned } from '../../runtimes/owned.ts'
import type { Database, Queryable } from '../../store/database.ts'
import { textLockSql } from '../../store/locks.ts'

/** Why nothing is changed on a cluster until an operator decides. */
export interface Conflict {
  code: 'older_database' | 'other_server'
  message: string
}

export interface ConflictRow extends Conflict {
  cluster: string
  since: Date
}

/** Generations that are remembered of each cluster: a copy older than that is older in any case. */
const kept = 100

/** Notifies every server to read the conflict of this cluster again, and its holder to check everything there. */
export const conflictChannel = 'slipway_conflict'

export const readConflict = async (db: Queryable, cluster: string): Promise<Conflict | null> => {
  const [row] = await db.query<Conflict>('select code, message from cluster_conflict where cluster = $1', [cluster])
  return row ?? null
}

export const readConflicts = (db: Queryable): Promise<ConflictRow[]> =>
  db.query<ConflictRow>('select cluster, code, message, since from cluster_conflict order by since, cluster')

export const writeConflict = (database: Database, cluster: string, { code, message }: Conflict): Promise<void> =>
  database.transaction(async (tx) => {
    await tx.query('insert into cluster_conflict (cluster, code, message) values ($1, $2, $3) on conflict do nothing', [
      cluster,
      code,
      message,
    ])
    await tx.query(`select pg_notify('${conflictChannel}', $1)`, [cluster])
  })

export const clearConflict = async (tx: Queryable, cluster: string): Promise<void> => {
  await tx.query('delete from cluster_conflict where cluster = $1', [cluster])
  await tx.query(`select pg_notify('${conflictChannel}', $1)`, [cluster])
}

/** How many deployments were ever requested. */
const deploymentsSql = '(select last_value from deployment_seq_seq)'

interface Generations {
  /** Whether this database wrote the mark. */
  knows(mark: Mark): boolean
  isFirst: boolean
  /** Whether deployments were requested since the newest was written. */
  isBehind: boolean
}

/** Read after the marks: one that another server of this database has made since is known. */
export const readGenerations = async (db: Queryable, cluster: string): Promise<Generations> => {
  const rows = await db.query<{ generation: string; nonce: string; isBehind: boolean }>(
    `select generation, nonce,
       deployments < ${deploymentsSql} and written_at < clock_timestamp() - interval '1 minute' as "isBehind"
     from cluster_generation where cluster = $1 order by generation desc`,
    [cluster],
  )
  const known = new Set(rows.map(({ generation, nonce }) => `${generation} ${nonce}`))
  return {
    knows: ({ generation, nonce }) => known.has(`${generation} ${nonce}`),
    isFirst: rows.length === 0,
    isBehind: rows[0]?.isBehind ?? true,
  }
}

/** The next generation, higher than `above`: in the database before it is anywhere else. */
export const writeGeneration = (database: Database, cluster: string, writer: string, above: number): Promise<Mark> =>
  database.transaction(async (tx) => {
    await tx.query(textLockSql, [`cluster_generation ${cluster}`])
    const nonce = randomBytes(16).toString('hex')
    const [row] = await tx.query<{ generation: string }>(
      `insert into cluster_generation (cluster, generation, nonce, writer, deployments)
       select $1, greatest($2, coalesce(max(generation), 0)) + 1, $3, $4, ${deploymentsSql}
       from cluster_generation where cluster = $1
       returning generation`,
      [cluster, above, nonce, writer],
    )
    const generation = Number(row!.generation)
    await tx.query('delete from cluster_generation where cluster = $1 and generation <= $2', [
      cluster,
      generation - kept,
    ])
    return { generation, nonce, writer }
  })

/**
 * SQL: whether a row of `deletion` applies to the cluster of this key. A deleted service is deleted on every cluster;
 * an orphan only where its removal was requested, because a cluster chooses the ids of its orphans.
 */
export const countsSql = (deletion: string, cluster: string): string =>
  `(${deletion}.kind <> 'ORPHAN' or ${deletion}.cluster = ${cluster})`

/**
 * Ids of services and environments on a cluster for which there is neither a row nor a deletion. `trusted`: everything
 * inside an environment was put there by this server, so that its labels count; else only environments do.
 */
export const readUnknown = async (
  db: Queryable,
  cluster: string,
  owned: Owned,
  trusted: boolean,
): Promise<string[]> => {
  const inside = [...owned.volumes, ...owned.instances.filter(({ taskId }) => taskId === undefined)]
  const ids = new Set([...owned.environments, ...(trusted ? inside.map(({ serviceId }) => serviceId) : [])])
  const rows = await db.query<{ id: string }>(
    `select w.id from unnest($1::uuid[]) as w (id) where not exists (select from node n where n.id = w.id)
       and not exists (select from deletion d where d.id = w.id and ${countsSql('d', '$2')})`,
    [[...ids].filter(isUuid), cluster],
  )
  return rows.map(({ id }) => id)
}

/** Versions of known services that this database never deployed. */
export const readUnknownVersions = async (db: Queryable, { instances }: Owned): Promise<string[]> => {
  const found = instances.filter(
    ({ taskId, serviceId, revision }) => taskId === undefined && isUuid(serviceId) && isUuid(revision),
  )
  const rows = await db.query<{ id: string }>(
    `select distinct i.service as id from unnest($1::uuid[], $2::uuid[]) as i (service, revision)
     where exists (select from node n where n.id = i.service)
       and not exists (select from deployment d where d.id = i.revision)
       and not exists (select from release r where r.service_id = i.service
         and (r.deployment_id = i.revision or r.workload ->> 'revision' = i.revision::text))`,
    [found.map(({ serviceId }) => serviceId), found.map(({ revision }) => revision)],
  )
  return rows.map(({ id }) => id)
}

/** The ids that are not listed as orphans. */
export const withoutOrphans = async (db: Queryable, ids: readonly string[]): Promise<string[]> => {
  const rows = await db.query<{ id: string }>(
    'select i.id from unnest($1::uuid[]) as i (id) where not exists (select from orphan o where o.id = i.id)',
    [ids],
  )
  return rows.map(({ id }) => id)
}

/** Puts deployments in progress on the cluster back into the queue until an operator has decided. */
export const queueAgain = (db: Queryable, cluster: string, keySql: string): Promise<unknown> =>
  db.query(
    `update deployment d set state = 'QUEUED', worker = null, lease_until = null
     where d.state = 'RUNNING' and ${keySql} = $1`,
    [cluster],
  )
