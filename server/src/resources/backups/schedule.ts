/** When a database is backed up by the clock, and which of these backups are kept. */
import Type from 'typebox'
import {
  type Context,
  editing,
  nodeInPath,
  type Operation,
  operation,
  reading,
} from '../../api/operations/operation.ts'
import { auditOf, checkRefs, placeOf } from '../../api/operations/resource-writes.ts'
import { Computed, Flag, Maybe, Nullable, Ref, Text, Timestamp, Uuid, Whole } from '../../api/operations/schema.ts'
import { type BackupSchedule, setBackupSchedule } from '../../backups/schedules.ts'
import { invalidField } from '../../lib/errors.ts'
import { isTimeZone, parseCron } from '../../lib/time/cron.ts'
import type { Queryable } from '../../store/database.ts'
import { timestampSql, writeAudit } from '../../store/tree.ts'

const usual = { enabled: false, expression: '0 3 * * *', timeZone: 'Etc/UTC', last: 3, daily: 7, weekly: 4, monthly: 6 }

const fields = {
  enabled: Flag({ description: 'Without it, nothing is made by the clock, and what was made is kept as before.' }),
  scheduled_at: Text(100, { description: 'Five fields of cron, such as `0 3 * * *`.' }),
  timezone: Text(100),
  keep_last: Whole(0, 1000, { description: 'The newest ones that are verified; the very newest one is always kept.' }),
  keep_daily: Whole(0, 1000, { description: 'The newest one of each of so many days.' }),
  keep_weekly: Whole(0, 1000, { description: 'The newest one of each of so many weeks.' }),
  keep_monthly: Whole(0, 1000, { description: 'The newest one of each of so many months.' }),
}

const Schedule = Type.Object(
  { ...fields, storage_id: Nullable(Uuid()), next_at: Computed(Nullable(Timestamp())) },
  { title: 'DatabaseBackupSchedule' },
)
type ScheduleRecord = Type.Static<typeof Schedule>

const Body = Type.Object({
  enabled: Maybe(Flag({ default: true })),
  scheduled_at: fields.scheduled_at,
  timezone: Maybe(Text(100, { default: usual.timeZone })),
  keep_last: Maybe(Whole(0, 1000, { default: usual.last })),
  keep_daily: Maybe(Whole(0, 1000, { default: usual.daily })),
  keep_weekly: Maybe(Whole(0, 1000, { default: usual.weekly })),
  keep_monthly: Maybe(Whole(0, 1000, { default: usual.monthly })),
  storage_id: Maybe(Nullable(Ref('backup_storage'))),
})

const none: ScheduleRecord = {
  enabled: false,
  scheduled_at: usual.expression,
  timezone: usual.timeZone,
  keep_last: usual.last,
  keep_daily: usual.daily,
  keep_weekly: usual.weekly,
  keep_monthly: usual.monthly,
  storage_id: null,
  next_at: null,
}

const readSchedule = async (db: Queryable, databaseId: string): Promise<ScheduleRecord> => {
  const [row] = await db.query<ScheduleRecord>(
    `select enabled, expression as scheduled_at, time_zone as timezone, keep_last, keep_daily, keep_weekly, keep_monthly,
       storage_id,
       ${timestampSql('next_at')} as next_at from backup_schedule where database_id = $1`,
    [databaseId],
  )
  return row ?? none
}

const common = {
  tag: 'Backups',
  area: 'projects',
  owner: nodeInPath('database', 'databaseId'),
  path: '/database/{databaseId}/backupSchedule',
} as const

const scheduleOf = (body: Type.Static<typeof Body>): BackupSchedule => {
  const { enabled = true, scheduled_at: expression, timezone: timeZone = usual.timeZone } = body
  if (parseCron(expression) === null)
    throw invalidField('/scheduled_at', 'must be five fields of cron: minute, hour, day, month, weekday')
  if (!isTimeZone(timeZone)) throw invalidField('/timezone', 'is not the name of a time zone, such as Europe/Paris')
  const { keep_last: last = usual.last, keep_daily: daily = usual.daily } = body
  const { keep_weekly: weekly = usual.weekly, keep_monthly: monthly = usual.monthly } = body
  return { enabled, expression, timeZone, last, daily, weekly, monthly, storageId: body.storage_id ?? null }
}

const read = operation({
  id: 'getDatabaseBackupSchedule',
  ...reading,
  ...common,
  summary: 'Read when a database is backed up by the clock',
  answer: Schedule,
  run: ({ db, node }) => readSchedule(db, node.id),
})

const edit = operation({
  id: 'editDatabaseBackupSchedule',
  ...editing,
  ...common,
  summary: 'Set when a database is backed up by the clock, and which of these backups are kept',
  body: Body,
  defaults: true,
  answer: Schedule,
  async run(context) {
    const { node, body, parts, principal } = context
    const schedule = scheduleOf(body)
    await checkRefs(context.db, Body, body, principal.organizationId)
    return context.transaction(async (tx) => {
      await setBackupSchedule(tx, node.id, schedule, parts.clock.now())
      const audit = auditOf(context as Context, 'UPDATE', { target: 'DATABASE' }, placeOf(node), { schedule: body })
      await writeAudit(tx, principal.organizationId, node, audit)
      return readSchedule(tx, node.id)
    })
  },
})

export const backupScheduleOperations: readonly Operation[] = [read, edit]
