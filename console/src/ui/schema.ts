/** The parts of the API's body schemas from which forms are made. */
export interface Schema {
  type?: string
  enum?: string[]
  anyOf?: Schema[]
  properties?: Record<string, Schema>
  items?: Schema
  required?: string[]
  default?: unknown
  minimum?: number
  maximum?: number
  maxLength?: number
  format?: string
  description?: string
}

/** Without `null`, which an optional value may be. */
export const coreOf = (schema: Schema): Schema => {
  const others = schema.anyOf?.filter(({ type }) => type !== 'null')
  return others?.length === 1
    ? ({ ...others[0]!, description: schema.description ?? others[0]!.description } as Schema)
    : schema
}

export const isNullable = (schema: Schema): boolean => schema.anyOf?.some(({ type }) => type === 'null') === true

/** Fields that the API always refuses are not shown in forms. */
export const isRefused = ({ description = '' }: Schema): boolean =>
  /Any value but the default is refused/.test(description)

const isOnlyRecorded = ({ description = '' }: Schema): boolean =>
  /^[^`].*has no effect on this server/.test(description)

const isOfKubernetes = ({ description = '' }: Schema): boolean =>
  /On a Docker engine it is stored and returned, without effect/.test(description)

type Effect = 'acts' | 'kubernetes' | 'recorded' | 'refused'

export const effectOf = (schema: Schema): Effect => {
  if (isRefused(schema)) return 'refused'
  if (isOnlyRecorded(schema)) return 'recorded'
  return isOfKubernetes(schema) ? 'kubernetes' : 'acts'
}

type Control = 'text' | 'number' | 'switch' | 'choice' | 'words' | 'rows' | 'group' | 'json' | 'lines'

export const controlOf = (schema: Schema): Control => {
  const core = coreOf(schema)
  if (core.enum !== undefined) return 'choice'
  if (core.type === 'integer' || core.type === 'number') return 'number'
  if (core.type === 'boolean') return 'switch'
  if (core.type === 'array') {
    const item = coreOf(core.items ?? {})
    if (item.type === 'string') return 'words'
    return item.properties === undefined ? 'json' : 'rows'
  }
  if (core.type === 'string') return (core.maxLength ?? 0) > 4096 ? 'lines' : 'text'
  return core.properties === undefined ? 'json' : 'group'
}

const names: Record<string, string> = {
  cpu: 'CPU (thousandths of a core)',
  memory: 'Memory (MB)',
  gpu: 'GPUs',
  storage: 'Storage (GB)',
  min_running_instances: 'Minimum instances',
  max_running_instances: 'Maximum instances',
  auto_deploy: 'Deploy automatically',
  image_name: 'Image',
  git_repository: 'Git repository',
  publicly_accessible: 'Public',
  internal_port: 'Port of the service',
  external_port: 'Port outside',
  cpu_architecture: 'CPU architecture',
  healthchecks: 'Health checks',
  icon_uri: 'Icon',
  size: 'Size (GB)',
  docker: 'Built from a git repository',
  registry_id: 'Registry',
  git_token_id: 'Git token',
  cronjob: 'Schedule (cron job)',
  scheduled_at: 'When (cron expression)',
  on_start: 'On deployment',
  on_stop: 'On stop',
  on_delete: 'On deletion',
  max_nb_restart: 'Maximum retries',
  max_duration_seconds: 'Maximum duration (seconds)',
  cpu_milli: 'CPU (thousandths of a core)',
  ram_mib: 'Memory (MiB)',
  timeout_sec: 'Timeout (seconds)',
  tf_vars: 'Variables of the module',
  tf_var_file_paths: 'Files with variables (.tfvars)',
  terraform_files_source: 'Module',
  terraform_variables_source: 'Variables',
  values_override: 'Values',
  url: 'URL',
}

const valueWords: Record<string, string> = {
  DEVELOPMENT: 'Development',
  PREVIEW: 'Preview',
  STAGING: 'Staging',
  PRODUCTION: 'Production',
  PRIVATE: 'Private',
  PUBLIC: 'Public',
}

/** One value of a closed list, in a word. */
export const wordOfValue = (value: string): string => valueWords[value] ?? value

export const titleOf = (name: string): string => {
  const words = name.replaceAll('_', ' ')
  return names[name] ?? words.charAt(0).toUpperCase() + words.slice(1)
}
