/**
 * Members: accounts with one role each in an organization. There is at most one owner, who can only transfer that
 * role. A member that loses rights loses the tokens created with them.
 */
import Type from 'typebox'
import { builtInRole, builtInRoles, covers, type Role } from '../../api/auth/permissions.ts'
import { revokeTokens } from '../../api/auth/revoke.ts'
import { type RoleSpec, roleOf } from '../../api/auth/role-rows.ts'
import { type Context, type Operation, operation, organizationInPath } from '../../api/operations/operation.ts'
import { auditOf } from '../../api/operations/resource.ts'
import { Maybe, OneOf, Results, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { badRequest, conflict, forbidden, notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { timestampSql, writeAudit } from '../../store/tree.ts'
import { answerFrom } from '../answer-from.ts'
import { givenRole, mayGive, roleNameSql, wireRoles, wordSql } from './membership.ts'

const nowhere = { projectId: null, environmentId: null }
const target = (subTarget: string) => ({ target: 'MEMBERS_AND_ROLES', subTarget })
const collection = '/organization/{organizationId}/member'
const common = { tag: 'Members', scope: 'Admin' as const, area: 'members' as const, owner: organizationInPath }

const Member = Type.Object({
  id: Uuid(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  name: Text(),
  nickname: Text(),
  email: Text(320),
  profile_picture_url: Maybe(Text(2048)),
  last_activity_at: Timestamp(),
  role: OneOf(wireRoles),
  role_name: Text(),
  role_id: Uuid(),
})

const memberSql = `json_strip_nulls(json_build_object('id', a.id, 'created_at', ${timestampSql('m.created_at')},
  'updated_at', ${timestampSql('m.updated_at')}, 'name', coalesce(a.name, a.email, a.subject),
  'nickname', coalesce(a.nickname, ''), 'email', coalesce(a.email, ''), 'profile_picture_url', a.picture,
  'last_activity_at', ${timestampSql('a.last_activity_at')}, 'role', ${wordSql('m.role_id')},
  'role_name', ${roleNameSql('m.role_id')}, 'role_id', m.role_id))`

const list = operation({
  id: 'getOrganizationMembers',
  method: 'GET',
  path: collection,
  ...common,
  summary: 'List members and their roles',
  status: 200,
  answer: Results(Member),
  run: ({ db, node }) =>
    answerFrom(
      db,
      `select '{"results":' || coalesce(json_agg(${memberSql} order by m.created_at, a.id)::text, '[]') || '}' as text
       from member m join account a on a.id = m.account_id where m.organization_id = $1`,
      [node.id],
    ),
})

interface Row {
  role_id: string
  name: string
  role_name: string | null
  role_spec: RoleSpec | null
}

/** A member, locked until the transaction ends. */
const lockMember = async (
  tx: Queryable,
  context: Context<{ user_id: string }>,
): Promise<Row & { id: string; role: Role }> => {
  const id = context.body.user_id.toLowerCase()
  const [row] = isUuid(id)
    ? await tx.query<Row>(
        `select m.role_id, coalesce(a.email, a.name, a.subject) as name, r.name as role_name, r.spec as role_spec
         from member m join account a on a.id = m.account_id left join node r on r.id = m.role_id
         where m.organization_id = $1 and m.account_id = $2 for update of m`,
        [context.node.id, id],
      )
    : []
  const role = row === undefined ? null : roleOf(row.role_id, row.role_name, row.role_spec)
  if (row === undefined || role === null) throw notFound()
  return { ...row, id, role }
}

/** Tokens that a member created, and those created with them. */
const tokensMadeBy = `with recursive made as (
    select t.id, t.scopes, t.role_id from api_token t where t.organization_id = $1 and t.created_by = $2
    union select t.id, t.scopes, t.role_id from made join api_token t on t.created_by = made.id and t.organization_id = $1
  ) select made.id, made.scopes, made.role_id, r.name as role_name, r.spec as role_spec
    from made left join node r on r.id = made.role_id`

type MadeToken = Omit<Row, 'role_id' | 'name'> & { id: string; scopes: string[]; role_id: string | null }

const isWithin = (role: Role | null, { scopes, role_id, role_name, role_spec }: MadeToken): boolean => {
  if (role === null) return false
  const tokenRole = role_id === null ? null : roleOf(role_id, role_name, role_spec)
  if (tokenRole !== null) return covers(role, tokenRole)
  const needed = scopes.includes('Admin') ? 'owner' : 'devops'
  return covers(role, builtInRole(builtInRoles[needed])!)
}

/**
 * Revokes the tokens that a member created and that a role (null: no membership) does not cover, and those created with
 * them.
 */
const revokeMade = async (tx: Queryable, organizationId: string, accountId: string, role: Role | null) => {
  const made = await tx.query<MadeToken>(tokensMadeBy, [organizationId, accountId])
  const lost = made.filter((token) => !isWithin(role, token)).map(({ id }) => id)
  return (await revokeTokens(tx, lost)).length
}

const giveRole = async (tx: Queryable, context: Context, accountId: string, role: Role): Promise<number> => {
  await tx.query(
    `update member set role_id = $3, updated_at = clock_timestamp() where organization_id = $1 and account_id = $2`,
    [context.node.id, accountId, role.id],
  )
  return revokeMade(tx, context.node.id, accountId, role)
}

const note = (
  tx: Queryable,
  context: Context,
  verb: 'UPDATE' | 'DELETE',
  sub: string,
  member: Row & { id: string },
  change: unknown,
) =>
  writeAudit(
    tx,
    context.node.id,
    { id: member.id, name: member.name },
    auditOf(context, verb, target(sub), nowhere, change),
  )

const UserId = () => Text(255, { minLength: 1 })

/** The caller cannot change the role of a member with more rights. */
const refuseAbove = (context: Context, role: Role): void => {
  if (role.id === builtInRoles.owner)
    throw conflict(
      'owner_stays',
      'The owner cannot be changed or removed: transfer the ownership to another member first.',
    )
  if (!mayGive(context, role)) throw forbidden('This member has rights that you do not have.')
}

const edit = operation({
  id: 'editOrganizationMemberRole',
  method: 'PUT',
  path: collection,
  ...common,
  summary: 'Change the role of a member; takes effect with the next request',
  body: Type.Object({ user_id: UserId(), role_id: Uuid() }),
  status: 200,
  answer: Member,
  run: (context) =>
    context.transaction(async (tx) => {
      const role = await givenRole(tx, context, context.body.role_id)
      const member = await lockMember(tx, context)
      refuseAbove(context, member.role)
      if (role.id === builtInRoles.owner)
        throw badRequest('role_id: the owner can only be changed with transferOwnership.')
      const revoked = await giveRole(tx, context, member.id, role)
      await note(tx, context, 'UPDATE', 'MEMBER_ROLE', member, { role: role.name, tokens_revoked: revoked })
      const [row] = await tx.query<{ record: Type.Static<typeof Member> }>(
        `select ${memberSql} as record from member m join account a on a.id = m.account_id
         where m.organization_id = $1 and m.account_id = $2`,
        [context.node.id, member.id],
      )
      return row!.record
    }),
})

const remove = operation({
  id: 'deleteMember',
  method: 'DELETE',
  path: collection,
  ...common,
  summary: 'Remove a member and revoke the tokens it created; takes effect with the next request',
  body: Type.Object({ user_id: UserId() }),
  status: 204,
  run: (context) =>
    context.transaction(async (tx) => {
      const member = await lockMember(tx, context)
      refuseAbove(context, member.role)
      await tx.query('delete from member where organization_id = $1 and account_id = $2', [context.node.id, member.id])
      const revoked = await revokeMade(tx, context.node.id, member.id, null)
      await note(tx, context, 'DELETE', 'MEMBER_ROLE', member, { tokens_revoked: revoked })
      return undefined
    }),
})

const transfer = operation({
  id: 'postOrganizationTransferOwnership',
  method: 'POST',
  path: '/organization/{organizationId}/transferOwnership',
  ...common,
  area: 'ownership',
  summary: 'Make a member the owner; the previous owner becomes an admin',
  body: Type.Object({ user_id: UserId() }),
  status: 204,
  run: (context) =>
    context.transaction(async (tx) => {
      const member = await lockMember(tx, context)
      const [former] = await tx.query<{ account_id: string }>(
        'select account_id from member where organization_id = $1 and role_id = $2 for update',
        [context.node.id, builtInRoles.owner],
      )
      if (former?.account_id === member.id) return undefined
      if (former !== undefined) await giveRole(tx, context, former.account_id, builtInRole(builtInRoles.admin)!)
      await giveRole(tx, context, member.id, builtInRole(builtInRoles.owner)!)
      await note(tx, context, 'UPDATE', 'TRANSFER_OWNERSHIP', member, null)
      return undefined
    }),
})

export const memberOperations: Operation[] = [list, edit, remove, transfer]
