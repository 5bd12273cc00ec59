/**
 * The advanced settings of services, by kind: every key with its type and default. Pure data. A key that has no effect
 * on this server is stored and returned, and its description says so.
 */
import Type, { type TSchema } from 'typebox'
import { Flag, List, Nullable, OneOf, Text, Whole } from '../../api/operations/schema.ts'
import type { BuildLimits } from '../../deployments/deployments.ts'
import { joinTag, splitTag } from '../../lib/docker/image-name.ts'
import { containerKeys } from './container-settings.ts'

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
} as const

const toolImageKey = 'build.engine_image'

const overlapKey = 'cronjob.concurrency_policy'

/** The keys that the engine acts on. */
export const supportedSettings: ReadonlySet<string> = new Set([
  graceKey,
  overlapKey,
  toolImageKey,
  ...Object.values(buildKeys),
  ...Object.values(containerKeys),
])

const grace = { [graceKey]: Whole(0, 3600, { default: usualGraceSeconds }) }

const placement = {
  'deployment.affinity.node.required': labels(),
}

const rollout = {
  'deployment.antiaffinity.pod': OneOf(['Preferred', 'Requirred'], { default: 'Preferred' }),
  'deployment.topology_spread.zone': OneOf(['Disabled', 'ScheduleAnyway', 'DoNotSchedule'], { default: 'Disabled' }),
  [containerKeys.strategy]: OneOf(['RollingUpdate', 'Recreate'], {
    default: 'RollingUpdate',
    description:
      'Recreate: the running version is stopped before the new one starts. RollingUpdate: all instances of the new version start beside the old ones, unless the service has storage.',
  }),
  'deployment.update_strategy.rolling_update.max_unavailable_percent': percent(25),
  'deployment.update_strategy.rolling_update.max_surge_percent': percent(25),
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
  'build.skip_git_submodules': flag(false),
}

const buildCache = { 'build.disable_buildkit_cache': flag(false) }

const domains = { 'deployment.custom_domain_check_enabled': flag(true) }

const corsHeaders =
  'DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization'

const ingress = {
  'network.ingress.proxy_body_size_mb': Whole(0, 1_000_000, { default: 100 }),
  'network.ingress.force_ssl_redirect': flag(true),
  'network.ingress.enable_cors': flag(false),
  'network.ingress.cors_allow_origin': text('*'),
  'network.ingress.cors_allow_methods': text('GET, PUT, POST, DELETE, PATCH, OPTIONS'),
  'network.ingress.cors_allow_headers': text(corsHeaders),
  'network.ingress.proxy_buffer_size_kb': Whole(1, 1_000_000, { default: 4 }),
  'network.ingress.keepalive_time_seconds': seconds(3600),
  'network.ingress.keepalive_timeout_seconds': seconds(60),
  'network.ingress.send_timeout_seconds': seconds(60),
  'network.ingress.proxy_connect_timeout_seconds': seconds(60),
  'network.ingress.proxy_send_timeout_seconds': seconds(60),
  'network.ingress.proxy_read_timeout_seconds': seconds(60),
  'network.ingress.proxy_buffering': text('on'),
  'network.ingress.whitelist_source_range': text('0.0.0.0/0'),
  'network.ingress.denylist_source_range': text(''),
  'network.ingress.basic_auth_env_var': text(''),
  'network.ingress.enable_sticky_session': flag(false),
  'network.ingress.grpc_send_timeout_seconds': seconds(60),
  'network.ingress.grpc_read_timeout_seconds': seconds(60),
  'network.ingress.extra_headers': text('{}'),
  'network.gateway_api.http_request_timeout_seconds': nothing(Whole(0, 86_400)),
  'network.gateway_api.http_connection_idle_timeout_seconds': nothing(Whole(0, 86_400)),
  'network.gateway_api.retry.num_retries': nothing(Whole(0, 100)),
  'network.gateway_api.retry.retry_on': nothing(Text()),
  'network.gateway_api.retry.http_status_codes': nothing(Text()),
  'network.gateway_api.retry.per_try_timeout_seconds': nothing(Whole(0, 86_400)),
}

const requestBuffering = { 'network.ingress.proxy_request_buffering': text('on') }

const scaling = {
  'hpa.cpu.average_utilization_percent': Whole(1, 1000, { default: 60 }),
  'hpa.memory.average_utilization_percent': nothing(Whole(1, 1000)),
}

const account = {
  'security.service_account_name': text(''),
  [containerKeys.readOnlyRoot]: flag(
    false,
    'Only storage can be written to; there is no writable /tmp unless storage is mounted there. Variables mounted as files must be in a folder. The output folders of a job stay writable.',
  ),
}

const accountToken = { 'security.automount_service_account_token': flag(false) }

/** The groups of a kind as one; keys without effect say so. */
const settingsOf = (...groups: Settings[]): Settings => {
  const all: Settings = Object.assign({}, ...groups)
  const described = Object.entries(all).map(([key, schema]) => [
    key,
    supportedSettings.has(key)
      ? schema
      : { ...schema, description: 'Stored and returned; has no effect on this server.' },
  ])
  return Object.fromEntries(described) as Settings
}

const running = [domains, grace, placement, rollout, ingress, scaling, account, accountToken]

export const applicationSettings = settingsOf(...running, lifecycle, build, buildCache)

export const containerSettings = settingsOf(...running, requestBuffering)

export const jobSettings = settingsOf(grace, placement, build, buildCache, account, accountToken, {
  'job.delete_ttl_seconds_after_finished': nothing(Whole(0)),
  [overlapKey]: OneOf(['Forbid', 'Allow', 'Replace'], { default: 'Forbid' }),
  'cronjob.failed_jobs_history_limit': Whole(0, 1000, { default: 1 }),
  'cronjob.success_jobs_history_limit': Whole(0, 1000, { default: 1 }),
})

export const helmSettings = settingsOf(domains, ingress, requestBuffering)

export const terraformSettings = settingsOf(grace, placement, build, account, {
  'build.ephemeral_storage_in_gib': Whole(0, 65_536, { default: 4 }),
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

/** How long a service's program may take to exit before it is killed. */
export const stopGraceMs = (spec: object): number => 1000 * (setIn(spec)[graceKey] ?? usualGraceSeconds)

/** The same where the owner chose it, which may be not to wait. */
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
  return {
    ...(seconds === undefined ? {} : { timeoutMs: 1000 * seconds }),
    ...(millicores === undefined ? {} : { cpuMillicores: millicores }),
    ...(gigabytes === undefined ? {} : { memoryMb: 1024 * gigabytes }),
  }
}

/** The image that an infrastructure tool is taken from, at this version unless it names one; absent: none is named. */
export const toolImageIn = (spec: object, version: string): { image?: string } => {
  const { [toolImageKey]: image = '' } = setIn(spec) as { [toolImageKey]?: string }
  if (image === '') return {}
  return { image: splitTag(image).name === image && version !== '' ? joinTag(image, version) : image }
}

/** What a cron job does when it is due while its last run continues; left out if that is the default. */
export const overlapIn = (spec: object): { overlap?: 'Allow' | 'Replace' } => {
  const { [overlapKey]: overlap } = setIn(spec) as { [overlapKey]?: 'Forbid' | 'Allow' | 'Replace' }
  return overlap === undefined || overlap === 'Forbid' ? {} : { overlap }
}
