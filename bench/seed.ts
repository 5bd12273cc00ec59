/**
 * Bulk rows for both sides by the same SQL: copies of template rows, so that nothing here knows what a row's `spec`
 * holds. Ours gets its templates from the API, the floor from `plantTemplates`.
 */
import { newId } from '../server/src/lib/ids.ts'
import type { Queryable } from '../server/src/store/database.ts'

export interface Templates {
  organizationId: string
  projectId: string
  environmentId: string
  applicationId: string
  /** One variable of each sort; alias and override belong to the application. */
  variables: { project: string; environment: string; application: string; alias: string; override: string }
}

const copyNode = `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec, sealed)
  select gen_random_uuid(), organization_id, kind, coalesce($3::uuid, parent_id), name_scope, name || '-copy-' || n,
    spec, sealed
  from node, generate_series(1, $2::int) n where id = $1
  returning id`

/** Copies of one row under `parentId` (null: under the same parent); gives their ids. */
export const copyNodes = async (db: Queryable, id: string, count: number, parentId: string | null) =>
  (await db.query<{ id: string }>(copyNode, [id, count, parentId])).map((row) => row.id)

/** 10,000 environments, 100 in each of 100 projects; gives one of those projects. */
export const seedEnvironments = async (db: Queryable, { projectId, environmentId }: Templates): Promise<string> => {
  const projects = await copyNodes(db, projectId, 100, null)
  for (const project of projects) await copyNodes(db, environmentId, 100, project)
  await db.query('analyze node')
  return projects[50]!
}

/** An environment with 50 services that were never deployed; gives its id. */
export const seedServices = async (db: Queryable, templates: Templates): Promise<string> => {
  const [environmentId] = await copyNodes(db, templates.environmentId, 1, null)
  const services = await copyNodes(db, templates.applicationId, 50, environmentId!)
  await db.query(
    `insert into service_state (service_id, environment_id, organization_id, kind, state, action, action_status,
       desired, running_state)
     select s.id, $2::uuid, t.organization_id, t.kind, t.state, t.action, t.action_status, t.desired, t.running_state
     from unnest($1::uuid[]) s (id), service_state t where t.service_id = $3::uuid`,
    [services, environmentId, templates.applicationId],
  )
  await db.query('analyze service_state')
  return environmentId!
}

/** Environments of services that were never deployed, in a project of their own; gives the environments' ids. */
export const seedManyServices = async (
  db: Queryable,
  templates: Templates,
  environments: number,
  servicesEach: number,
): Promise<string[]> => {
  const [project] = await db.query<{ id: string }>(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
     select gen_random_uuid(), organization_id, kind, parent_id, name_scope, name || $2, spec from node where id = $1
     returning id`,
    [templates.projectId, ` with ${environments * servicesEach} services`],
  )
  const ids = await copyNodes(db, templates.environmentId, environments, project!.id)
  await db.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec, sealed)
     select gen_random_uuid(), organization_id, kind, e.id, name_scope, name || '-copy-' || n, spec, sealed
     from node t, unnest($2::uuid[]) e (id), generate_series(1, $3::int) n where t.id = $1`,
    [templates.applicationId, ids, servicesEach],
  )
  await db.query(
    `insert into service_state (service_id, environment_id, organization_id, kind)
     select s.id, s.parent_id, s.organization_id, s.kind from node s where s.parent_id = any($1::uuid[])`,
    [ids],
  )
  // Done now, or the database does it in the background while something is measured.
  await db.query('vacuum (analyze) node, service_state')
  await db.query('checkpoint')
  return ids
}

/** One environment with so many services, and so many variables of its own; gives its id. */
export const seedLargeEnvironment = async (
  db: Queryable,
  templates: Templates,
  services: number,
  variables: number,
): Promise<string> => {
  const [environmentId] = await seedManyServices(db, templates, 1, services)
  await db.query(
    `insert into variable (id, organization_id, parent_id, scope, key, value, is_secret, variable_type)
     select gen_random_uuid(), organization_id, $2::uuid, scope, key || '_' || n, value, is_secret, variable_type
     from variable, generate_series(1, $3::int) n where id = $1`,
    [templates.variables.environment, environmentId, variables],
  )
  await db.query('analyze variable')
  return environmentId!
}

const copyVariable = `insert into variable (id, organization_id, parent_id, scope, key, value, sealed, is_secret,
    variable_type, mount_path, description, enable_interpolation_in_file, owned_by)
  select gen_random_uuid(), organization_id, parent_id, scope, key || '_' || n, value, sealed, is_secret,
    variable_type, mount_path, description, enable_interpolation_in_file, owned_by
  from variable, generate_series(1, $2::int) n where id = $1`

const copyPointing = `with target as (
    select id, key, row_number() over (order by key) as n from variable where parent_id = $2::uuid and target_id is null)
  insert into variable (id, organization_id, parent_id, scope, key, value, sealed, is_secret,
    variable_type, mount_path, description, enable_interpolation_in_file, owned_by, target_id)
  select gen_random_uuid(), v.organization_id, v.parent_id, v.scope,
    case when $3::boolean then target.key else v.key || '_' || target.n end, v.value, v.sealed, v.is_secret,
    v.variable_type, v.mount_path, v.description, v.enable_interpolation_in_file, v.owned_by, target.id
  from variable v, target where v.id = $1 and target.n between 2 and $4::int + 1
  on conflict do nothing`

/** 1,000 variables that the application sees: 250 + 250 above it, 300 own, 100 aliases, 100 overrides. */
export const seedVariables = async (db: Queryable, templates: Templates): Promise<void> => {
  const { project, environment, application, alias, override } = templates.variables
  await db.query(copyVariable, [project, 249])
  await db.query(copyVariable, [environment, 249])
  await db.query(copyVariable, [application, 299])
  await db.query(copyPointing, [alias, templates.environmentId, false, 99])
  await db.query(copyPointing, [override, templates.projectId, true, 99])
  await db.query('analyze variable')
}

const plantNode = async (db: Queryable, node: { kind: string; parent: string | null; organization: string }) => {
  const id = node.kind === 'organization' ? node.organization : newId()
  await db.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec) values ($1, $2, $3, $4, $5, $6, $7)`,
    [id, node.organization, node.kind, node.parent, node.kind, `bench-${node.kind}`, JSON.stringify(planted)],
  )
  return id
}

const planted = { mode: 'DEVELOPMENT', cluster_id: newId(), cluster_name: 'local', description: 'made by the bench' }

const plantVariable = async (db: Queryable, organization: string, parent: string, key: string, target?: string) => {
  const id = newId()
  const type = target === undefined ? 'VALUE' : key
  await db.query(
    `insert into variable (id, organization_id, parent_id, scope, key, value, is_secret, variable_type, target_id)
     values ($1, $2, $3, 'APPLICATION', $4, 'a value of ordinary length', false, $5, $6)`,
    [id, organization, parent, `BENCH_${key}`, type, target],
  )
  return id
}

/** The template rows of the floor's database; ours come from the API. */
export const plantTemplates = async (db: Queryable): Promise<Templates> => {
  const organization = newId()
  await plantNode(db, { kind: 'organization', parent: null, organization })
  const projectId = await plantNode(db, { kind: 'project', parent: organization, organization })
  const environmentId = await plantNode(db, { kind: 'environment', parent: projectId, organization })
  const applicationId = await plantNode(db, { kind: 'application', parent: environmentId, organization })
  await db.query(
    `insert into service_state (service_id, environment_id, organization_id, kind) values ($1, $2, $3, 'application')`,
    [applicationId, environmentId, organization],
  )
  const project = await plantVariable(db, organization, projectId, 'PROJECT')
  const environment = await plantVariable(db, organization, environmentId, 'ENVIRONMENT')
  const application = await plantVariable(db, organization, applicationId, 'OWN')
  const alias = await plantVariable(db, organization, applicationId, 'ALIAS', environment)
  const override = await plantVariable(db, organization, applicationId, 'OVERRIDE', project)
  const variables = { project, environment, application, alias, override }
  return { organizationId: organization, projectId, environmentId, applicationId, variables }
}
