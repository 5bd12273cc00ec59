/** An environment as an archive of Terraform files (`.tar.gz`), without the values of secrets. */
import { buffer } from 'node:stream/consumers'
import { createGzip } from 'node:zlib'
import { pack } from 'tar-stream'
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation } from '../../api/operations/operation.ts'
import { auditOf, placeOf, type Spec } from '../../api/operations/resource.ts'
import { Flag, Maybe } from '../../api/operations/schema.ts'
import { readPlacement } from '../../deployments/request/stage-rows.ts'
import { defaultOrder, defaultStages } from '../../deployments/request/stages.ts'
import type { Kind } from '../../kinds.ts'
import type { Queryable } from '../../store/database.ts'
import { writeAudit } from '../../store/tree.ts'
import { listVisible } from '../../variables/records.ts'
import { environment } from '../project/environment.ts'
import type { Service } from '../service/service.ts'
import { type Exported, type TerraformFile, terraformFiles } from './files.ts'

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
    method: 'GET',
    path: '/environment/{environmentId}/terraformExport',
    tag: 'Environment Export',
    summary: 'Read an environment as an archive (.tar.gz) of Terraform files; secrets become variables without values',
    scope: 'Read',
    area: 'projects',
    reads: 'sensitive',
    owner: nodeInPath('environment', 'environmentId'),
    query: Type.Object({
      exportSecrets: Maybe(Flag({ description: 'Accepted, but has no effect: values of secrets are never returned.' })),
    }),
    status: 200,
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
