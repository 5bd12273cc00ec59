/**
 * Invitations by e-mail. Promises that only an account with that address, verified by the issuer, can accept one,
 * once, within a week. No mail is sent: the inviter passes on the link, which is useless to others.
 */
import Type from 'typebox'
import { builtInRoles } from '../../api/auth/permissions.ts'
import {
  type Context,
  nodeInPath,
  type Operation,
  type Owner,
  operation,
  organizationInPath,
} from '../../api/operations/operation.ts'
import { auditOf, translateWrite } from '../../api/operations/resource.ts'
import { Maybe, Nullable, OneOf, Results, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { ApiError, badRequest, conflict, forbidden, notFound } from '../../lib/errors.ts'
import { isUuid, newId } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { timestampSql, writeAudit } from '../../store/tree.ts'
import { answerFrom } from '../answer-from.ts'
import { givenRole, roleNameSql, roleOfWord, type WireRole, wireRoles, wordSql } from './membership.ts'

const lifetimeMs = 7 * 86_400_000
const nowhere = { projectId: null, environmentId: null }
const target = { target: 'MEMBERS_AND_ROLES', subTarget: 'INVITATION' }
const collection = '/organization/{organizationId}/inviteMember'
const item = `${collection}/{inviteId}`
const common = { tag: 'Members', scope: 'Admin' as const, area: 'members' as const, owner: organizationInPath }

const Invitation = Type.Object(
  {
    id: Uuid(),
    created_at: Timestamp(),
    updated_at: Timestamp(),
    email: Text(320),
    role: OneOf(wireRoles),
    role_id: Uuid(),
    role_name: Text(),
    invitation_link: Text(2048),
    invitation_status: OneOf(['EXPIRED', 'PENDING']),
    organization_name: Text(),
    inviter: Text(),
  },
  { title: 'InviteMember' },
)

/** The record of the row `i`, whose link begins with `$first`; the current time is `$first + 1`. */
const invitationSql = (first: number): string => `json_build_object('id', i.id,
  'created_at', ${timestampSql('i.created_at')}, 'updated_at', ${timestampSql('i.updated_at')}, 'email', i.email,
  'role', ${wordSql('i.role_id')}, 'role_id', i.role_id, 'role_name', ${roleNameSql('i.role_id')},
  'invitation_link', $${first}::text || '?inviteToken=' || i.id || '&organization=' || i.organization_id,
  'invitation_status', case when i.expires_at > $${first + 1} then 'PENDING' else 'EXPIRED' end,
  'organization_name', (select o.name from node o where o.id = i.organization_id), 'inviter', i.inviter)`

/** Where the console opens an invitation; if its address is not set, at the one that the caller used. */
const linkOf = ({ headers, scheme, parts }: Context): string =>
  `${parts.settings.consoleUrl ?? `${scheme}//${String(headers.host ?? '127.0.0.1')}`}/accept-invitation`

const readInvitation = `select ${invitationSql(3)} as record from invitation i where i.id = $1 and i.organization_id = $2`

const read = async (db: Queryable, context: Context, id: string) => {
  const values = [id, context.node.id, linkOf(context), context.parts.clock.now()]
  const [row] = await db.query<{ record: Type.Static<typeof Invitation> }>(readInvitation, values)
  if (row === undefined) throw notFound()
  return row.record
}

const list = operation({
  id: 'getOrganizationInvitedMembers',
  method: 'GET',
  path: collection,
  ...common,
  summary: 'List open invitations',
  status: 200,
  answer: Results(Invitation),
  run: (context) =>
    answerFrom(
      context.db,
      `select '{"results":' || coalesce(json_agg(${invitationSql(2)} order by i.created_at, i.id)::text, '[]') || '}' as text
       from invitation i where i.organization_id = $1`,
      [context.node.id, linkOf(context), context.parts.clock.now()],
    ),
})

const body = Type.Object({
  email: Type.String({ minLength: 3, maxLength: 320, pattern: '^[^@\\s\\u0000-\\u001f]+@[^@\\s\\u0000-\\u001f]+$' }),
  role: Maybe(Nullable(OneOf(wireRoles))),
  role_id: Maybe(Nullable(Uuid())),
})
type Body = Type.Static<typeof body>

const roleAsked = ({ role, role_id }: Body): string =>
  role_id ?? (typeof role === 'string' ? roleOfWord[role as WireRole] : builtInRoles.viewer)

/** An owner can be invited while there is none: that is how an installation that uses only tokens gets its first. */
const refuseSecondOwner = async (tx: Queryable, organizationId: string, roleId: string): Promise<void> => {
  if (roleId !== builtInRoles.owner) return
  await tx.query('select 1 from node where id = $1 for no key update', [organizationId])
  const held = 'select 1 from member where organization_id = $1 and role_id = $2'
  if ((await tx.query(held, [organizationId, roleId])).length > 0)
    throw conflict('owner_taken', 'This organization already has an owner, who can transfer the ownership.')
}

const refuseMember = async (tx: Queryable, organizationId: string, email: string): Promise<void> => {
  const members = await tx.query(
    `select 1 from member m join account a on a.id = m.account_id
     where m.organization_id = $1 and lower(a.email) = lower($2)`,
    [organizationId, email],
  )
  if (members.length > 0) throw conflict('already_member', 'A user with this address is already a member.')
}

const insert = `insert into invitation (id, organization_id, email, role_id, inviter, expires_at)
  values ($1, $2, $3, $4, $5, $6)`

const create = operation({
  id: 'postInviteMember',
  method: 'POST',
  path: collection,
  ...common,
  summary: 'Invite a user by e-mail address; the response contains the link to pass on',
  body,
  status: 201,
  answer: Invitation,
  run: (context) =>
    context.transaction(async (tx) => {
      const { node, principal, parts } = context
      const { body: asked } = context
      const role = await givenRole(tx, context, roleAsked(asked))
      await refuseSecondOwner(tx, node.id, role.id)
      await refuseMember(tx, node.id, asked.email)
      const now = parts.clock.now()
      // An expired one is replaced.
      await tx.query(
        'delete from invitation where organization_id = $1 and lower(email) = lower($2) and expires_at <= $3',
        [node.id, asked.email, now],
      )
      const id = newId()
      const expires = new Date(now.getTime() + lifetimeMs)
      await tx.query(insert, [id, node.id, asked.email, role.id, principal.name, expires]).catch((error: unknown) => {
        const known = translateWrite(error)
        if (known instanceof ApiError && known.code === 'name_taken')
          throw conflict('name_taken', 'This address is already invited: delete that invitation to send another.')
        throw known
      })
      const audit = auditOf(context, 'CREATE', target, nowhere, { email: asked.email, role: role.name })
      await writeAudit(tx, node.id, { id, name: asked.email }, audit)
      return read(tx, context, id)
    }),
})

const inOrganization = nodeInPath('organization', 'organizationId')

/** The organization of an invitation: visible to its members and to the invited user. */
const invitationInPath: Owner = {
  ...inOrganization,
  async find(db, params, principal) {
    const { organizationId = '', inviteId = '' } = params
    if (!isUuid(organizationId) || !isUuid(inviteId)) return null
    const [row] = await db.query<{ email: string }>(
      'select email from invitation where id = $1 and organization_id = $2',
      [inviteId, organizationId],
    )
    if (row === undefined) return null
    const isInvited = principal.account?.email?.toLowerCase() === row.email.toLowerCase()
    if (organizationId.toLowerCase() !== principal.organizationId && !isInvited) return null
    const id = organizationId.toLowerCase()
    return { id, organizationId: id, kind: 'organization', parentId: null, grandparentId: null, name: '' }
  },
}

const readOne = operation({
  id: 'getMemberInvitation',
  method: 'GET',
  path: item,
  ...common,
  area: 'invitation',
  owner: invitationInPath,
  summary: 'Read an invitation, as a member or as the invited user',
  status: 200,
  answer: Invitation,
  run: (context) => read(context.db, context, context.params.inviteId),
})

interface Waiting {
  email: string
  role_id: string
  expires_at: Date
}

const join = async (tx: Queryable, context: Context, accountId: string, roleId: string): Promise<void> => {
  const added = await tx.query(
    `insert into member (organization_id, account_id, role_id) values ($1, $2, $3) on conflict (organization_id, account_id)
     do nothing returning 1 as added`,
    [context.node.id, accountId, roleId],
  )
  if (added.length === 0) throw conflict('already_member', 'You are already a member of this organization.')
}

const accept = operation({
  id: 'postAcceptInviteMember',
  method: 'POST',
  path: item,
  ...common,
  area: 'invitation',
  owner: invitationInPath,
  summary: 'Accept an invitation with the invited account',
  status: 201,
  answer: Invitation,
  async run(context) {
    const { account } = context.principal
    if (account === null) throw forbidden('An API token cannot become a member: sign in with the invited account.')
    return context.transaction(async (tx) => {
      const [row] = await tx.query<Waiting>(
        'select email, role_id, expires_at from invitation where id = $1 and organization_id = $2 for update',
        [context.params.inviteId, context.node.id],
      )
      if (row === undefined) throw notFound()
      if (account.email?.toLowerCase() !== row.email.toLowerCase())
        throw forbidden('This invitation is for a different address than the verified address of your account.')
      if (row.expires_at <= context.parts.clock.now())
        throw badRequest('This invitation has expired: ask for a new one.')
      await refuseSecondOwner(tx, context.node.id, row.role_id)
      await join(tx, context, account.id, row.role_id)
      const record = await read(tx, context, context.params.inviteId)
      await tx.query('delete from invitation where id = $1', [context.params.inviteId])
      const audit = { ...auditOf(context, 'UPDATE', target, nowhere, null), eventType: 'ACCEPT' }
      await writeAudit(tx, context.node.id, { id: account.id, name: row.email }, audit)
      return record
    })
  },
})

const remove = operation({
  id: 'deleteInviteMember',
  method: 'DELETE',
  path: item,
  ...common,
  summary: 'Revoke an invitation',
  status: 204,
  run: (context) =>
    context.transaction(async (tx) => {
      const { inviteId = '' } = context.params
      const [row] = isUuid(inviteId)
        ? await tx.query<{ email: string }>(
            'delete from invitation where id = $1 and organization_id = $2 returning email',
            [inviteId, context.node.id],
          )
        : []
      if (row === undefined) throw notFound()
      const audit = auditOf(context, 'DELETE', target, nowhere, null)
      await writeAudit(tx, context.node.id, { id: inviteId, name: row.email }, audit)
      return undefined
    }),
})

export const invitationOperations: Operation[] = [list, create, readOne, accept, remove]
