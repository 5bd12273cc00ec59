/**
 * Leases on the rows of a table: shared by `deployment`, `task_run`, `watched_repository` and others. Promises that a
 * row belongs to one worker at a time, and that a worker which lost it can write nothing more: every claim raises the
 * row's fence. When the process dies, the lease runs out and another worker claims the row. Does not know what is done
 * with it.
 */
import { LeaseHandedOff } from '../lib/lease-handed-off.ts'
import type { Database, Queryable } from '../store/database.ts'

export const leaseMs = 15_000

export interface Leased {
  id: string
  fence: string
}

/** The lease was lost to another worker. The code that gets this must stop and write nothing. */
export class LeaseLost extends LeaseHandedOff {
  constructor() {
    super('the lease was lost')
    this.name = 'LeaseLost'
  }
}

/** `lease_until` of a lease that begins now; the length is the statement's parameter of that number. */
export const leaseEnd = (parameter: number): string => `clock_timestamp() + $${parameter} * interval '1 millisecond'`

/** A table whose rows are worked on under leases: `worker`, `fence`, `lease_until`. */
export interface LeaseTable<C extends Leased> {
  name:
    | 'deployment'
    | 'task_run'
    | 'cluster_work'
    | 'watched_repository'
    | 'commit_status'
    | 'watched_image'
    | 'preview_source'
    | 'preview'
    | 'certificate'
    | 'git_repository'
    | 'managed_cluster'
    | 'backup'
    | 'database_restore'
  /** Which rows are in progress, in SQL. Absent: those whose `state` is RUNNING. */
  open?: string
  /** How a row becomes a claim, in SQL. */
  columns: string
  claim?: C
}

const running = `state = 'RUNNING'`

/** Claims one row whose worker has died; null if there is none. */
export const takeOver = async <C extends Leased>(
  database: Database,
  { name, columns, open = running }: LeaseTable<C>,
  worker: string,
): Promise<C | null> => {
  const [row] = await database.query<C>(
    `update ${name} set worker = $1, fence = fence + 1, lease_until = ${leaseEnd(2)}
     where id = (select id from ${name} where ${open} and lease_until < clock_timestamp()
       order by lease_until limit 1 for update skip locked)
     returning ${columns}`,
    [worker, leaseMs],
  )
  return row ?? null
}

/** Renews these leases; returns those still ours. */
export const renewLeases = <C extends Leased>(
  database: Database,
  { name, columns, open = running }: LeaseTable<C>,
  worker: string,
  ids: readonly string[],
): Promise<C[]> =>
  database.query<C>(
    `update ${name} set lease_until = ${leaseEnd(3)} where worker = $1 and id = any($2) and ${open}
     returning ${columns}`,
    [worker, ids, leaseMs],
  )

/** Releases those of `worker`, so that any worker can claim them. */
export const releaseLeases = async <C extends Leased>(
  database: Database,
  { name, open = running }: LeaseTable<C>,
  worker: string,
  ids: readonly string[],
): Promise<void> => {
  await database.query(`update ${name} set lease_until = '-infinity' where worker = $1 and id = any($2) and ${open}`, [
    worker,
    ids,
  ])
}

/** Ends every lease now. Only for a start when no other worker can be alive. */
export const expireLeases = async <C extends Leased>(
  database: Database,
  { name, open = running }: LeaseTable<C>,
): Promise<void> => {
  await database.query(`update ${name} set lease_until = '-infinity' where ${open}`)
}

/** Runs `work` in a transaction that holds the row: rejects with `LeaseLost` when the fence has moved on. */
export const holdLease = <T, C extends Leased>(
  database: Database,
  { name, open = running }: LeaseTable<C>,
  claim: Leased,
  work: (tx: Queryable) => Promise<T>,
): Promise<T> =>
  database.transaction(async (tx) => {
    const [row] = await tx.query(`select 1 from ${name} where id = $1 and fence = $2 and ${open} for no key update`, [
      claim.id,
      claim.fence,
    ])
    if (row === undefined) throw new LeaseLost()
    return work(tx)
  })

const heartbeatMs = 4000

/** For a worker whose pieces of work are rows of this table: how they are kept while they are worked on, and given back. */
export const heldByLease = <C extends Leased>(database: Database, table: LeaseTable<C>, worker: string) => ({
  renew: {
    everyMs: heartbeatMs,
    leaseMs,
    async renew(ids: readonly string[]): Promise<ReadonlyMap<string, Error>> {
      const held = new Set((await renewLeases(database, table, worker, ids)).map(({ id }) => id))
      return new Map(ids.filter((id) => !held.has(id)).map((id) => [id, new LeaseLost()]))
    },
  },
  release: (all: readonly Leased[]): Promise<void> => {
    const ids = all.map(({ id }) => id)
    return releaseLeases(database, table, worker, ids)
  },
})
