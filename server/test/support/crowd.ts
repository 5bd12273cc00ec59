/** Rows by the thousand in every table that grows, made in SQL from rows that the API made. */
import type { Database, Queryable } from '../../src/store/database.ts'

export interface Templates {
  organizationId: string
  projectId: string
  environmentId: string
  applicationId: string
  deploymentId: string
}

export const organizations = 40
const projectsEach = 5
const environmentsEach = 10
const servicesEach = 10

// Every organization gets as much as ours: a table in which most rows are the caller's is best read whole.
/** In one transaction without triggers: they look after each row, which takes hours for so many. */
export const fillTables = (database: Database, templates: Templates): Promise<void> =>
  database.transaction(async (tx) => {
    await tx.query('set local session_replication_role = replica')
    await fillAll(tx, templates)
  })

const fillAll = async (db: Queryable, templates: Templates): Promise<void> => {
  const run = (text: string, values: readonly unknown[] = []) => db.query(text, values)
  await run(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
     select o, o, 'organization', null, 'organization', 'crowd ' || n, '{}'
     from (select gen_random_uuid() as o, n from generate_series(1, $1::int) n) made`,
    [organizations],
  )
  const copies = (templateId: string, parentKind: string, each: number) =>
    run(
      `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
       select gen_random_uuid(), p.organization_id, t.kind, p.id, t.name_scope, t.kind || ' crowd ' || n,
         case when t.spec ? 'cluster_id' and p.organization_id <> t.organization_id
           then t.spec || jsonb_build_object('cluster_id', p.organization_id) else t.spec end
       from node p, node t, generate_series(1, $3::int) n
       where p.kind = $2 and t.id = $1 and p.name not like 'the scene %'`,
      [templateId, parentKind, each],
    )
  await copies(templates.projectId, 'organization', projectsEach)
  await copies(templates.environmentId, 'project', environmentsEach)
  await copies(templates.applicationId, 'environment', servicesEach)
  const inServices = `from node s where s.kind = 'application'`
  await run(
    `insert into service_state (service_id, environment_id, organization_id, kind, cluster_id)
     select s.id, s.parent_id, s.organization_id, s.kind,
       (select (e.spec ->> 'cluster_id')::uuid from node e where e.id = s.parent_id)
     ${inServices} on conflict do nothing`,
  )
  await run(
    `insert into service_size select s.id, s.organization_id, size.* from node s, size_of_service(s.spec) size
     where s.kind = 'application' on conflict do nothing`,
  )
  await run(
    `insert into variable (id, organization_id, parent_id, scope, key, value, is_secret, variable_type)
     select gen_random_uuid(), n.organization_id, n.id, upper(n.kind), 'CROWD_' || k, 'a value', false, 'VALUE'
     from node n, generate_series(1, 2) k where n.kind in ('project', 'environment', 'application')`,
  )
  await run(
    `insert into route (host, organization_id, environment_id, service_id, port)
     select 'crowd-' || s.id, s.organization_id, s.parent_id, s.id, 80 ${inServices}`,
  )
  await fillHistories(run, templates)
}

const fillHistories = async (
  run: (text: string, values?: readonly unknown[]) => Promise<unknown>,
  templates: Templates,
) => {
  const { deploymentId } = templates
  await run(
    `insert into deployment (id, organization_id, environment_id, execution_number, action, origin, triggered_by, state,
       created_at, started_at, finished_at)
     select gen_random_uuid(), e.organization_id, e.id, 1000 + n, t.action, t.origin, t.triggered_by, 'SUCCEEDED',
       now() - n * interval '1 hour', now() - n * interval '1 hour', now() - n * interval '1 hour'
     from node e, deployment t, generate_series(1, 10) n where e.kind = 'environment' and t.id = $1`,
    [deploymentId],
  )
  await run(
    `insert into deployment_service (deployment_id, service_id, organization_id, kind, name, action, state)
     select d.id, s.id, s.organization_id, s.kind, s.name, 'DEPLOY', 'DEPLOYED'
     from deployment d join node s on s.parent_id = d.environment_id and s.kind = 'application'
     where d.execution_number in (1001, 1002) on conflict do nothing`,
  )
  await run(
    `insert into deployment_step (deployment_id, service_id, name, status)
     select deployment_id, service_id, step, 'SUCCESS' from deployment_service, unnest(array['release', 'switch']) step
     on conflict do nothing`,
  )
  await run(
    `insert into release (id, organization_id, service_id, deployment_id, image, workload, sealed_env, hash, cluster_id)
     select gen_random_uuid(), d.organization_id, d.service_id, d.deployment_id, 'image', '{}', 'x', 'x', cluster_id
     from deployment_service d join service_state using (service_id) on conflict do nothing`,
  )
  await run(
    `insert into deployment_log (deployment_id, service_id, step, lines)
     select deployment_id, service_id, 'release', '[]' from deployment_service`,
  )
  await run(
    `insert into event (id, organization_id, event_type, target_type, target_id, origin, triggered_by, created_at)
     select gen_random_uuid(), organization_id, 'UPDATE', 'APPLICATION', id, 'API', 'crowd', now() - random() * interval '90 days'
     from node where kind = 'application'`,
  )
  await run(
    `insert into api_token (id, organization_id, name, prefix, hash, scopes)
     select gen_random_uuid(), o.id, 'crowd ' || n, 'slip_crowd', sha256((o.id::text || n)::bytea), '{Read}'
     from node o, generate_series(1, 100) n where o.kind = 'organization'`,
  )
  await run(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
     select gen_random_uuid(), o.id, 'webhook', o.id, 'webhook', 'crowd ' || n, '{"target_url":"http://127.0.0.1:9/"}'
     from node o, generate_series(1, 5) n where o.kind = 'organization'`,
  )
  await run(
    `insert into outbox (id, organization_id, webhook_id, ordering_key, event_type, body, state)
     select gen_random_uuid(), w.organization_id, w.id, gen_random_uuid(), 'DEPLOYMENT_STARTED', '{}', 'DELIVERED'
     from node w, generate_series(1, 50) n where w.kind = 'webhook'`,
  )
  await run(
    `insert into delivery (id, outbox_id, webhook_id, attempt, event_type, target_url, request, response_status, duration_ms)
     select gen_random_uuid(), o.id, o.webhook_id, 1, o.event_type, 'http://127.0.0.1:9/', '{}', 200, 1 from outbox o`,
  )
  await run(
    `insert into idempotency_key (organization_id, method, path, key, body_hash, status, body)
     select o.id, 'POST', '/crowd', n::text, 'x', 200, 'x' from node o, generate_series(1, 200) n
     where o.kind = 'organization'`,
  )
  await run(
    `insert into image (content_key, reference, image_id) select 'crowd ' || n, 'x', 'x' from generate_series(1, 5000) n`,
  )
  await run('analyze')
}
