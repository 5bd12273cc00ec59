/** Organizations: a token belongs to one, so a caller sees exactly one. Made by the first start, never by the API. */
import Type from 'typebox'
import { JsonText, type Operation, ownOrganization } from '../api/operation.ts'
import type { Parts } from '../api/parts.ts'
import { auditOf, resource } from '../api/resource.ts'
import { Computed, List, Maybe, Name, Nullable, OneOf, Text, Uuid, Whole } from '../api/schema.ts'
import { notFound } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import { insertNode, insertSql, lockNode, recordSql, updateNode, updateSql } from '../store/tree.ts'
import { localClusterSpec } from './cluster.ts'

const Link = () => Maybe(Nullable(Text(2048)))

const spec = Type.Object({
  name: Name(),
  description: Maybe(Nullable(Text(2048))),
  website_url: Link(),
  repository: Link(),
  logo_url: Link(),
  icon_url: Link(),
  admin_emails: Maybe(Nullable(List(Text(320), 50))),
})

const plans = ['FREE', 'TEAM', 'ENTERPRISE']

// `plan` is required by generated clients; FREE is the one member that all their generations know.
const columns = {
  plan: `'FREE'`,
  organization_plan: `json_build_object('plan', 'FREE', 'audit_logs_retention_in_days', 30)::jsonb`,
  owner: 'n.id',
}

const base = resource({
  kind: 'organization',
  parent: { kind: 'organization', param: 'organizationId' },
  tag: 'Organization Main Calls',
  words: ['the organization', 'organizations'],
  collection: '/organization',
  item: '/organization/{organizationId}',
  param: 'organizationId',
  ids: { edit: undefined, read: 'getOrganization' },
  spec,
  record: {
    plan: Computed(OneOf(plans)),
    organization_plan: Maybe(Type.Object({ plan: OneOf(plans), audit_logs_retention_in_days: Whole(0) })),
    owner: Maybe(Uuid()),
  },
  columns,
  audit: { target: 'ORGANIZATION' },
})

const record = recordSql(columns)
const readOwn = `select ${record.text} as record from node n where n.id = $1 and n.kind = 'organization'`

const listOrganization: Operation = {
  id: 'listOrganization',
  method: 'GET',
  path: '/organization',
  tag: 'Organization Main Calls',
  summary: "The caller's organization, and the list of those that the caller sees",
  scope: 'Read',
  owner: ownOrganization,
  status: 200,
  answer: Type.Object({ ...base.answer.properties, results: Type.Array(base.answer) }),
  async run({ db, principal }) {
    const [row] = await db.query<{ record: string }>(readOwn, [principal.organizationId])
    if (row === undefined) throw notFound()
    return new JsonText(`${row.record.slice(0, -1)}, "results": [${row.record}]}`)
  },
}

const update = updateSql(record)

const editOrganization: Operation = {
  id: 'editOrganization',
  method: 'PUT',
  path: '/organization/{organizationId}',
  tag: 'Organization Main Calls',
  summary: 'Change the organization; fields left out keep their values',
  scope: 'Admin',
  owner: base.operations[0]!.owner,
  body: Type.Object({ ...spec.properties, name: Maybe(Name()) }),
  status: 200,
  answer: base.answer,
  run: (context) =>
    context.transaction(async (tx) => {
      const previous = await lockNode(tx, context.node.id)
      if (previous === null) throw notFound()
      const { name = previous.name, ...sent } = context.body as Record<string, unknown>
      const content = { name: String(name), spec: { ...previous.spec, ...sent }, sealed: previous.sealed }
      const nowhere = { projectId: null, environmentId: null }
      const audit = auditOf(context, 'UPDATE', { target: 'ORGANIZATION' }, nowhere, context.body)
      return new JsonText(await updateNode(tx, update, context.node.id, content, context.principal.tokenId, audit))
    }),
}

export const organizationOperations: Operation[] = [listOrganization, ...base.operations, editOrganization]

const firstAudit = () => ({
  eventId: newId(),
  eventType: 'CREATE' as const,
  targetType: 'ORGANIZATION',
  subTargetType: null,
  projectId: null,
  environmentId: null,
  change: null,
  origin: 'QOVERY_INTERNAL',
  triggeredBy: 'first start',
  userAgent: null,
  requestId: 'first-start',
})

const justId = { text: 'n.id::text', joins: '' }
const insertOrganization = insertSql('organization', 'organization', justId)
const insertCluster = insertSql('cluster', 'cluster', justId)

/** The organization and its default cluster, made unless they are there; answers the organization's id. */
export const createFirstOrganization = (parts: Parts): Promise<string> =>
  parts.database.transaction(async (tx) => {
    await tx.query('select pg_advisory_xact_lock(7301914203)')
    const [found] = await tx.query<{ id: string }>(
      `select id from node where kind = 'organization' order by created_at, id limit 1`,
    )
    if (found !== undefined) return found.id
    const id = newId()
    const common = { organizationId: id, sealed: {}, updatedBy: null }
    await insertNode(tx, insertOrganization, { ...common, id, parentId: null, name: 'Slipway', spec: {} }, firstAudit())
    const cluster = { ...common, id: newId(), parentId: id, name: 'local', spec: localClusterSpec }
    await insertNode(tx, insertCluster, cluster, { ...firstAudit(), targetType: 'CLUSTER' })
    return id
  })
