/**
 * Backups by the clock. Promises that a time that was missed, because no server ran, is made up for once; that a database
 * whose backup takes longer than the time between two has one at a time; and that what is not kept any more is removed. If
 * the process dies, nothing is lost: the next times are in the rows.
 */
import { parseCron } from '../lib/time/cron.ts'
import { nextTime } from '../lib/time/next-time.ts'
import type { Queryable } from '../store/database.ts'
import { createLoop, type Loop } from '../work/loop.ts'
import type { BackupParts } from './parts.ts'
import { insertBackup, requestRemoval } from './records.ts'
import { type Aged, expiredOf, type Keep } from './retention.ts'

/** Wakes the loop when a schedule is changed; empty payload. */
export const backupScheduleChannel = 'slipway_backup_schedule'

export interface BackupSchedule extends Keep {
  /** Null: a folder of this server. */
  storageId: string | null
  enabled: boolean
  expression: string
  timeZone: string
}

const longestPauseMs = 60_000
/** Failed ones by the clock that are listed. */
const failedKept = 20

const nextOf = ({ enabled, expression, timeZone }: BackupSchedule, now: Date): Date | null => {
  const cron = enabled ? parseCron(expression) : null
  return cron === null ? null : nextTime(cron, timeZone, now)
}

/** An unchanged time keeps the next one that is known, also if it was missed. */
export const setBackupSchedule = async (
  tx: Queryable,
  databaseId: string,
  schedule: BackupSchedule,
  now: Date,
): Promise<void> => {
  const { enabled, expression, timeZone, last, daily, weekly, monthly, storageId } = schedule
  await tx.query(
    `insert into backup_schedule (database_id, organization_id, enabled, expression, time_zone, keep_last, keep_daily,
       keep_weekly, keep_monthly, next_at, storage_id)
     select n.id, n.organization_id, $2, $3, $4, $5, $6, $7, $8, $9, $10 from node n where n.id = $1
     on conflict (database_id) do update set enabled = excluded.enabled, expression = excluded.expression,
       time_zone = excluded.time_zone, keep_last = excluded.keep_last, keep_daily = excluded.keep_daily,
       keep_weekly = excluded.keep_weekly, keep_monthly = excluded.keep_monthly,
       storage_id = excluded.storage_id,
       next_at = case when (backup_schedule.enabled, backup_schedule.expression, backup_schedule.time_zone)
         = (excluded.enabled, excluded.expression, excluded.time_zone) then backup_schedule.next_at
         else excluded.next_at end`,
    [databaseId, enabled, expression, timeZone, last, daily, weekly, monthly, nextOf(schedule, now), storageId],
  )
  await tx.query(`select pg_notify('${backupScheduleChannel}', '')`)
}

interface DueRow extends BackupSchedule {
  databaseId: string
  at: Date
}

const columns = `database_id as "databaseId", enabled, expression, time_zone as "timeZone", keep_last as last,
  keep_daily as daily, keep_weekly as weekly, keep_monthly as monthly, next_at as at,
  storage_id as "storageId"`

/** Begins those that are due, a few at a time; another server has the others. Returns how many. */
const beginDue = ({ database, clock, log }: BackupParts): Promise<number> =>
  database.transaction(async (tx) => {
    const due = await tx.query<DueRow>(
      `select ${columns} from backup_schedule where next_at <= $1 order by next_at limit 20 for update skip locked`,
      [clock.now()],
    )
    for (const row of due) {
      const { databaseId, storageId } = row
      await tx.query('update backup_schedule set next_at = $2 where database_id = $1', [
        databaseId,
        nextOf(row, clock.now()),
      ])
      const open = `select 1 from backup where database_id = $1 and state in ('QUEUED', 'RUNNING', 'VERIFYING')`
      if ((await tx.query(open, [databaseId])).length > 0) {
        log.warn({ database: databaseId }, 'a scheduled backup was skipped: the one before is still under way')
        continue
      }
      await insertBackup(tx, { databaseId, name: row.at.toISOString(), message: '', origin: 'SCHEDULE', storageId })
    }
    return due.length
  })

const failedSql = `select id from backup where database_id = $1 and origin = 'SCHEDULE' and state = 'FAILED'
  and coalesce(made_by = $2, true)
  order by created_at desc offset ${failedKept}`

/**
 * Removes what a schedule does not keep, and this control plane has made; backups by hand are kept until they are
 * deleted.
 */
const expire = async ({ database, writer }: BackupParts, row: DueRow): Promise<void> => {
  const backups = await database.query<Aged>(
    `select id, created_at as at, state = 'VERIFIED' as "isGood" from backup
     where database_id = $1 and origin = 'SCHEDULE' and state in ('VERIFIED', 'UNVERIFIED') and made_by = $2`,
    [row.databaseId, writer],
  )
  const failed = await database.query<{ id: string }>(failedSql, [row.databaseId, writer])
  const expired = [...expiredOf(backups, row, row.timeZone), ...failed.map(({ id }) => id)]
  if (expired.length > 0) await database.transaction((tx) => requestRemoval(tx, expired))
}

/** Once their organization is gone, no user could delete them. */
const removeOfGone = async ({ database }: BackupParts): Promise<void> => {
  const gone = await database.query<{ id: string }>(
    `select id from backup b where state <> 'DELETING'
       and not exists (select from node n where n.id = b.organization_id) limit 1000`,
  )
  const ids = gone.map(({ id }) => id)
  if (ids.length > 0) await database.transaction((tx) => requestRemoval(tx, ids))
}

const turn = async (parts: BackupParts): Promise<number> => {
  const { database, clock } = parts
  while ((await beginDue(parts)) > 0);
  for (const row of await database.query<DueRow>(`select ${columns} from backup_schedule`)) await expire(parts, row)
  await removeOfGone(parts)
  const [next] = await database.query<{ at: Date | null }>('select min(next_at) as at from backup_schedule')
  const waitMs = next?.at == null ? longestPauseMs : next.at.getTime() - clock.now().getTime()
  return Math.max(0, Math.min(longestPauseMs, waitMs))
}

export const startBackupSchedules = async (parts: BackupParts): Promise<Pick<Loop, 'stop'>> => {
  const loop = createLoop(parts, {
    name: 'backup schedules',
    periodMs: longestPauseMs,
    failed: 'the schedules of backups wait for the database',
    run: () => turn(parts),
  })
  const leave = await parts.database.listen(backupScheduleChannel, () => loop.wake())
  return {
    async stop() {
      leave()
      await loop.stop()
    },
  }
}
