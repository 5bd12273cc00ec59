/**
 * An environment as files for the Terraform provider that existing configurations use. Pure. They contain no values of
 * secrets: each becomes a sensitive input variable.
 */
import type { Spec } from '../../api/operations/resource.ts'
import { type ExportedKind, type Kind, kinds } from '../../kinds.ts'
import type { VariableRecord } from '../../variables/records.ts'
import { block, createLabels, type Expression, reference, type Value } from './hcl.ts'
import { type Fields, pick, serviceBlock } from './provider-fields.ts'

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
    const text = serviceBlock(kind, label, record, {
      before: { environment_id: environmentId },
      after: {
        ...variablesOf(variables, String(record.id), asking(label)),
        advanced_settings_json: advanced === null ? null : JSON.stringify(advanced),
        deployment_stage_id: stageIds.get(stageId),
        is_skipped: isSkipped ? true : null,
      },
    })
    add(`${kinds[kind].plural}.tf`, text)
  }
  if (asked.length > 0) files.set('variables.tf', asked)
  return [...files].map(([name, texts]) => ({ name, text: texts.join('\n') }))
}
