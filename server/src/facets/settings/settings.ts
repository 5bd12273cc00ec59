/**
 * The advanced settings of services, by kind: every key with its type and default. Pure data. A key that has no effect
 * on this server is marked `Recorded`.
 */
import Type, { type TSchema } from 'typebox'
import {
  AllRecorded,
  Flag,
  ForKubernetes,
  List,
  Nullable,
  OneOf,
  Recorded,
  Refused,
  Text,
  Whole,
} from '../../api/operations/schema.ts'
import type { BuildLimits } from '../../deployments/deployments.ts'
import { type IngressSettings, ingressSettingsIn } from '../../deployments/traffic/ingress-settings.ts'
import { joinTag, splitTag } from '../../lib/docker/image-name.ts'
import { type KeptRuns, usuallyKept } from '../../work/schedule.ts'
import { containerKeys } from './container-settings.ts'
import { ingress, requestBuffering } from './ingress-settings.ts'
import { placementKeys } from './placement.ts'

export type Settings = Record<string, TSchema>

const percent = (value: number) => Whole(0, 100, { default: value })
const seconds = (value: number, minimum = 0) => Whole(minimum, 86_400, { default: value })
const flag = (value: boolean, description?: string) =>
  Flag({ default: value, ...(description === undefined ? {} : { description }) })
const text = (value: string) => Text(8192, { default: value })
const command = (description: string) => List(Text(4096), 100, { default: [], description })
const nothing = (schema: TSchema) => Nullable(schema, { default: null })
const labels = () =>
  Type.Unsafe<Record<string, string>>({
    type: 'object',
    additionalProperties: { type: 'string', maxLength: 255 },
    maxProperties: 50,
    default: {},
  })

const graceKey = 'deployment.termination_grace_period_seconds'
const usualGraceSeconds = 10

const buildKeys = {
  seconds: 'build.timeout_max_sec',
  millicores: 'build.cpu_max_in_milli',
  gigabytes: 'build.ram_max_in_gib',
  skipSubmodules: 'build.skip_git_submodules',
  noCache: 'build.disable_buildkit_cache',
} as const

const toolImageKey = 'build.engine_image'

const overlapKey = 'cronjob.concurrency_policy'

const keptKeys = {
  succeeded: 'cronjob.success_jobs_history_limit',
  failed: 'cronjob.failed_jobs_history_limit',
} as const

/** A job may run every minute for years. */
const mostKept = 100

const keptRuns = (which: string) =>
  Whole(0, mostKept, {
    default: usuallyKept,
    description: `How many ${which} runs are kept, each with the last 256 KB of its output; takes effect with the next deploy.`,
  })

const grace = { [graceKey]: Whole(0, 3600, { default: usualGraceSeconds }) }

const placement = {
  [placementKeys.machineLabels]: ForKubernetes(labels(), 'Only machines with these labels run it.'),
}

const rollout = {
  [placementKeys.apart]: ForKubernetes(
    OneOf(['Preferred', 'Requirred'], { default: 'Preferred' }),
    'Instances are spread over machines as well as can be; `Requirred`: no two of a version are on one machine.',
  ),
  [placementKeys.zones]: ForKubernetes(
    OneOf(['Disabled', 'ScheduleAnyway', 'DoNotSchedule'], { default: 'Disabled' }),
    'Instances of a version are spread over zones as well as can be, or (`DoNotSchedule`) do not start otherwise.',
  ),
  [containerKeys.strategy]: OneOf(['RollingUpdate', 'Recreate'], {
    default: 'RollingUpdate',
    description:
      'Recreate: the running version is stopped before the new one starts. RollingUpdate: all instances of the new version start beside the old ones, unless the service has storage.',
  }),
  'deployment.update_strategy.rolling_update.max_unavailable_percent': Recorded(
    percent(25),
    'no instance is taken away before its successor is ready.',
  ),
  [placementKeys.surge]: ForKubernetes(
    percent(25),
    'How many instances beyond those that are wanted there may be while a version replaces another one, but at least one; of services without storage.',
  ),
}

const lifecycle = {
  [containerKeys.postStart]: command(
    'Run in each instance after its start, at least once and within 120 s. If it does not exit with code 0, the deployment fails.',
  ),
  [containerKeys.preStop]: command(
    'Run in each instance before SIGTERM. Its time counts toward the termination grace period; its exit code does not matter.',
  ),
}

const build = {
  [buildKeys.seconds]: seconds(1800, 1),
  [buildKeys.millicores]: Whole(10, 1_000_000, { default: 2000 }),
  [buildKeys.gigabytes]: Whole(1, 65_536, { default: 2 }),
  [buildKeys.skipSubmodules]: Flag({
    default: false,
    description:
      'Leave submodules empty. Otherwise they are fetched, with the git token of the service if they are on the same host.',
  }),
}

const buildCache = {
  [buildKeys.noCache]: Flag({ default: false, description: 'Build every instruction anew, at every deployment.' }),
}

const domains = { 'deployment.custom_domain_check_enabled': Recorded(flag(true)) }

const cpuTargetKey = 'hpa.cpu.average_utilization_percent'
const memoryTargetKey = 'hpa.memory.average_utilization_percent'
const usualCpuPercent = 60

const scaling = {
  [cpuTargetKey]: Whole(1, 1000, {
    default: usualCpuPercent,
    description:
      "The average use of their `cpu` at which the number of a service's instances is right, between `min_running_instances` and `max_running_instances`. Takes effect with the next deploy.",
  }),
  [memoryTargetKey]: ForKubernetes(
    nothing(Whole(1, 1000)),
    'The same of their `memory`; of the two numbers of instances the larger one counts.',
  ),
}

const noAccounts = 'programs get no account of a cluster, and no token of one.'

const account = {
  'security.service_account_name': Refused(text(''), noAccounts),
  [containerKeys.readOnlyRoot]: flag(
    false,
    'Only storage can be written to; there is no writable /tmp unless storage is mounted there. Variables mounted as files must be in a folder. The output folders of a job stay writable.',
  ),
}

const accountToken = { 'security.automount_service_account_token': Refused(flag(false), noAccounts) }

const settingsOf = (...groups: Settings[]): Settings => Object.assign({}, ...groups)

const noCharts = 'a chart publishes what it makes itself: set it in its values.'

/** A protection is never only recorded. */
const protecting = [
  'network.ingress.whitelist_source_range',
  'network.ingress.denylist_source_range',
  'network.ingress.basic_auth_env_var',
]

const running = [domains, grace, placement, rollout, ingress, scaling, account, accountToken]

export const applicationSettings = settingsOf(...running, lifecycle, build, buildCache)

export const containerSettings = settingsOf(...running, requestBuffering)

export const jobSettings = settingsOf(grace, placement, build, buildCache, account, accountToken, {
  'job.delete_ttl_seconds_after_finished': Recorded(nothing(Whole(0))),
  [overlapKey]: OneOf(['Forbid', 'Allow', 'Replace'], { default: 'Forbid' }),
  [keptKeys.failed]: keptRuns('failed'),
  [keptKeys.succeeded]: keptRuns('successful'),
})

export const helmSettings = {
  ...AllRecorded(settingsOf(domains, ingress, requestBuffering), noCharts),
  ...Object.fromEntries(protecting.map((key) => [key, Refused(ingress[key]!, noCharts)])),
}

export const terraformSettings = settingsOf(grace, placement, build, account, {
  [containerKeys.readOnlyRoot]: Refused(flag(false), 'the tool writes to the folder of its module.'),
  'build.ephemeral_storage_in_gib': Recorded(Whole(0, 65_536, { default: 4 })),
  [toolImageKey]: Text(512, {
    default: '',
    pattern: '^(|[A-Za-z0-9][A-Za-z0-9._:/@-]*)$',
    description:
      "An image with the tool and a shell, pulled with the organization's registry logins; its tag defaults to the explicit version. If empty, the program installed on this server is used.",
  }),
})

export const defaultsOf = (settings: Settings): Record<string, unknown> =>
  Object.fromEntries(Object.entries(settings).map(([key, schema]) => [key, (schema as { default?: unknown }).default]))

const setIn = (spec: object): Record<string, number | undefined> =>
  (spec as { advanced_settings?: Record<string, number | undefined> }).advanced_settings ?? {}

/** The settings that the router acts on, as far as they differ from the defaults. */
export const ingressIn = (spec: object): IngressSettings | undefined => ingressSettingsIn(setIn(spec))

/** The target use of the processor limit of a service's instances, in percent. */
export const cpuPercentIn = (spec: object): number => setIn(spec)[cpuTargetKey] ?? usualCpuPercent

/** The same for their memory, if it is set. */
export const memoryPercentIn = (spec: object): { memoryPercent?: number } => {
  const { [memoryTargetKey]: memoryPercent } = setIn(spec)
  return memoryPercent === undefined || memoryPercent === null ? {} : { memoryPercent }
}

/** How long a service's program may take to exit before it is killed. */
export const stopGraceMs = (spec: object): number => 1000 * (setIn(spec)[graceKey] ?? usualGraceSeconds)

/** The same if the owner set it; at least 1 ms, which means no wait. */
export const chosenGraceMs = (spec: object): number | undefined => {
  const { [graceKey]: seconds } = setIn(spec)
  return seconds === undefined ? undefined : Math.max(1, 1000 * seconds)
}

/** The build settings in a service's configuration; unset ones are left out. */
export const buildLimitsIn = (spec: object): BuildLimits => {
  const {
    [buildKeys.seconds]: seconds,
    [buildKeys.millicores]: millicores,
    [buildKeys.gigabytes]: gigabytes,
  } = setIn(spec)
  const { [buildKeys.skipSubmodules]: skips, [buildKeys.noCache]: noCache } = setIn(spec) as Record<string, unknown>
  return {
    ...(seconds === undefined ? {} : { timeoutMs: 1000 * seconds }),
    ...(millicores === undefined ? {} : { cpuMillicores: millicores }),
    ...(gigabytes === undefined ? {} : { memoryMb: 1024 * gigabytes }),
    ...(skips === true ? { skipSubmodules: true } : {}),
    ...(noCache === true ? { noCache: true } : {}),
  }
}

/** The image that contains an infrastructure tool, at this version unless it names one; absent: none is named. */
export const toolImageIn = (spec: object, version: string): { image?: string } => {
  const { [toolImageKey]: image = '' } = setIn(spec) as { [toolImageKey]?: string }
  if (image === '') return {}
  return { image: splitTag(image).name === image && version !== '' ? joinTag(image, version) : image }
}

/** How many runs of a cron job are kept; left out if that is the default. */
export const keptIn = (spec: object): { kept?: KeptRuns } => {
  const set = setIn(spec)
  const numbers = Object.entries(keptKeys).flatMap(([name, key]) => {
    const count = set[key]
    return count === undefined || count === usuallyKept ? [] : [[name, Math.min(count, mostKept)] as const]
  })
  return numbers.length === 0 ? {} : { kept: Object.fromEntries(numbers) }
}

/** What happens when a cron job is due while its last run continues; left out if that is the default. */
export const overlapIn = (spec: object): { overlap?: 'Allow' | 'Replace' } => {
  const { [overlapKey]: overlap } = setIn(spec) as { [overlapKey]?: 'Forbid' | 'Allow' | 'Replace' }
  return overlap === undefined || overlap === 'Forbid' ? {} : { overlap }
}
