/**
 * The least program that answers the API's figures: fastify and pg, a cached token, one prepared statement a request,
 * in plain JavaScript, so that no types are stripped at its start; no validation, scopes, limits, audit trail of reads or errors worth reading. Settings: FLOOR_DATABASE_URL,
 * FLOOR_PORT; any token whose hash stands in `api_token` is let in.
 */
import { createHash, randomUUID } from 'node:crypto'
import fastify from 'fastify'
import pg from 'pg'

const pool = new pg.Pool({ connectionString: process.env.FLOOR_DATABASE_URL, max: 16 })
pool.on('error', () => {})

/** Casting costs half of `to_char`. */
const iso = (column) => `replace((${column} at time zone 'UTC')::text, ' ', 'T') || 'Z'`

const environmentJson = `json_build_object('id', id, 'created_at', ${iso('created_at')}, 'updated_at',
  ${iso('updated_at')}, 'name', name, 'organization', json_build_object('id', organization_id), 'project',
  json_build_object('id', parent_id), 'cloud_provider', json_build_object('provider', 'ON_PREMISE', 'cluster', 'local'),
  'mode', spec ->> 'mode', 'cluster_id', spec ->> 'cluster_id', 'cluster_name', spec ->> 'cluster_name')`

const environmentColumns = `id, name, organization_id, parent_id, spec ->> 'mode' as mode,
  spec ->> 'cluster_id' as cluster_id, spec ->> 'cluster_name' as cluster_name,
  ${iso('created_at')} as created_at, ${iso('updated_at')} as updated_at`

const statements = {
  token: `select organization_id from api_token where hash = $1 and revoked_at is null`,
  one: `select ${environmentColumns} from node where id = $1`,
  list: `select ${environmentColumns} from node where parent_id = $1 and kind = 'environment' order by created_at, id`,
  create: `with made as (
      insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
      select $1, organization_id, 'environment', id, 'environment', $3, $4 from node where id = $2
      returning *),
    audit as (
      insert into event (id, organization_id, event_type, target_type, target_id, target_name, project_id, change,
        origin, triggered_by)
      select $5, organization_id, 'CREATE', 'ENVIRONMENT', id, name, parent_id, spec, 'API', 'bench' from made)
    select ${environmentJson}::text as body from made`,
  variables: `select string_agg(row_to_json(x)::text, ',') as body from (
      select v.id, ${iso('v.created_at')} as created_at, ${iso('v.updated_at')} as updated_at, v.key,
        coalesce(v.value, t.value) as value, v.scope, v.variable_type, v.mount_path, v.description,
        case v.variable_type when 'ALIAS' then json_build_object('id', t.id, 'key', t.key, 'value', t.value,
          'mount_path', t.mount_path) end as aliased_variable,
        case v.variable_type when 'OVERRIDE' then json_build_object('id', t.id, 'key', t.key, 'value', t.value,
          'mount_path', t.mount_path) end as overridden_variable,
        s.id as service_id, s.name as service_name, v.owned_by
      from node s join node e on e.id = s.parent_id
        join variable v on v.parent_id in (s.id, e.id, e.parent_id) and not v.is_secret
        left join variable t on t.id = v.target_id
      where s.id = $1 order by v.key) x`,
  statuses: `select service_id as id, state, case when deployed_hash is null then 'NEVER_DEPLOYED' else 'UP_TO_DATE'
      end as service_deployment_status, true as is_part_last_deployment, action, action_status,
      deployment_id as deployment_request_id, 0 as deployment_requests_count,
      ${iso('last_deployment_at')} as last_deployment_date, execution_id, running_state
    from service_state where environment_id = $1 and kind = 'application'`,
}

const query = async (name, values) => (await pool.query({ name, text: statements[name], values })).rows

const text = { type: 'string' }
const reference = { type: 'object', properties: { id: text } }
const environmentSchema = {
  type: 'object',
  properties: {
    id: text,
    created_at: text,
    updated_at: text,
    name: text,
    organization: reference,
    project: reference,
    cloud_provider: { type: 'object', properties: { provider: text, cluster: text } },
    mode: text,
    cluster_id: text,
    cluster_name: text,
  },
}
const statusSchema = {
  type: 'object',
  properties: {
    id: text,
    state: text,
    service_deployment_status: text,
    is_part_last_deployment: { type: 'boolean' },
    status_details: { type: 'object', properties: { action: text, status: text, sub_action: text } },
    deployment_request_id: { type: ['string', 'null'] },
    deployment_requests_count: { type: 'integer' },
    last_deployment_date: { type: ['string', 'null'] },
    execution_id: { type: ['string', 'null'] },
    running_state: text,
  },
}
const listOf = (items) => ({
  response: { 200: { type: 'object', properties: { results: { type: 'array', items } } } },
})

const localCluster = { provider: 'ON_PREMISE', cluster: 'local' }
const toEnvironment = (row) => ({
  ...row,
  organization: { id: row.organization_id },
  project: { id: row.parent_id },
  cloud_provider: localCluster,
})
const toStatus = (row) => ({
  ...row,
  status_details: { action: row.action, status: row.action_status, sub_action: 'NONE' },
})

const tokens = new Map()
const isKnown = async (header) => {
  const hash = createHash('sha256').update(header.slice(6)).digest()
  const key = hash.toString('base64')
  if (tokens.has(key)) return true
  const [row] = await query('token', [hash])
  if (row !== undefined) tokens.set(key, row.organization_id)
  return row !== undefined
}

const app = fastify()
app.addHook('onRequest', async (request, reply) => {
  if (!(await isKnown(request.headers.authorization ?? ''))) await reply.code(401).send({ status: 401 })
})
app.get('/environment/:id', { schema: { response: { 200: environmentSchema } } }, async ({ params }) =>
  toEnvironment((await query('one', [params.id]))[0]),
)
app.get('/project/:id/environment', { schema: listOf(environmentSchema) }, async ({ params }) => ({
  results: (await query('list', [params.id])).map(toEnvironment),
}))
app.post('/project/:id/environment', async ({ params, body }, reply) => {
  const values = [randomUUID(), params.id, body.name, JSON.stringify(body), randomUUID()]
  const [made] = await query('create', values)
  return reply.code(201).type('application/json').send(made.body)
})
app.get('/application/:id/environmentVariable', async ({ params }, reply) => {
  const [list] = await query('variables', [params.id])
  return reply.type('application/json').send(`{"results":[${list.body ?? ''}]}`)
})
app.get('/environment/:id/application/status', { schema: listOf(statusSchema) }, async ({ params }) => ({
  results: (await query('statuses', [params.id])).map(toStatus),
}))

process.on('SIGINT', () => {})
process.on('SIGTERM', () => process.exit(0))
process.on('disconnect', () => process.exit(0))
await app.listen({ host: '127.0.0.1', port: Number(process.env.FLOOR_PORT) })
