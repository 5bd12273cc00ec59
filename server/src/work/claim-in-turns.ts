/**
 * Claims rows that are due, under leases, so that organizations take turns: none has more than a few at once, however
 * many of its rows are due. Does not know what is done with them.
 */
import type { Database } from '../store/database.ts'
import { type Leased, type LeaseTable, leaseEnd, leaseMs } from './lease.ts'

/** A table with `organization_id`, whose rows are due at a time. */
export interface DueTable<C extends Leased> {
  table: LeaseTable<C>
  dueAt: 'next_at' | 'due_at'
  /** The most rows of one organization at once. */
  perOrganization: number
  /** The order of rows that are due at the same time, in SQL; default `id`. */
  order?: string
  /** Further rows that are due: their ids, and when the next one will be, in SQL. */
  also?: { due: string; next: string }
}

export interface Claimed<C> {
  claimed: C[]
  /** Until the next one is due; null if none waits. */
  nextDueMs: number | null
}

const claimSql = <C extends Leased>({ table, dueAt, perOrganization, order = 'id', also }: DueTable<C>): string => `
  with due as (
    select id from ${table.name} where ${dueAt} <= clock_timestamp()${also === undefined ? '' : ` union ${also.due}`}
  ), busy as (
    select organization_id, count(*) as held from ${table.name}
    where lease_until > '-infinity' and lease_until >= clock_timestamp() group by organization_id
  ), candidate as (
    select t.id, t.${dueAt} as at, coalesce(b.held, 0)
      + row_number() over (partition by t.organization_id order by t.${dueAt}, t.${order}) as turn
    from due join ${table.name} t using (id) left join busy b using (organization_id)
    where t.lease_until < clock_timestamp()
  ), chosen as (
    select t.id from candidate c join ${table.name} t using (id)
    where c.turn <= ${perOrganization} and t.lease_until < clock_timestamp()
    order by c.turn, c.at limit $3 for update of t skip locked
  )
  update ${table.name} set worker = $1, fence = fence + 1, lease_until = ${leaseEnd(2)}
  where id in (select id from chosen) returning ${table.columns}`

const nextSql = <C extends Leased>({ table, dueAt, also }: DueTable<C>): string =>
  `select (extract(epoch from least(
      (select min(${dueAt}) from ${table.name} where ${dueAt} > clock_timestamp() and ${dueAt} < 'infinity')
      ${also === undefined ? '' : `, (${also.next})`}
    ) - clock_timestamp()) * 1000)::float8 as wait`

export const claimInTurns = <C extends Leased>(due: DueTable<C>) => {
  const [claim, next] = [claimSql(due), nextSql(due)]
  return async (database: Database, worker: string, room: number): Promise<Claimed<C>> => {
    const claimed = await database.query<C>(claim, [worker, leaseMs, room])
    const [row] = await database.query<{ wait: number | null }>(next)
    return { claimed, nextDueMs: row?.wait ?? null }
  }
}
