/** An environment as an archive of Terraform files (`.tar.gz`), without the values of secrets. */
import { buffer } from 'node:stream/consumers'
import { createGzip } from 'node:zlib'
import { pack } from 'tar-stream'
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { auditOf, placeOf, type Spec } from '../../api/operations/resource.ts'
import { Flag, Maybe } from '../../api/operations/schema.ts'
import { readPlacement } from '../../deployments/request/stage-rows.ts'
import { defaultOrder, defaultStages } from '../../deployments/request/stages.ts'
import { type ExportedKind, type Kind, kinds } from '../../kinds.ts'
import type { Queryable } from '../../store/database.ts'
import { writeAudit } from '../../store/tree.ts'
import { listVisible, type VariableRecord } from '../../variables/records.ts'
import { environment } from '../project/environment.ts'
import type { Service } from '../service/service.ts'
import { block, createLabels, type Expression, reference, type Value } from './hcl.ts'
import { type Fields, pick, serviceBlock } from './provider-fields.ts'

/**
 * An environment as files for the Terraform provider that existing configurations use. Pure. They contain no values of
 * secrets: each becomes a sensitive input variable.
 */
interface Exported {
  environment: Spec
  /** The services' public records, each with values that its record does not show. */
  services: { kind: Kind; record: Spec; advanced: Spec | null; isSkipped: boolean; stageId: string }[]
  /** Variables set at the environment and at its services. */
  variables: readonly VariableRecord[]
  /** Stages other than the default ones, in order. */
  stages: { id: string; name: string; description: string }[]
}

interface TerraformFile {
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

const variablesOf = (rows: readonly VariableRecord[], place: string, ask: Ask): Fields => {
  const mine = rows.filter((row) => row.parent_id === place)
  const groups = [...Map.groupBy(mine, attributeOf)]
  return Object.fromEntries(groups.map(([name, members]) => [name, members.map((row) => variableFields(row, ask))]))
}

/**
 * The provider has no argument for its host, only this variable; without it, it sends its token to its vendor's cloud.
 */
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

const terraformFiles = ({ environment, services, variables, stages }: Exported, serverUrl: string): TerraformFile[] => {
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

interface Hidden {
  id: string
  kind: Kind
  advanced: Spec | null
  isSkipped: boolean
}

const readHidden = (db: Queryable, environmentId: string): Promise<Hidden[]> =>
  db.query<Hidden>(
    `select s.service_id as id, s.kind, n.spec -> 'advanced_settings' as advanced, s.is_skipped as "isSkipped"
     from service_state s join node n on n.id = s.service_id where s.environment_id = $1`,
    [environmentId],
  )

const readEnvironment = async (db: Queryable, id: string): Promise<Spec> => {
  const { text, joins } = environment.recordText
  const [row] = await db.query<{ record: string }>(`select ${text} as record from node n ${joins} where n.id = $1`, [
    id,
  ])
  return JSON.parse(row!.record) as Spec
}

const readExported = async ({ db, node }: Context, kinds: readonly Service[]): Promise<Exported> => {
  const hidden = new Map((await readHidden(db, node.id)).map((row) => [row.id, row]))
  const { stages, stageOf } = await readPlacement(db, node.id)
  const usual = new Set(defaultStages(node.id).map(({ id }) => id))
  const services: Exported['services'] = []
  for (const kind of kinds)
    for (const record of await kind.readAll(db, node.id)) {
      const row = hidden.get(String(record.id))
      if (row === undefined) continue
      services.push({ ...row, record, stageId: stageOf(row.id, defaultOrder(row.kind)).id })
    }
  const variables = await listVisible(db, [node.id, ...hidden.keys()])
  const own = stages.filter(({ id }) => !usual.has(id))
  return { environment: await readEnvironment(db, node.id), services, variables, stages: own }
}

const archive = (files: readonly TerraformFile[]): Promise<Buffer> => {
  const entries = pack()
  for (const { name, text } of files) entries.entry({ name, mode: 0o644 }, text)
  entries.finalize()
  return buffer(entries.pipe(createGzip()))
}

/** As the caller reached it, which may be through a proxy. */
const serverUrl = ({ headers, scheme, parts }: Context): string => {
  const host = String(headers.host ?? '')
  return `${scheme}//${/^[\w.-]+(:\d+)?$|^\[[\da-f:]+\](:\d+)?$/i.test(host) ? host : `127.0.0.1:${parts.settings.port}`}`
}

export const exportOf = (kinds: readonly Service[]): Operation =>
  operation({
    id: 'exportEnvironmentConfigurationIntoTerraform',
    ...reading,
    path: '/environment/{environmentId}/terraformExport',
    tag: 'Environment Export',
    summary: 'Read an environment as an archive (.tar.gz) of Terraform files; secrets become variables without values',
    area: 'projects',
    reads: 'sensitive',
    owner: nodeInPath('environment', 'environmentId'),
    query: Type.Object({
      exportSecrets: Maybe(Flag({ description: 'Accepted, but has no effect: values of secrets are never returned.' })),
    }),
    produces: 'application/octet-stream',
    async run(context) {
      const { node, principal, db } = context
      const made = await archive(terraformFiles(await readExported(context, kinds), serverUrl(context)))
      const audit = auditOf(context, 'UPDATE', { target: 'ENVIRONMENT', subTarget: 'TERRAFORM' }, placeOf(node), null)
      await writeAudit(db, principal.organizationId, node, { ...audit, eventType: 'EXPORT' })
      context.setHeader('content-disposition', `attachment; filename="environment-${node.id}.tar.gz"`)
      return made
    },
  })
