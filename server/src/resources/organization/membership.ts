/** Shared by members, invitations and tokens: which role is granted, by whom, and how roles are spelled in the API. */

import { builtInRole, builtInRoles, covers, type Role } from '../../api/auth/permissions.ts'
import { readRole } from '../../api/auth/role-rows.ts'
import type { Context } from '../../api/operations/operation.ts'
import { forbidden, invalidField } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'

/** The older spelling of roles, of which there are four. */
export const wireRoles = ['ADMIN', 'DEVELOPER', 'OWNER', 'VIEWER'] as const
export type WireRole = (typeof wireRoles)[number]

export const roleOfWord: Record<WireRole, string> = {
  ADMIN: builtInRoles.admin,
  DEVELOPER: builtInRoles.devops,
  OWNER: builtInRoles.owner,
  VIEWER: builtInRoles.viewer,
}

const { owner, admin, billing, viewer } = builtInRoles

/** SQL for the older spelling of a role's id. */
export const wordSql = (id: string): string =>
  `case ${id} when '${owner}' then 'OWNER' when '${admin}' then 'ADMIN' when '${viewer}' then 'VIEWER'
    when '${billing}' then 'VIEWER' else 'DEVELOPER' end`

export const roleNameSql = (id: string): string =>
  `coalesce(case ${id} ${Object.entries(builtInRoles)
    .map(([name, roleId]) => `when '${roleId}' then '${name}'`)
    .join(' ')} end, (select r.name from node r where r.id = ${id} and r.kind = 'custom_role'), '')`

/** Whether the caller has all rights of a role. A token with the scope Admin has all rights. */
export const mayGive = ({ principal }: Context, role: Role): boolean =>
  principal.role === null ? principal.scopes.has('Admin') : covers(principal.role, role)

/** The role in a body, locked until the transaction ends so that it cannot be deleted meanwhile. */
export const givenRole = async (tx: Queryable, context: Context, id: string): Promise<Role> => {
  if (builtInRole(id) === null) await tx.query('select 1 from node where id = $1 for share', [id])
  const role = await readRole(tx, context.principal.organizationId, id.toLowerCase())
  if (role === null) throw invalidField('/role_id', 'not found in this organization')
  if (!mayGive(context, role)) throw forbidden('You cannot grant a role with more rights than your own.')
  return role
}
