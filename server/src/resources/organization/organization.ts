/**
 * Organizations. A token belongs to one; an account sees those it is a member of, the operator's token sees all. The
 * first start creates the first one; the operator and signed-in users, who then own them, can create more.
 */
import Type from 'typebox'
import { builtInRoles } from '../../api/auth/permissions.ts'
import {
  JsonText,
  type Operation,
  operation,
  ownOrganization,
  type Principal,
  reading,
  removing,
} from '../../api/operations/operation.ts'
import { auditOf, resource, valuesBefore } from '../../api/operations/resource.ts'
import {
  Computed,
  List,
  Maybe,
  Name,
  Nullable,
  OneOf,
  Recorded,
  Text,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import type { Parts } from '../../api/parts.ts'
import { openStates } from '../../deployments/status/states.ts'
import { conflict, forbidden, notFound } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { lockSql } from '../../store/locks.ts'
import {
  type Audit,
  deleteNode,
  insertNode,
  insertSql,
  lockNode,
  recordSql,
  updateNode,
  updateSql,
} from '../../store/tree.ts'
import { localClusterSpec } from '../cluster/cluster.ts'

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
  // Required by old clients; without an owner it is the organization's own id.
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
// The condition of the index on names: there are many rows, and few without a parent.
const readEvery = read(`n.parent_id is null and n.name_scope = 'organization'`)

/** The organizations that the caller can see, its own first. */
const readSeen = (db: Queryable, { isOperator, account, memberships, organizationId }: Principal) => {
  if (isOperator) return db.query<{ record: string }>(readEvery, [organizationId])
  const ids = account === null ? [organizationId] : memberships.map((each) => each.organizationId)
  return db.query<{ record: string }>(readThese, [organizationId, ids])
}

const listOrganization = operation({
  id: 'listOrganization',
  ...reading,
  path: '/organization',
  tag: 'Organization Main Calls',
  summary: "Read the caller's own organization, if any, and list all that the caller can see",
  area: 'self',
  owner: ownOrganization,
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
  summary: 'Change the organization; omitted fields keep their values',
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
      const audit = auditOf(
        context,
        'UPDATE',
        { target: 'ORGANIZATION' },
        nowhere,
        context.body,
        valuesBefore(previous, context.body),
      )
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

interface Creator {
  id: string | null
  audit(): Audit
}

/** Creates an organization with the default cluster of this machine; returns its record. */
const addOrganization = async (
  tx: Queryable,
  id: string,
  name: string,
  spec: object,
  creator: Creator,
): Promise<string> => {
  const common = { organizationId: id, sealed: {}, updatedBy: creator.id }
  const text = await insertNode(tx, insertOrganization, { ...common, id, parentId: null, name, spec }, creator.audit())
  const cluster = { ...common, id: newId(), parentId: id, name: 'local', spec: localClusterSpec }
  await insertNode(tx, insertCluster, cluster, { ...creator.audit(), targetType: 'CLUSTER' })
  return text
}

const createOrganization = operation({
  id: 'createOrganization',
  method: 'POST',
  path: '/organization',
  tag: 'Organization Main Calls',
  summary: 'Create an organization; the account that creates it becomes its owner',
  scope: 'Admin',
  area: 'self',
  owner: ownOrganization,
  body: Type.Object({
    ...spec.properties,
    plan: Maybe(Recorded(OneOf(plansAskedFor, { default: 'FREE' }), 'the plan is always FREE here.')),
  }),
  status: 201,
  answer: base.answer,
  run(context) {
    const { principal, body } = context
    if (principal.account === null && !principal.isOperator)
      throw forbidden(
        "Only the operator's token and signed-in users can create organizations; any other token belongs to one organization.",
      )
    // Plans and payment are not part of this server: the fields are accepted and have no effect.
    const { name, plan: _, ...rest } = body
    return context.transaction(async (tx) => {
      await tx.query(lockSql('organizations'))
      const taken = await tx.query(`select 1 from node where kind = 'organization' and lower(name) = lower($1)`, [name])
      if (taken.length > 0)
        throw conflict('name_taken', 'This name is taken: names are unique here, whatever their case.')
      const id = newId()
      const audit = () => auditOf(context, 'CREATE', { target: 'ORGANIZATION' }, nowhere, { name, ...rest })
      const text = await addOrganization(tx, id, name, rest, { id: principal.tokenId, audit })
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

/** Throws a 409 with the reason why an organization cannot be deleted. */
const refuseToDelete = async (tx: Queryable, id: string): Promise<void> => {
  const [row] = await tx.query<{ last: boolean; operator: boolean; used: boolean; managed: boolean }>(
    `select not exists (select 1 from node where kind = 'organization' and id <> $1) as last,
       exists (select 1 from api_token where organization_id = $1 and is_operator and revoked_at is null) as operator,
       exists (select 1 from service_state where organization_id = $1
         and (current_release_id is not null or state not in ('READY', 'CANCELED')))
       or exists (select 1 from deployment where organization_id = $1 and state in ${openStates}) as used,
       exists (select 1 from task_state t join node c on c.id = t.id and c.kind = 'cluster'
         where t.organization_id = $1) or
       exists (select 1 from managed_cluster where organization_id = $1 and run_id is not null) as managed`,
    [id],
  )
  if (row?.used === true)
    throw conflict('organization_in_use', 'This organization still has deployed services: delete them first.')
  if (row?.managed === true)
    throw conflict(
      'organization_in_use',
      'This organization still has clusters at a cloud provider: delete them first.',
    )
  if (row?.last === true) throw conflict('last_organization', 'The last organization cannot be deleted.')
  if (row?.operator === true)
    throw conflict(
      'operator_organization',
      "The operator's token belongs to this organization, so it cannot be deleted.",
    )
}

const leftovers = ['deployment', 'release', 'data_key', 'idempotency_key']

const deleteOrganization = operation({
  id: 'deleteOrganization',
  ...removing,
  path: '/organization/{organizationId}',
  tag: 'Organization Main Calls',
  summary: 'Delete an organization without deployed services; its audit log is kept for the operator',
  area: 'ownership',
  owner: base.operations[0]!.owner,
  run: (context) =>
    context.transaction(async (tx) => {
      const { id } = context.node
      await tx.query(lockSql('organizations'))
      // Environments are locked, so that no deployment begins between the check and the delete.
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

/** Creates the organization and its default cluster if they do not exist; returns the organization's id. */
export const createFirstOrganization = (parts: Parts): Promise<string> =>
  parts.database.transaction(async (tx) => {
    await tx.query(lockSql('organizations'))
    const [first] = await tx.query<{ id: string }>(
      `select id from node where kind = 'organization' order by created_at, id limit 1`,
    )
    if (first !== undefined) return first.id
    const id = newId()
    await addOrganization(tx, id, 'Slipway', {}, { id: null, audit: firstAudit })
    return id
  })
