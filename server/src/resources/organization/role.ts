/**
 * Roles: the five built-in ones, and custom ones, which define for each cluster, project and environment mode the
 * rights of their holders. A cluster or project that a role does not list yet has the lowest level.
 */
import Type from 'typebox'
import { builtInRoles, clusterLevels, modes, projectLevels } from '../../api/auth/permissions.ts'
import type { RoleSpec } from '../../api/auth/role-rows.ts'
import { type Context, type Operation, operation, organizationInPath } from '../../api/operations/operation.ts'
import { type Change, resource, type Spec } from '../../api/operations/resource.ts'
import { Flag, List, Maybe, Name, Nullable, OneOf, Results, Text, Uuid } from '../../api/operations/schema.ts'
import { conflict, invalidField } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { answerFrom } from '../answer-from.ts'

const tag = 'Organization Custom Role'

const ClusterPermission = { cluster_id: Uuid(), permission: OneOf(clusterLevels) }
const ModePermission = Type.Object({ environment_type: OneOf(modes), permission: OneOf(projectLevels) })
const ProjectPermission = {
  project_id: Uuid(),
  is_admin: Maybe(Flag()),
  permissions: Maybe(List(ModePermission, modes.length)),
}

const spec = Type.Object({
  name: Name(),
  description: Maybe(Nullable(Text(2048))),
  cluster_permissions: Maybe(List(Type.Object(ClusterPermission), 1000)),
  project_permissions: Maybe(List(Type.Object(ProjectPermission), 10_000)),
})

const noAccess = JSON.stringify(modes.map((mode) => ({ environment_type: mode, permission: 'NO_ACCESS' })))

/** For every cluster and project of the organization, the role's level or the lowest one. */
const columns = {
  description: `coalesce(n.spec ->> 'description', '')`,
  cluster_permissions: `(select coalesce(json_agg(json_build_object('cluster_id', c.id, 'cluster_name', c.name,
      'permission', coalesce((select e ->> 'permission' from jsonb_array_elements(n.spec -> 'cluster_permissions') e
        where e ->> 'cluster_id' = c.id::text limit 1), 'VIEWER')) order by c.created_at, c.id), '[]')
    from node c where c.organization_id = n.organization_id and c.kind = 'cluster')`,
  project_permissions: `(select coalesce(json_agg(
      jsonb_build_object('project_id', p.id, 'project_name', p.name, 'is_admin', false, 'permissions', '${noAccess}'::jsonb)
      || coalesce((select e from jsonb_array_elements(n.spec -> 'project_permissions') e
        where e ->> 'project_id' = p.id::text limit 1), '{}') order by p.created_at, p.id), '[]')
    from node p where p.organization_id = n.organization_id and p.kind = 'project')`,
}

interface Known {
  clusters: string[]
  projects: string[]
}

const readKnown = async ({ db, principal }: Context): Promise<Known> => {
  const [row] = await db.query<Known>(
    `select coalesce(array_agg(id) filter (where kind = 'cluster'), '{}') as clusters,
       coalesce(array_agg(id) filter (where kind = 'project'), '{}') as projects
     from node where organization_id = $1 and kind in ('cluster', 'project')`,
    [principal.organizationId],
  )
  return row!
}

/** Every listed id must exist and be listed once; with `all`, none may be left out. */
const checkNamed = (field: string, named: readonly string[], known: readonly string[], all: boolean): void => {
  const seen = new Set<string>()
  for (const [index, id] of named.entries()) {
    if (!known.includes(id)) throw invalidField(`${field}/${index}`, 'not found in this organization')
    if (seen.has(id)) throw invalidField(`${field}/${index}`, 'is listed twice')
    seen.add(id)
  }
  const missing = known.filter((id) => !seen.has(id))
  if (all && missing.length > 0) throw invalidField(field, `must list all of the organization; missing: ${missing[0]}`)
}

type ProjectEntry = NonNullable<RoleSpec['project_permissions']>[number]

/** All four modes are required, except for a project's admin, who is a manager in all of them. */
const completeProject = (
  { project_id, is_admin = false, permissions = [] }: ProjectEntry,
  index: number,
): ProjectEntry => {
  const held = new Map(permissions.map(({ environment_type, permission }) => [environment_type, permission]))
  if (!is_admin && held.size < modes.length)
    throw invalidField(`/project_permissions/${index}/permissions`, `must list each of ${modes.join(', ')}`)
  const level = (mode: (typeof modes)[number]) => (is_admin ? ('MANAGER' as const) : held.get(mode)!)
  const all = modes.map((mode) => ({ environment_type: mode, permission: level(mode) }))
  return { project_id: project_id.toLowerCase(), is_admin, permissions: all }
}

const validate = async (body: Spec, context: Context, change: Change): Promise<Spec> => {
  if (Object.hasOwn(builtInRoles, String(body.name).trim().toLowerCase()))
    throw invalidField('/name', 'is the name of a built-in role')
  const { cluster_permissions = [], project_permissions = [] } = body as RoleSpec
  const clusters = cluster_permissions.map((each) => ({ ...each, cluster_id: each.cluster_id.toLowerCase() }))
  const projects = project_permissions.map(completeProject)
  const known = await readKnown(context)
  // An edit that leaves out a list keeps it, even if projects were added since.
  const mustName = (field: string): boolean => change.previous !== null && context.body[field] !== undefined
  if (context.body.cluster_permissions !== undefined)
    checkNamed(
      '/cluster_permissions',
      clusters.map(({ cluster_id }) => cluster_id),
      known.clusters,
      mustName('cluster_permissions'),
    )
  if (context.body.project_permissions !== undefined)
    checkNamed(
      '/project_permissions',
      projects.map(({ project_id }) => project_id),
      known.projects,
      mustName('project_permissions'),
    )
  return { ...body, cluster_permissions: clusters, project_permissions: projects }
}

const refuseInUse = async (tx: Queryable, { node }: Context): Promise<undefined> => {
  await tx.query('select 1 from node where id = $1 for update', [node.id])
  const users = await tx.query(
    `select 1 from member where role_id = $1 union all select 1 from invitation where role_id = $1
     union all select 1 from api_token where role_id = $1 and revoked_at is null limit 1`,
    [node.id],
  )
  if (users.length > 0)
    throw conflict(
      'role_in_use',
      'A member, an invitation or an API token still has this role: give it another role first.',
    )
  return undefined
}

const customRole = resource({
  kind: 'custom_role',
  area: 'members',
  // Only admins may change who can do what; among tokens, only they may see it.
  scopes: { list: 'Admin', create: 'Admin', read: 'Admin', edit: 'Admin' },
  parent: { kind: 'organization', param: 'organizationId' },
  tag,
  words: ['a custom role', 'custom roles'],
  collection: '/organization/{organizationId}/customRole',
  item: '/organization/{organizationId}/customRole/{customRoleId}',
  param: 'customRoleId',
  ids: {
    list: 'listOrganizationCustomRoles',
    create: 'createOrganizationCustomRole',
    read: 'getOrganizationCustomRole',
    edit: 'editOrganizationCustomRole',
    remove: 'deleteOrganizationCustomRole',
  },
  spec,
  record: {
    description: Text(2048),
    cluster_permissions: Type.Array(Type.Object({ ...ClusterPermission, cluster_name: Text() })),
    project_permissions: Type.Array(
      Type.Object({ ...ProjectPermission, project_name: Text(), permissions: Type.Array(ModePermission) }),
    ),
  },
  columns,
  validate,
  // Open streams are checked again.
  written: async (tx) => void (await tx.query(`select pg_notify('slipway_token', '')`)),
  onDelete: refuseInUse,
  audit: { target: 'MEMBERS_AND_ROLES', subTarget: 'CUSTOM_ROLE' },
})

/** Every role that a member or token of an organization can have: $1 organization. */
const listRoles = `select '{"results":' || json_agg(json_build_object('id', id, 'name', name) order by place, name)::text
  || '}' as text from (
    select * from (values ${Object.entries(builtInRoles)
      .map(([name, id], index) => `('${id}'::uuid, '${name}', ${index})`)
      .join(', ')}) as built_in (id, name, place)
    union all select id, name, 99 from node where parent_id = $1 and kind = 'custom_role') roles`

const availableRoles = operation({
  id: 'listOrganizationAvailableRoles',
  method: 'GET',
  path: '/organization/{organizationId}/availableRole',
  tag: 'Organization Main Calls',
  summary: 'List the built-in and the custom roles',
  scope: 'Admin',
  area: 'members',
  owner: organizationInPath,
  status: 200,
  answer: Results(Type.Object({ id: Uuid(), name: Text() })),
  run: ({ db, node }) => answerFrom(db, listRoles, [node.id]),
})

export const roleOperations: Operation[] = [availableRoles, ...customRole.operations]
