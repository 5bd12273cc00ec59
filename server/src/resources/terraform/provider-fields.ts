/**
 * A service in files for the Terraform provider that existing configurations use, from its public record. Pure; the
 * console shows it beside the forms in which services are created.
 */
import { type ExportedKind, kinds } from '../../kinds.ts'
import { block, type Value } from './hcl.ts'

type Spec = Record<string, unknown>

export type Fields = { [name: string]: Value }

export const pick = (record: Spec, names: readonly string[]): Fields =>
  Object.fromEntries(names.map((name) => [name, record[name] as Value]))

const git = (repository: unknown): Fields | undefined =>
  repository === null || repository === undefined
    ? undefined
    : pick(repository as Spec, ['url', 'branch', 'root_path', 'git_token_id'])

const portFields = ['name', 'internal_port', 'external_port', 'protocol', 'publicly_accessible', 'is_default']

const running = (record: Spec): Fields => ({
  ...pick(record, ['cpu', 'memory', 'min_running_instances', 'max_running_instances', 'auto_deploy', 'auto_preview']),
  ...pick(record, ['entrypoint', 'arguments', 'healthchecks']),
  ports: (record.ports as Spec[]).map((port) => pick(port, portFields)),
  storage: (record.storage as Spec[]).map((item) => pick(item, ['type', 'size', 'mount_point'])),
})

const application = (record: Spec): Fields => ({
  git_repository: git(record.git_repository),
  ...pick(record, ['build_mode', 'dockerfile_path', 'docker_target_build_stage']),
  ...running(record),
})

const container = (record: Spec): Fields => ({
  registry_id: (record.registry as Spec).id as string,
  ...pick(record, ['image_name', 'tag']),
  ...running(record),
})

const database = (record: Spec): Fields =>
  pick(record, ['type', 'version', 'mode', 'accessibility', 'cpu', 'memory', 'storage'])

const commandOf = (part: unknown): Fields | undefined =>
  part === null || part === undefined ? undefined : pick(part as Spec, ['entrypoint', 'arguments'])

const scheduleOf = (schedule: Spec): Fields => {
  const cron = schedule.cronjob as Spec | null | undefined
  if (cron !== null && cron !== undefined)
    return { cronjob: { schedule: cron.scheduled_at as string, command: commandOf(cron) ?? {} } }
  const events = ['on_start', 'on_stop', 'on_delete'].map((name) => [name, commandOf(schedule[name])] as const)
  return { ...Object.fromEntries(events), lifecycle_type: schedule.lifecycle_type as Value }
}

const jobSource = ({ image, docker }: { image?: Spec; docker?: Spec }): Fields =>
  image === undefined
    ? { docker: { git_repository: git(docker?.git_repository), dockerfile_path: docker?.dockerfile_path as Value } }
    : { image: { registry_id: image.registry_id as Value, name: image.image_name as Value, tag: image.tag as Value } }

const job = (record: Spec): Fields => ({
  ...pick(record, ['cpu', 'memory', 'max_nb_restart', 'max_duration_seconds', 'port', 'auto_deploy', 'auto_preview']),
  healthchecks: record.healthchecks as Value,
  schedule: scheduleOf(record.schedule as Spec),
  source: jobSource(record.source as Spec),
})

const helmSource = ({ repository, git: fromGit }: { repository?: Spec; git?: Spec }): Fields => {
  if (repository === undefined) return { git_repository: git(fromGit?.git_repository) }
  const id = (repository.repository as Spec | undefined)?.id as Value
  return { helm_repository: { helm_repository_id: id, ...pick(repository, ['chart_name', 'chart_version']) } }
}

const pairs = (list: unknown): Fields | undefined => {
  const entries = (list ?? []) as [string, string][]
  return entries.length === 0 ? undefined : Object.fromEntries(entries)
}

const helmValues = (values: Spec): Fields => {
  const raw = ((values.file as Spec | null)?.raw as { values: Spec[] } | null | undefined)?.values
  const file = raw?.map(({ name, content }) => [String(name), { content: String(content) }])
  return {
    set: pairs(values.set),
    set_string: pairs(values.set_string),
    set_json: pairs(values.set_json),
    file: file === undefined ? undefined : { raw: Object.fromEntries(file) },
  }
}

const helmPort = (port: Spec): [string, Fields] => [
  String(port.name),
  pick(port, ['internal_port', 'external_port', 'service_name', 'namespace', 'protocol', 'is_default']),
]

const helm = (record: Spec): Fields => ({
  ...pick(record, [
    'description',
    'arguments',
    'timeout_sec',
    'allow_cluster_wide_resources',
    'auto_deploy',
    'auto_preview',
  ]),
  source: helmSource(record.source as Spec),
  values_override: helmValues(record.values_override as Spec),
  ports: Object.fromEntries((record.ports as Spec[]).map(helmPort)),
})

const terraform = (record: Spec): Fields => {
  const files = (record.terraform_files_source as { git: Spec }).git
  const source = record.terraform_variables_source as { tf_var_file_paths: string[]; tf_vars: Spec[] }
  return {
    ...pick(record, ['description', 'auto_deploy', 'engine', 'use_cluster_credentials', 'action_extra_arguments']),
    terraform_action: (record.auto_deploy_config as Spec).terraform_action as Value,
    git_repository: git(files.git_repository),
    tfvars_files: source.tf_var_file_paths,
    // A secret one has to be set again: the provider accepts its value only here.
    variables: source.tf_vars
      .filter(({ secret }) => secret !== true)
      .map(({ key, value }) => ({ key: key as Value, value: value as Value, is_secret: false })),
    backend: record.backend as Value,
    engine_version: record.provider_version as Value,
    job_resources: record.job_resources as Value,
    timeout_seconds: record.timeout_sec as Value,
  }
}

const fieldsOf: Record<ExportedKind, (record: Spec) => Fields> = {
  application,
  container,
  database,
  job,
  helm,
  terraform,
}

/** The resource of a service; `before` and `after` are fields that its record does not have. */
export const serviceBlock = (
  kind: ExportedKind,
  label: string,
  record: Spec,
  { before = {}, after = {} }: { before?: Fields; after?: Fields },
): string =>
  block(`resource "${kinds[kind].provider}" "${label}"`, {
    ...before,
    ...pick(record, ['name', 'icon_uri']),
    ...fieldsOf[kind](record),
    ...after,
  })
