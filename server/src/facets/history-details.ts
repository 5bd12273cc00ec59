/** The details of a service's deployment in histories: commit, image, schedule. */
import Type, { type TSchema } from 'typebox'
import { Maybe, Nullable, OneOf, Open, Text } from '../api/operations/schema.ts'
import { type Kind, kinds } from '../kinds.ts'

const configured = (field: string): string => `n.spec #>> '{source,image,${field}}', n.spec ->> '${field}'`

/**
 * Over the tables of a history: the release `r`, the service `n`, its part of the deployment `w`. An image is the one
 * that the release pulled; without a release, the requested or configured one.
 */
export const detailColumns = `r.workload -> 'entrypoint' as entrypoint, r.workload -> 'arguments' as arguments,
  coalesce(r.source ->> 'name', ${configured('image_name')}) as "imageName",
  coalesce(r.source ->> 'tag', w.requested ->> 'imageTag', ${configured('tag')}) as "imageTag",
  n.spec -> 'schedule' as schedule`

export interface DetailRow {
  kind: Kind
  entrypoint: string[] | null
  arguments: string[] | null
  /** Null without an image. */
  imageName: string | null
  imageTag: string | null
  schedule: { cronjob?: object } | null
}

export const Details = <Commit extends TSchema>(commit: Commit) =>
  Type.Object({
    commit: Nullable(commit),
    build_pod_name: Text(),
    image_name: Maybe(Text()),
    tag: Maybe(Text()),
    arguments: Maybe(Type.Array(Text())),
    entrypoint: Maybe(Text()),
    schedule: Maybe(Open()),
    job_type: Maybe(OneOf(['CRON', 'LIFECYCLE'])),
  })

/** Name, tag and command; empty without an image. */
export const imageDetails = (row: DetailRow) =>
  row.imageName === null
    ? {}
    : {
        image_name: row.imageName,
        tag: row.imageTag ?? '',
        arguments: row.arguments ?? [],
        ...(row.entrypoint === null ? {} : { entrypoint: row.entrypoint.join(' ') }),
      }

const jobDetails = ({ schedule }: DetailRow) => {
  const { cronjob, ...events } = schedule ?? {}
  return cronjob === undefined
    ? { schedule: events, job_type: 'LIFECYCLE' }
    : { schedule: { cron_job: cronjob }, job_type: 'CRON' }
}

const eventOfAction: Record<string, string> = { STOP: 'ON_STOP', DELETE: 'ON_DELETE', UNINSTALL: 'ON_DELETE' }

/** The older form has what triggered a job; empty for other kinds. */
export const oldSchedule = ({ kind, schedule, action }: DetailRow & { action: string }) => {
  if (!kinds[kind].schedule) return {}
  const cron = schedule?.cronjob as { scheduled_at?: string } | undefined
  return cron === undefined
    ? { schedule: { event: eventOfAction[action] ?? 'ON_START', schedule_at: null } }
    : { schedule: { event: 'CRON', schedule_at: cron.scheduled_at ?? null } }
}

export const detailsOf = <Commit>(row: DetailRow, commit: Commit) => ({
  commit,
  build_pod_name: '',
  // A job built from a repository has no image, but its record requires one.
  ...(kinds[row.kind].schedule ? { image_name: '', tag: '', ...jobDetails(row) } : {}),
  ...imageDetails(row),
})
