/** Roles as rows: built-in ones have none, custom ones are rows of the kind `custom_role` in the tree. */
import type { Queryable } from '../../store/database.ts'
import {
  builtInRole,
  type ClusterLevel,
  type Grants,
  type Mode,
  type ProjectGrant,
  type ProjectLevel,
  type Role,
} from './permissions.ts'

export interface RoleSpec {
  cluster_permissions?: { cluster_id: string; permission: ClusterLevel }[]
  project_permissions?: {
    project_id: string
    is_admin?: boolean
    permissions?: { environment_type: Mode; permission: ProjectLevel }[]
  }[]
}

const toGrants = ({ cluster_permissions = [], project_permissions = [] }: RoleSpec): Grants => ({
  clusters: Object.fromEntries(cluster_permissions.map(({ cluster_id, permission }) => [cluster_id, permission])),
  projects: Object.fromEntries(
    project_permissions.map(({ project_id, is_admin = false, permissions = [] }): [string, ProjectGrant] => [
      project_id,
      {
        isAdmin: is_admin,
        modes: Object.fromEntries(
          permissions.map(({ environment_type, permission }) => [environment_type, permission]),
        ),
      },
    ]),
  ),
})

/** The role with an id and, for a custom one, its row; null if the row no longer exists. */
export const roleOf = (id: string, name: string | null, spec: RoleSpec | null): Role | null =>
  builtInRole(id) ?? (spec === null ? null : { id, name: name ?? '', grants: toGrants(spec) })

/** A role that can be granted in an organization; null if it has no such role. */
export const readRole = async (db: Queryable, organizationId: string, id: string): Promise<Role | null> => {
  const builtIn = builtInRole(id)
  if (builtIn !== null) return builtIn
  const [row] = await db.query<{ name: string; spec: RoleSpec }>(
    `select name, spec from node where id = $1 and organization_id = $2 and kind = 'custom_role'`,
    [id, organizationId],
  )
  return row === undefined ? null : roleOf(id, row.name, row.spec)
}
