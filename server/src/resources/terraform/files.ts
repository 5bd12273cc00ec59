/**
 * An environment as files for the Terraform provider that existing configurations use. Pure. They contain no values of
 * secrets: each becomes a sensitive input variable.
 */
import type { Spec } from '../../api/operations/resource.ts'
import { type ExportedKind, type Kind, kinds } from '../../kinds.ts'
import type { VariableRecord } from '../../variables/records.ts'
import { block, createLabels, type Expression, reference, type Value } from './hcl.ts'

type Fields = { [name: string]: Value }

export interface Exported {
  environment: Spec
  /** The services' public records, each with what its record does not show. */
  services: { kind: Kind; record: Spec; advanced: Spec | null; isSkipped: boolean; stageId: string }[]
  /** Variables set at the environment and at its services. */
  variables: readonly VariableRecord[]
  /** Stages other than the default ones, in order. */
  stages: { id: string; name: string; description: string }[]
}

export interface TerraformFile {
  name: string
  text: string
}

const pick = (record: Spec, names: readonly string[]): Fields =>
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

const isExported = (kind: Kind): kind is ExportedKind => kinds[kind].provider !== null

type Ask = (name: string) => Expression

const attributeOf = ({ is_secret: isSecret, variable_type: type, mount_path: path }: VariableRecord): string => {
  if (type === 'EXTERNAL_SECRET') return 'external_secrets'
  if (type === 'FILE_EXTERNAL_SECRET') return 'external_secret_files'
  const stem = isSecret ? 'secret' : 'environment_variable'
  if (type === 'ALIAS') return `${stem}_aliases`
  if (type === 'OVERRIDE') return `${stem}_overrides`
  return path === null ? `${stem}s` : `${stem}_files`
}

const variableFields = (row: VariableRecord, ask: Ask): Fields => {
  const common = { key: row.key, mount_path: row.variable_type === 'OVERRIDE' ? null : row.mount_path }
  const more = { description: row.description }
  if (row.variable_type === 'ALIAS') return { key: row.key, value: row.target?.key, ...more }
  const value = row.is_secret ? ask(row.key) : (row.value ?? '')
  if (row.secret_manager_access_id === null) return { ...common, value, ...more }
  return { ...common, reference: value, secret_manager_access_id: row.secret_manager_access_id, ...more }
}

/** The attributes with the variables of one place. */
const variablesOf = (rows: readonly VariableRecord[], place: string, ask: Ask): Fields => {
  const mine = rows.filter((row) => row.parent_id === place)
  const groups = [...Map.groupBy(mine, attributeOf)]
  return Object.fromEntries(groups.map(([name, members]) => [name, members.map((row) => variableFields(row, ask))]))
}

/** The provider has no argument for its host, only this variable; without it, it sends its token to its maker's cloud. */
const head = (url: string): string => `# Secrets have no value here: set the variables in variables.tf before you apply.
#
# Before plan or apply, in the same shell, or the provider talks to api.qovery.com instead of this server:
#   export TEST_QOVERY_HOST=${url}
#   export QOVERY_API_TOKEN=<a token of this server with the scope Write>
terraform {
  required_providers {
    qovery = {
      source = "qovery/qovery"
    }
  }
}

provider "qovery" {}
`

/** The files of an environment, by name. */
export const terraformFiles = (
  { environment, services, variables, stages }: Exported,
  serverUrl: string,
): TerraformFile[] => {
  const [labelOf, secretLabelOf] = [createLabels(), createLabels()]
  const asked: string[] = []
  const asking =
    (place: string): Ask =>
    (key) => {
      const label = secretLabelOf(`${place}_${key}`)
      asked.push(block(`variable "${label}"`, { type: reference('string'), sensitive: true }))
      return reference(`var.${label}`)
    }
  const files = new Map<string, string[]>([['main.tf', [head(serverUrl)]]])
  const add = (file: string, text: string): void => void files.set(file, [...(files.get(file) ?? []), text])
  const environmentId = reference('qovery_environment.this.id')
  const fields = pick(environment, ['name', 'mode', 'cluster_id'])
  const own = variablesOf(variables, String(environment.id), asking('environment'))
  const project_id = (environment.project as Spec).id as Value
  add('environment.tf', block('resource "qovery_environment" "this"', { project_id, ...fields, ...own }))
  const stageIds = new Map<string, Expression>()
  for (const { id, name, description } of stages) {
    const label = labelOf(name)
    const after = [...stageIds.values()].at(-1)
    const head = `resource "qovery_deployment_stage" "${label}"`
    add('deployment_stages.tf', block(head, { environment_id: environmentId, name, description, is_after: after }))
    stageIds.set(id, reference(`qovery_deployment_stage.${label}.id`))
  }
  for (const { kind, record, advanced, isSkipped, stageId } of services) {
    if (!isExported(kind)) continue
    const label = labelOf(String(record.name))
    const text = block(`resource "${kinds[kind].provider}" "${label}"`, {
      environment_id: environmentId,
      ...pick(record, ['name', 'icon_uri']),
      ...fieldsOf[kind](record),
      ...variablesOf(variables, String(record.id), asking(label)),
      advanced_settings_json: advanced === null ? null : JSON.stringify(advanced),
      deployment_stage_id: stageIds.get(stageId),
      is_skipped: isSkipped ? true : null,
    })
    add(`${kinds[kind].plural}.tf`, text)
  }
  if (asked.length > 0) files.set('variables.tf', asked)
  return [...files].map(([name, texts]) => ({ name, text: texts.join('\n') }))
}
