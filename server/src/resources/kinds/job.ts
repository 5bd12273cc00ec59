/**
 * Jobs: programs that end, run from an image of a registry or from a git repository, on a schedule (cron) or when their
 * environment is deployed, stopped or deleted (lifecycle).
 */
import Type from 'typebox'
import type { Context } from '../../api/operations/operation.ts'
import type { Change, Spec } from '../../api/operations/resource.ts'
import {
  Computed,
  Flag,
  List,
  Maybe,
  Nullable,
  OneOf,
  Recorded,
  Refused,
  Text,
  Whole,
} from '../../api/operations/schema.ts'
import { mainTask, type TaskSpec, type WorkloadSpec } from '../../deployments/deployments.ts'
import { deployable } from '../../facets/deployable.ts'
import { ImageTag, MaybeCommitId, MaybeImageTag } from '../../facets/deployment-request.ts'
import { history } from '../../facets/history.ts'
import { releases } from '../../facets/releases.ts'
import { runs } from '../../facets/runs/runs.ts'
import { advancedSettings } from '../../facets/settings/advanced-settings.ts'
import { deploymentRestrictions } from '../../facets/settings/deployment-restriction.ts'
import { buildLimitsIn, jobSettings, keptIn, overlapIn } from '../../facets/settings/settings.ts'
import { invalidField, notFound } from '../../lib/errors.ts'
import { isTimeZone, parseCron } from '../../lib/time/cron.ts'
import { autoDeploy } from '../service/auto-deploy.ts'
import {
  Build,
  type BuildFields,
  completeBuild,
  GitRepository,
  gitSourceOf,
  viewGitRepository,
} from '../service/git-source.ts'
import {
  ImageName,
  ImageRequest,
  type ImageSpec,
  imageSourceOf,
  Registry,
  registrySql,
} from '../service/image-source.ts'
import {
  autoPreview,
  checkProbes,
  completePorts,
  Healthchecks,
  type KeptHealthchecks,
  type Port,
} from '../service/parts.ts'
import { commandOf, Resources, refuseBeyondCluster, workloadOf } from '../service/running.ts'
import { type Filled, type GitFacts, service } from '../service/service.ts'

const lifecycleTypes = ['GENERIC', 'TERRAFORM', 'CLOUDFORMATION']

const commandFields = () => ({
  arguments: Maybe(List(Text(4096), 200, { default: [] })),
  entrypoint: Maybe(Nullable(Text(4096))),
})
const Command = () => Maybe(Nullable(Type.Object(commandFields())))

/** The form in requests and responses. */
const Schedule = () =>
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

interface JobCommand {
  arguments?: string[]
  entrypoint?: string | null
}

interface CronSchedule extends JobCommand {
  timezone: string
  scheduled_at: string
}

interface JobSchedule {
  on_start?: JobCommand
  on_stop?: JobCommand
  on_delete?: JobCommand
  lifecycle_type?: string
  cronjob?: CronSchedule
}

const events = ['on_start', 'on_stop', 'on_delete'] as const

const taskEvents = ['START', 'STOP', 'DELETE', 'CRON'] as const

/**
 * When a job runs: on a schedule (cron job), or when its environment is deployed, stopped or deleted (lifecycle job).
 * Pure.
 */
const commandFor = (schedule: JobSchedule, event: (typeof taskEvents)[number]): JobCommand | undefined =>
  ({
    START: schedule.on_start,
    STOP: schedule.on_stop,
    DELETE: schedule.on_delete,
    CRON: schedule.cronjob,
  })[event]

const tasksOf = (schedule: JobSchedule): Pick<TaskSpec, 'on' | 'cron'> => {
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
const completeSchedule = (sent: unknown): JobSchedule => {
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

const imagePath = ['source', 'image']
const dockerPath = ['source', 'docker']

const longestSeconds = 604_800

const noTraffic = 'a job gets no traffic, and how its program ends is its only check.'

const spec = Type.Object({
  ...Resources(),
  max_nb_restart: Maybe(Whole(0, 100, { default: 0 })),
  max_duration_seconds: Maybe(
    Whole(0, longestSeconds, { default: 3600, description: '0 means the maximum, one week.' }),
  ),
  auto_preview: Maybe(Flag({ default: false, description: autoPreview })),
  auto_deploy: Maybe(Nullable(Flag(), { default: false })),
  port: Maybe(Recorded(Nullable(Whole(1, 65_535)), noTraffic)),
  healthchecks: Maybe(Recorded(Healthchecks({ default: {} }), noTraffic)),
  source: Type.Object({
    image: Maybe(Nullable(Type.Object(ImageRequest()))),
    docker: Maybe(
      Nullable(
        Type.Object({
          ...Build(),
          dockerfile_raw: Maybe(
            Refused(Nullable(Text(65_536)), 'is not supported: put the Dockerfile in the repository'),
          ),
        }),
      ),
    ),
  }),
  schedule: Schedule(),
})

const Source = () =>
  Type.Object({
    image: Maybe(
      Type.Object({ image_name: ImageName(), tag: ImageTag(), registry_id: Text(36), registry: Registry() }),
    ),
    docker: Maybe(
      Type.Object({ ...Build(), git_repository: GitRepository(), dockerfile_raw: Maybe(Nullable(Text())) }),
    ),
  })

type JobSource = {
  image?: ImageSpec
  docker?: BuildFields
}

type JobSpec = {
  cpu: number
  memory: number
  max_nb_restart: number
  max_duration_seconds: number
  port?: number | null
  healthchecks: KeptHealthchecks
  auto_deploy: boolean
  source: JobSource
  schedule: JobSchedule
}

type Request = Filled<
  typeof spec,
  Pick<JobSpec, 'cpu' | 'memory' | 'max_nb_restart' | 'max_duration_seconds' | 'healthchecks'>
>

const completeSource = (sent: Spec, before: JobSource | undefined): JobSource => {
  const image = (sent.image ?? undefined) as ImageSpec | undefined
  const docker = (sent.docker ?? undefined) as Spec | undefined
  if ((image === undefined) === (docker === undefined))
    throw invalidField('/source', 'must have either `image` or `docker`')
  if (image !== undefined) return { image }
  const { dockerfile_raw: _, ...build } = docker!
  return { docker: { ...build, ...completeBuild(build, before?.docker, '/source/docker') } }
}

const portsOf = ({ port }: Pick<JobSpec, 'port'>): Port[] =>
  port === null || port === undefined ? [] : completePorts([{ internal_port: port }], [])

/** Resources of one run; nothing keeps running. */
const workloadOfJob = (kept: JobSpec): WorkloadSpec =>
  workloadOf({
    ...kept,
    min_running_instances: 0,
    max_running_instances: 0,
    ports: portsOf(kept),
    storage: [],
    arguments: [],
  })

const complete = async (body: Request, _context: Context, change: Change<JobSpec>) => {
  const { previous } = change
  await refuseBeyondCluster(change, body)
  checkProbes(body.healthchecks ?? {}, portsOf(body))
  return {
    ...body,
    auto_deploy: body.auto_deploy === true,
    source: completeSource(body.source, previous?.spec.source),
    schedule: completeSchedule(body.schedule),
  }
}

const viewSource = ({ image, docker }: JobSource, registry: unknown, { commit, tokenName }: GitFacts): Spec => {
  if (docker === undefined) return { image: { ...image, registry } }
  return { docker: { ...docker, git_repository: viewGitRepository(docker.git_repository, commit, tokenName) } }
}

const DeployBody = Type.Object({ image_tag: MaybeImageTag(), git_commit_id: MaybeCommitId() })
const DeployQuery = Type.Object({ forceEvent: Maybe(OneOf(taskEvents)) })

const isNamed = (value: unknown): boolean => typeof value === 'string' && value !== ''

const readSpec = async ({ db, node }: Context): Promise<JobSpec> => {
  const [row] = await db.query<{ spec: JobSpec }>('select spec from node where id = $1', [node.id])
  if (row === undefined) throw notFound()
  return row.spec
}

/** A version must match the job's source, image or repository; a job without the requested event is not run. */
const mayDeploy = async (context: Context): Promise<boolean> => {
  const { image_tag: tag, git_commit_id: commit } = context.body
  if (isNamed(tag) && isNamed(commit))
    throw invalidField('/image_tag', 'cannot be combined with `git_commit_id`: set only one of them')
  const { source, schedule } = await readSpec(context)
  if (isNamed(tag) && source.image === undefined)
    throw invalidField('/image_tag', 'is only for jobs that use an image; this job is built from a repository')
  if (isNamed(commit) && source.docker === undefined)
    throw invalidField('/git_commit_id', 'is only for jobs built from a repository; this job uses an image')
  const event = context.query.forceEvent as (typeof taskEvents)[number] | undefined
  return event === undefined || commandFor(schedule, event) !== undefined
}

export const job = service({
  kind: 'job',
  path: 'job',
  noun: 'Job',
  nounWithArticle: 'a job',
  list: { id: 'listJobs', words: 'jobs' },
  spec,
  record: {
    job_type: Computed(OneOf(['CRON', 'LIFECYCLE'])),
    source: Source(),
    schedule: Schedule(),
    healthchecks: Healthchecks(),
  },
  columns: { registry: registrySql(imagePath) },
  git: [...dockerPath, 'git_repository'],
  validate: complete,
  view: ({ registry, source, ...record }, git) => ({
    ...record,
    source: viewSource(source, registry, git),
    job_type: record.schedule.cronjob === undefined ? 'LIFECYCLE' : 'CRON',
  }),
  facets: [
    deployable({ deployBody: DeployBody, deployQuery: DeployQuery, mayDeploy }),
    history,
    releases,
    runs,
    advancedSettings(jobSettings),
    deploymentRestrictions,
    autoDeploy(imagePath),
  ],
  deployable: {
    source(kept) {
      const { image, docker } = kept.source
      return image === undefined ? gitSourceOf(docker!, buildLimitsIn(kept)) : imageSourceOf(image)
    },
    workload: workloadOfJob,
    push: ({ auto_deploy: isWanted }) => (isWanted ? {} : null),
    tasks(kept) {
      const { schedule, max_nb_restart: maxRestarts, max_duration_seconds: seconds } = kept
      const { on, cron } = tasksOf(schedule)
      const clock = cron === null ? null : { ...cron, ...overlapIn(kept) }
      const timeoutMs = 1000 * (seconds === 0 ? longestSeconds : seconds)
      return { [mainTask]: { on, cron: clock, maxRestarts, timeoutMs, ...keptIn(kept) } }
    },
  },
})
