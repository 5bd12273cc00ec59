/**
 * When a job runs: on a schedule (cron job), or when its environment is deployed, stopped or deleted (lifecycle job).
 * Pure.
 */
import Type from 'typebox'
import type { Spec } from '../../api/operations/resource.ts'
import { List, Maybe, Nullable, OneOf, Recorded, Text } from '../../api/operations/schema.ts'
import type { TaskSpec } from '../../deployments/deployments.ts'
import { invalidField } from '../../lib/errors.ts'
import { isTimeZone, parseCron } from '../../lib/time/cron.ts'
import { commandOf } from '../service/running.ts'

const lifecycleTypes = ['GENERIC', 'TERRAFORM', 'CLOUDFORMATION']

const commandFields = () => ({
  arguments: Maybe(List(Text(4096), 200, { default: [] })),
  entrypoint: Maybe(Nullable(Text(4096))),
})
const Command = () => Maybe(Nullable(Type.Object(commandFields())))

/** The form in requests and responses. */
export const Schedule = () =>
  Type.Object({
    on_start: Command(),
    on_stop: Command(),
    on_delete: Command(),
    lifecycle_type: Maybe(Recorded(Nullable(OneOf(lifecycleTypes)))),
    cronjob: Maybe(
      Nullable(
        Type.Object({
          ...commandFields(),
          timezone: Maybe(Text(100, { default: 'Etc/UTC' })),
          scheduled_at: Text(200, { description: 'A cron expression with five fields.' }),
        }),
      ),
    ),
  })

export interface JobCommand {
  arguments?: string[]
  entrypoint?: string | null
}

export interface CronSchedule extends JobCommand {
  timezone: string
  scheduled_at: string
}

export interface JobSchedule {
  on_start?: JobCommand
  on_stop?: JobCommand
  on_delete?: JobCommand
  lifecycle_type?: string
  cronjob?: CronSchedule
}

const events = ['on_start', 'on_stop', 'on_delete'] as const

/** Names of events in deployments. */
export const taskEvents = ['START', 'STOP', 'DELETE', 'CRON'] as const

export const commandFor = (schedule: JobSchedule, event: (typeof taskEvents)[number]): JobCommand | undefined =>
  ({
    START: schedule.on_start,
    STOP: schedule.on_stop,
    DELETE: schedule.on_delete,
    CRON: schedule.cronjob,
  })[event]

/** What the engine runs, and when. */
export const tasksOf = (schedule: JobSchedule): Pick<TaskSpec, 'on' | 'cron'> => {
  const { cronjob } = schedule
  const commands = taskEvents.flatMap((event) => {
    const command = commandFor(schedule, event)
    return command === undefined ? [] : [[event, commandOf(command)]]
  })
  return {
    on: Object.fromEntries(commands),
    cron: cronjob === undefined ? null : { expression: cronjob.scheduled_at, timeZone: cronjob.timezone },
  }
}

const withoutNulls = <T extends object>(sent: T): T =>
  Object.fromEntries(Object.entries(sent).filter(([, value]) => value !== null && value !== undefined)) as T

const completeCommand = (sent: JobCommand): JobCommand => ({ arguments: [], ...withoutNulls(sent) })

const completeCron = (sent: Partial<CronSchedule> & { scheduled_at: string }): CronSchedule => {
  const { timezone = 'Etc/UTC', scheduled_at } = sent
  const field = '/schedule/cronjob'
  if (parseCron(scheduled_at) === null)
    throw invalidField(`${field}/scheduled_at`, 'must be a cron expression with five fields, such as 0 3 * * *')
  if (!isTimeZone(timezone)) throw invalidField(`${field}/timezone`, 'must be an IANA time zone, such as Europe/Paris')
  return { ...completeCommand(sent), timezone, scheduled_at }
}

/** Validates and completes a schedule: a cron job or a lifecycle job, not both. */
export const completeSchedule = (sent: unknown): JobSchedule => {
  const { cronjob, lifecycle_type: type = 'GENERIC', ...on } = withoutNulls((sent ?? {}) as Spec) as JobSchedule
  const commands = events.flatMap((event) => (on[event] === undefined ? [] : [[event, completeCommand(on[event])]]))
  if (cronjob !== undefined && commands.length > 0)
    throw invalidField(
      '/schedule',
      'must have either `cronjob` or some of `on_start`, `on_stop` and `on_delete`, not both',
    )
  if (cronjob !== undefined) return { cronjob: completeCron(cronjob) }
  if (commands.length === 0)
    throw invalidField('/schedule', 'must have `cronjob`, or one of `on_start`, `on_stop` and `on_delete`')
  return { ...Object.fromEntries(commands), lifecycle_type: type }
}
