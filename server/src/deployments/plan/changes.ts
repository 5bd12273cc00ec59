/**
 * The differences between two versions of a service, in the words of the API. Pure. Values of variables are never
 * returned.
 */
import { reservedPrefixes } from '../../variables/built-in.ts'
import { type Changes, mainTask, type Source, type TaskSpec, type Tasks, type WorkloadSpec } from '../deployments.ts'
import type { FrozenWorkload } from '../desired/workload.ts'
import type { EffectiveVariables } from '../parts.ts'

type Setup = WorkloadSpec & { tasks?: Tasks; from?: Source }

/** Names of fields at any depth; objects with arbitrary names (records) are passed through. */
type NamesIn<T> = T extends readonly (infer Item)[]
  ? NamesIn<Item>
  : T extends object
    ? string extends keyof T
      ? NamesIn<T[keyof T]>
      : { [Name in keyof T & string]-?: Name | NamesIn<NonNullable<T[Name]>> }[keyof T & string]
    : never

/** Every field that a configuration may have; fields that are not shown are left out by `flat`. */
type FieldName = Exclude<
  NamesIn<Omit<Setup, 'tasks'> & { tasks?: TaskSpec }>,
  'from' | 'readyTimeoutMs' | 'eagerReadiness' | 'scaling' | 'min' | 'sleeps' | 'withoutRoot' | 'user' | 'env'
>

/**
 * The API's path for each field of a workload, from the top or from the surrounding field. A new field of the engine
 * does not compile before it has its path here.
 */
const words: Readonly<Record<FieldName, readonly string[]>> = {
  // Programs.
  entrypoint: ['entrypoint'],
  arguments: ['arguments'],
  cpuMillicores: ['cpu'],
  memoryMb: ['memory'],
  instances: ['min_running_instances'],
  max: ['max_running_instances'],
  cpuPercent: ['advanced_settings', 'hpa.cpu.average_utilization_percent'],
  memoryPercent: ['advanced_settings', 'hpa.memory.average_utilization_percent'],
  stopGraceMs: ['stop_grace_ms'],
  readOnlyRoot: ['advanced_settings', 'security.read_only_root_filesystem'],
  recreate: ['advanced_settings', 'deployment.update_strategy.type'],
  postStart: ['advanced_settings', 'deployment.lifecycle.post_start_exec_command'],
  preStop: ['advanced_settings', 'deployment.lifecycle.pre_stop_exec_command'],
  machineLabels: ['advanced_settings', 'deployment.affinity.node.required'],
  apart: ['advanced_settings', 'deployment.antiaffinity.pod'],
  zones: ['advanced_settings', 'deployment.topology_spread.zone'],
  surgePercent: ['advanced_settings', 'deployment.update_strategy.rolling_update.max_surge_percent'],
  labels: ['labels_groups'],
  ports: ['ports'],
  internalPort: ['internal_port'],
  externalPort: ['external_port'],
  publicPath: ['public_path'],
  publicPathRewrite: ['public_path_rewrite'],
  ingress: ['advanced_settings'],
  publiclyAccessible: ['publicly_accessible'],
  protocol: ['protocol'],
  volumes: ['storage'],
  id: ['id'],
  mountPath: ['mount_point'],
  sizeGb: ['size'],
  // Probes.
  readiness: ['healthchecks', 'readiness_probe'],
  liveness: ['healthchecks', 'liveness_probe'],
  check: ['check'],
  kind: ['kind'],
  port: ['port'],
  path: ['path'],
  scheme: ['scheme'],
  service: ['service'],
  command: ['command'],
  initialDelaySeconds: ['initial_delay_seconds'],
  periodSeconds: ['period_seconds'],
  timeoutSeconds: ['timeout_seconds'],
  successThreshold: ['success_threshold'],
  failureThreshold: ['failure_threshold'],
  // Schedule of tasks.
  tasks: ['schedule'],
  on: [],
  START: ['on_start'],
  STOP: ['on_stop'],
  DELETE: ['on_delete'],
  CRON: ['cronjob'],
  PLAN: ['plan'],
  UNLOCK: ['unlock'],
  MIGRATE: ['migrate'],
  cron: ['cronjob'],
  expression: ['scheduled_at'],
  timeZone: ['timezone'],
  overlap: ['overlap'],
  maxRestarts: ['max_nb_restart'],
  timeoutMs: ['timeout_ms'],
  kept: ['kept_runs'],
  succeeded: ['succeeded'],
  failed: ['failed'],
  state: ['state'],
  withVolumes: ['with_volumes'],
  // Sources of images.
  git: ['git_repository'],
  url: ['url'],
  branch: ['branch'],
  gitTokenId: ['git_token_id'],
  rootPath: ['git_repository', 'root_path'],
  dockerfilePath: ['dockerfile_path'],
  targetStage: ['docker_target_build_stage'],
  limits: ['limits'],
  skipSubmodules: ['build.skip_git_submodules'],
  noCache: ['build.disable_buildkit_cache'],
  tool: ['tool'],
  image: ['build.engine_image'],
  fragment: ['fragment'],
  text: ['text'],
  // Charts and apps.
  app: [],
  repository: ['git_repository', 'url'],
  argoNamespace: ['namespace'],
  chart: [],
  repositoryId: ['source', 'repository', 'repository'],
  chartName: ['source', 'repository', 'chart_name'],
  chartVersion: ['source', 'repository', 'chart_version'],
  valuesFiles: ['values_override', 'file', 'git'],
  paths: ['paths'],
  rawValues: ['values_override', 'file', 'raw', 'values'],
  set: ['values_override', 'set'],
  setString: ['values_override', 'set_string'],
  setJson: ['values_override', 'set_json'],
  waitSeconds: ['timeout_sec'],
  allowClusterWide: ['allow_cluster_wide_resources'],
  // Modules.
  provider: ['cloud_provider'],
  type: ['type'],
  fields: [],
  registryId: ['registry_id'],
  name: ['image_name'],
  tag: ['tag'],
}

/** Names of tasks are chosen by services, and releases of earlier versions may have fields that no longer exist. */
const wordsFor = (name: string): readonly string[] => {
  if (name === mainTask) return []
  return Object.hasOwn(words, name) ? words[name as FieldName] : [name]
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const isSame = (a: unknown, b: unknown): boolean => JSON.stringify(a ?? null) === JSON.stringify(b ?? null)

const inWords = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(inWords)
  if (!isRecord(value)) return value ?? null
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, inner]) => {
      const own = wordsFor(name)
      const shown = inWords(inner)
      return own.length === 0 && isRecord(shown) ? Object.entries(shown) : [[own.join('/'), shown]]
    }),
  )
}

const escaped = (word: string): string => word.replaceAll('~', '~0').replaceAll('/', '~1')

/** The smallest parts that differ. */
const differences = (from: unknown, to: unknown, path: readonly string[]): Changes['configuration'] => {
  if (isSame(from, to)) return []
  if (isRecord(from) && isRecord(to))
    return [...new Set([...Object.keys(from), ...Object.keys(to)])].flatMap((name) =>
      differences(from[name], to[name], [...path, ...wordsFor(name)]),
    )
  if (Array.isArray(from) && Array.isArray(to) && from.length === to.length && from.some(isRecord))
    return from.flatMap((item, at) => differences(item, to[at], [...path, String(at)]))
  return [{ field: path.map((word) => `/${escaped(word)}`).join(''), from: inWords(from), to: inWords(to) }]
}

/** A source's fields are at the top of a configuration; its kind is visible from them. */
// The probe says how long readiness may take.
const flat = (
  { from, readyTimeoutMs: _, eagerReadiness: _e, withoutRoot: _w, scaling, ...others }: Setup,
  withSource: boolean,
): Record<string, unknown> => {
  const { min, max, cpuPercent } = scaling ?? { min: others.instances }
  const rest = { ...others, instances: min, max, cpuPercent }
  if (from === undefined || !withSource) return { ...rest }
  const { from: __, ...source } = from
  return { ...rest, ...source }
}

/** The differences between two configurations; of the source only if both have it. */
export const configurationChanges = (from: Setup, to: Setup): Changes['configuration'] => {
  const both = from.from !== undefined && to.from !== undefined
  // Stored as JSON, in which null and undefined are the same.
  const plain = (setup: Setup): unknown => JSON.parse(JSON.stringify(flat(setup, both)))
  return differences(plain(from), plain(to), []).sort((a, b) => (a.field < b.field ? -1 : 1))
}

/** The configuration that a release stores, without fields of the release itself. */
export const setupOf = (frozen: FrozenWorkload): Setup => {
  const {
    organizationId: _o,
    projectId: _p,
    environmentId: _e,
    serviceId: _s,
    revision: _r,
    aliases: _a,
    ...setup
  } = frozen
  return setup
}

type Environment = Pick<EffectiveVariables, 'env' | 'files'>

/** A mounted variable has its path in the environment, and its value in the file. */
const valuesOf = ({ env, files }: Environment): Map<string, string> => {
  const contents = new Map(files.map(({ path, content }) => [path, content]))
  return new Map(Object.entries(env).map(([key, value]) => [key, `${value}\0${contents.get(value) ?? ''}`]))
}

/** A plan reports the change of the commit itself. */
const ownCommit = new RegExp(`^(?:${reservedPrefixes.join('|')})\\w+_GIT_COMMIT_ID$`)

export const variableChanges = (from: Environment, to: Environment): Changes['variables'] => {
  const [before, after] = [valuesOf(from), valuesOf(to)]
  const keys = [...after.keys()].sort()
  return {
    added: keys.filter((key) => !before.has(key)),
    changed: keys.filter((key) => before.has(key) && before.get(key) !== after.get(key) && !ownCommit.test(key)),
    removed: [...before.keys()].filter((key) => !after.has(key)).sort(),
  }
}
