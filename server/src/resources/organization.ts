/**
 * Organizations. A token belongs to one; an account sees those that it is a member of, the operator's token sees all. The
 * first is made by the first start, further ones by the operator and by whoever signed in, who then owns them.
 */
import Type from 'typebox'
import { JsonText, type Operation, operation, ownOrganization, type Principal } from '../api/operation.ts'
import type { Parts } from '../api/parts.ts'
import { builtInRoles } from '../api/permissions.ts'
import { auditOf, resource } from '../api/resource.ts'
import { Computed, List, Maybe, Name, Nullable, OneOf, Text, Uuid, Whole } from '../api/schema.ts'
import { openStates } from '../deployments/states.ts'
import { conflict, forbidden, notFound } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import type { Queryable } from '../store/database.ts'
import { lockSql } from '../store/locks.ts'
import {
  type Audit,
  deleteNode,
  insertNode,
  insertSql,
  lockNode,
  recordSql,
  updateNode,
  updateSql,
} from '../store/tree.ts'
import { localClusterSpec } from './cluster.ts'

const nowhere = { projectId: null, environmentId: null }
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
const plansAskedFor = [
  ...plans,
  'TEAM_YEARLY',
  'ENTERPRISE_YEARLY',
  'PROFESSIONAL',
  'BUSINESS',
  'USER_2025',
  'TEAM_2025',
  'BUSINESS_2025',
  'ENTERPRISE_2025',
]

// `plan` is required by generated clients; FREE is the one member that all their generations know.
const columns = {
  plan: `'FREE'`,
  organization_plan: `json_build_object('plan', 'FREE', 'audit_logs_retention_in_days', 30)::jsonb`,
  // Required of old; while there is no owner, the organization stands for itself.
  owner: `coalesce((select m.account_id from member m where m.organization_id = n.id
    and m.role_id = '${builtInRoles.owner}'), n.id)`,
}

const base = resource({
  kind: 'organization',
  area: 'settings',
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
const read = (condition: string): string => `select ${record.text} as record from node n
  where n.kind = 'organization' and ${condition} order by n.id = $1 desc, n.created_at, n.id`
const readThese = read('n.id = any($2)')
// As the index on names has it: there are many rows, and few without a parent.
const readEvery = read(`n.parent_id is null and n.name_scope = 'organization'`)

/** The organizations that the caller sees, its own first. */
const readSeen = (db: Queryable, { isOperator, account, memberships, organizationId }: Principal) => {
  if (isOperator) return db.query<{ record: string }>(readEvery, [organizationId])
  const ids = account === null ? [organizationId] : memberships.map((each) => each.organizationId)
  return db.query<{ record: string }>(readThese, [organizationId, ids])
}

const listOrganization = operation({
  id: 'listOrganization',
  method: 'GET',
  path: '/organization',
  tag: 'Organization Main Calls',
  summary: "The caller's own organization, where there is one, and the list of those that the caller sees",
  scope: 'Read',
  area: 'self',
  owner: ownOrganization,
  status: 200,
  answer: Type.Object({ ...Type.Partial(base.answer).properties, results: Type.Array(base.answer) }),
  async run({ db, principal }) {
    const rows = await readSeen(db, principal)
    const results = `"results": [${rows.map((row) => row.record).join(',')}]}`
    return new JsonText(rows[0] === undefined ? `{${results}` : `${rows[0].record.slice(0, -1)}, ${results}`)
  },
})

const update = updateSql(record)

const editOrganization = operation({
  id: 'editOrganization',
  method: 'PUT',
  path: '/organization/{organizationId}',
  tag: 'Organization Main Calls',
  summary: 'Change the organization; fields left out keep their values',
  scope: 'Admin',
  area: 'settings',
  owner: base.operations[0]!.owner,
  body: Type.Object({ ...spec.properties, name: Maybe(Name()) }),
  status: 200,
  answer: base.answer,
  run: (context) =>
    context.transaction(async (tx) => {
      const previous = await lockNode(tx, context.node.id)
      if (previous === null) throw notFound()
      const { name = previous.name, ...sent } = context.body
      const content = { name, spec: { ...previous.spec, ...sent }, sealed: previous.sealed }
      const audit = auditOf(context, 'UPDATE', { target: 'ORGANIZATION' }, nowhere, context.body)
      return new JsonText(await updateNode(tx, update, context.node.id, content, context.principal.tokenId, audit))
    }),
})

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
  actorType: 'OPERATOR' as const,
  actorId: null,
  userAgent: null,
  requestId: 'first-start',
})

const justId = { text: 'n.id::text', joins: '' }
const insertOrganization = insertSql('organization', 'organization', record)
const insertCluster = insertSql('cluster', 'cluster', justId)

interface Founder {
  id: string | null
  audit(): Audit
}

/** An organization with the default cluster of this machine; answers its record. */
const found = async (tx: Queryable, id: string, name: string, spec: object, founder: Founder): Promise<string> => {
  const common = { organizationId: id, sealed: {}, updatedBy: founder.id }
  const text = await insertNode(tx, insertOrganization, { ...common, id, parentId: null, name, spec }, founder.audit())
  const cluster = { ...common, id: newId(), parentId: id, name: 'local', spec: localClusterSpec }
  await insertNode(tx, insertCluster, cluster, { ...founder.audit(), targetType: 'CLUSTER' })
  return text
}

const createOrganization = operation({
  id: 'createOrganization',
  method: 'POST',
  path: '/organization',
  tag: 'Organization Main Calls',
  summary: 'Create an organization; an account that creates one owns it',
  scope: 'Admin',
  area: 'self',
  owner: ownOrganization,
  body: Type.Object({ ...spec.properties, plan: Maybe(OneOf(plansAskedFor)) }),
  status: 201,
  answer: base.answer,
  run(context) {
    const { principal, body } = context
    if (principal.account === null && !principal.isOperator)
      throw forbidden(
        "Only the operator's token and people who signed in create organizations; a token belongs to one.",
      )
    // What is planned and paid is the operator's own affair: it is accepted, and nothing follows from it.
    const { name, plan: _, ...rest } = body
    return context.transaction(async (tx) => {
      await tx.query(lockSql('organizations'))
      const taken = await tx.query(`select 1 from node where kind = 'organization' and lower(name) = lower($1)`, [name])
      if (taken.length > 0)
        throw conflict('name_taken', 'This name is taken: names are unique here, whatever their case.')
      const id = newId()
      const audit = () => auditOf(context, 'CREATE', { target: 'ORGANIZATION' }, nowhere, { name, ...rest })
      const text = await found(tx, id, name, rest, { id: principal.tokenId, audit })
      if (principal.account !== null)
        await tx.query('insert into member (organization_id, account_id, role_id) values ($1, $2, $3)', [
          id,
          principal.account.id,
          builtInRoles.owner,
        ])
      return new JsonText(text)
    })
  },
})

/** Why an organization must stay, as the code and the words of a 409. */
const refuseToDelete = async (tx: Queryable, id: string): Promise<void> => {
  const [row] = await tx.query<{ last: boolean; operator: boolean; used: boolean }>(
    `select not exists (select 1 from node where kind = 'organization' and id <> $1) as last,
       exists (select 1 from api_token where organization_id = $1 and is_operator and revoked_at is null) as operator,
       exists (select 1 from service_state where organization_id = $1
         and (current_release_id is not null or state not in ('READY', 'CANCELED')))
       or exists (select 1 from deployment where organization_id = $1 and state in ${openStates}) as used`,
    [id],
  )
  if (row?.used === true)
    throw conflict('organization_in_use', 'Something of this organization is still deployed: delete it first.')
  if (row?.last === true) throw conflict('last_organization', 'The last organization cannot be deleted.')
  if (row?.operator === true)
    throw conflict('operator_organization', "The operator's own token belongs to this organization, so it must stay.")
}

const leftovers = ['deployment', 'release', 'data_key', 'idempotency_key']

const deleteOrganization = operation({
  id: 'deleteOrganization',
  method: 'DELETE',
  path: '/organization/{organizationId}',
  tag: 'Organization Main Calls',
  summary: 'Delete an organization of which nothing is deployed; its audit log stays with the operator',
  scope: 'Admin',
  area: 'ownership',
  owner: base.operations[0]!.owner,
  status: 204,
  run: (context) =>
    context.transaction(async (tx) => {
      const { id } = context.node
      await tx.query(lockSql('organizations'))
      // Environments are locked, so that no deployment begins between the look and the end.
      await tx.query(`select 1 from node where organization_id = $1 and kind = 'environment' order by id for update`, [
        id,
      ])
      await refuseToDelete(tx, id)
      const audit = auditOf(context, 'DELETE', { target: 'ORGANIZATION' }, nowhere, null)
      if (!(await deleteNode(tx, id, audit))) throw notFound()
      for (const table of leftovers) await tx.query(`delete from ${table} where organization_id = $1`, [id])
      await tx.query(`select pg_notify('slipway_token', '')`)
      return undefined
    }),
})

export const organizationOperations: Operation[] = [
  listOrganization,
  createOrganization,
  ...base.operations,
  editOrganization,
  deleteOrganization,
]

/** The organization and its default cluster, made unless they are there; answers the organization's id. */
export const createFirstOrganization = (parts: Parts): Promise<string> =>
  parts.database.transaction(async (tx) => {
    await tx.query(lockSql('organizations'))
    const [first] = await tx.query<{ id: string }>(
      `select id from node where kind = 'organization' order by created_at, id limit 1`,
    )
    if (first !== undefined) return first.id
    const id = newId()
    await found(tx, id, 'Slipway', {}, { id: null, audit: firstAudit })
    return id
  })
