import assert from 'node:assert/strict'
import { test } from 'node:test'
import { terraformBody } from '../../../test/cases/terraform.ts'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { judgeAnswer } from '../../../test/support/client-types.ts'
import { until } from '../../../test/support/until.ts'

const api = await startApi()
const { call } = api

const sent = async (method: string, path: string, body: object | undefined, status: number): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}

const create = async (more: object = {}, status = 201): Promise<Json> => {
  const { environmentId } = await newPlace(api)
  return sent('POST', `/environment/${environmentId}/terraform`, { ...terraformBody('infra'), ...more }, status)
}

const variables = (...tf_vars: object[]) => ({ terraform_variables_source: { tf_var_file_paths: [], tf_vars } })

/** All data in the database about services and their audit, as text. */
const everything = async (): Promise<string> => {
  const nodes = await api.database.query(`select spec from node where kind = 'terraform'`)
  const events = await api.database.query('select change from event')
  return JSON.stringify([nodes, events])
}

const opened = async (id: string, key: string): Promise<string | null> => {
  const [row] = await api.database.query<{ sealed: Record<string, string> }>('select sealed from node where id = $1', [
    id,
  ])
  const column = `tf_vars.${key}`
  const text = row!.sealed[column]
  if (text === undefined) return null
  return (await api.parts.sealer.open(api.organizationId, { table: 'node', row: id, column }, text)).reveal()
}

test('a terraform service is created from what clients send, and answered with all that they need', async () => {
  const made = await create({ dockerfile_fragment: { type: 'inline', content: 'RUN true' } })
  assert.deepEqual(judgeAnswer('createTerraform', made), [])
  assert.deepEqual(
    [made.auto_deploy, made.backend, made.timeout_sec, made.use_cluster_credentials, made.service_type],
    [false, { kubernetes: {} }, 600, false, 'TERRAFORM'],
  )
  assert.equal(made.terraform_files_source.git.git_repository.name, 'infra')
  const paths = { ...variables().terraform_variables_source, tf_var_file_paths: ['/live/eu.tfvars', './x.tfvars'] }
  const told = await sent('PUT', `/terraform/${made.id}`, { terraform_variables_source: paths }, 200)
  assert.deepEqual(told.terraform_variables_source, paths)
  const edited = await sent('PUT', `/terraform/${made.id}`, { auto_deploy_config: { auto_deploy: true } }, 200)
  assert.deepEqual([edited.auto_deploy, edited.engine], [true, 'TERRAFORM'])
  assert.deepEqual(edited.dockerfile_fragment, { type: 'inline', content: 'RUN true' })
  assert.deepEqual(judgeAnswer('editTerraform', edited), [])
})

test('a secret variable is sealed, and in no answer, configuration or audit row', async () => {
  const secret = { key: 'password', value: 'canary-1', secret: true }
  const made = await create(variables({ key: 'region', value: 'eu' }, secret))
  assert.deepEqual(made.terraform_variables_source.tf_vars, [
    { key: 'region', value: 'eu', secret: false },
    { key: 'password', secret: true },
  ])
  const path = `/terraform/${made.id}`
  const edited = await sent('PUT', path, variables({ ...secret, value: 'canary-2' }), 200)
  const lists = await sent('GET', `/environment/${made.environment.id}/terraform`, undefined, 200)
  const services = await sent('GET', `/environment/${made.environment.id}/services`, undefined, 200)
  assert.doesNotMatch(JSON.stringify([made, edited, lists, services]) + (await everything()), /canary/)
  assert.equal(await opened(made.id, 'password'), 'canary-2')
})

test('an edit that leaves the value of a secret out keeps it; one that leaves the secret out forgets it', async () => {
  const secret = { key: 'password', value: 'canary-3', secret: true }
  const { id, terraform_variables_source: source } = await create(variables(secret))
  await sent('PUT', `/terraform/${id}`, { terraform_variables_source: source, timeout_sec: 5 }, 200)
  await sent('PUT', `/terraform/${id}`, { name: 'other' }, 200)
  assert.equal(await opened(id, 'password'), 'canary-3')
  await sent('PUT', `/terraform/${id}`, variables({ key: 'region', value: 'eu' }), 200)
  assert.equal(await opened(id, 'password'), null)
})

test('what cannot be meant is 400 and names its field', async () => {
  const refused: [object, RegExp][] = [
    [{ backend: {} }, /backend/],
    [{ backend: { kubernetes: {}, user_provided: {} } }, /backend/],
    [{ engine: 'PULUMI' }, /engine/],
    [{ dockerfile_fragment: { type: 'file' } }, /dockerfile_fragment.path/],
    [variables({ key: 'a', value: '1' }, { key: 'a', value: '2' }), /tf_vars.1.key/],
    [variables({ key: 'a', secret: true }), /tf_vars.0.value/],
    [variables({ key: '1a', value: '1' }), /tf_vars.0.key/],
    [{ terraform_variables_source: { tf_var_file_paths: ['../x'], tf_vars: [] } }, /tf_var_file_paths.0/],
  ]
  for (const [body, words] of refused) assert.match((await create(body, 400)).message, words)
})

const settledStatus = (environmentId: string, id: string): Promise<Json> =>
  until(
    async () => {
      const { terraforms } = await sent('GET', `/environment/${environmentId}/statuses`, undefined, 200)
      const found = terraforms.find((each: Json) => each.id === id)
      return found !== undefined && /DEPLOYED|ERROR/.test(found.state) ? found : null
    },
    { timeoutMs: 20_000, what: 'the end' },
  )

test('a deploy applies, a plan does not, and the status says which of them it was', async () => {
  const { id, environment } = await create()
  await sent('POST', `/terraform/${id}/deploy`, { action: 'PLAN' }, 202)
  const planned = await settledStatus(environment.id, id)
  assert.deepEqual(
    [planned.service_deployment_status, planned.status_details.sub_action],
    ['NEVER_DEPLOYED', 'TERRAFORM_PLAN_ONLY'],
  )
  const asked = await sent('POST', `/terraform/${id}/deploy`, {}, 202)
  assert.equal(asked.status_details.sub_action, 'TERRAFORM_PLAN_AND_APPLY')
  const applied = await settledStatus(environment.id, id)
  assert.deepEqual([applied.state, applied.service_deployment_status], ['DEPLOYED', 'UP_TO_DATE'])
  await sent('POST', `/environment/${environment.id}/service/deploy`, { terraforms: [{ id, action: 'PLAN' }] }, 202)
  assert.equal((await settledStatus(environment.id, id)).status_details.sub_action, 'TERRAFORM_PLAN_ONLY')
})

test('a change of a secret variable makes a deployed service out of date', async () => {
  const secret = { key: 'password', value: 'canary-5', secret: true }
  const { id, environment } = await create(variables(secret))
  await sent('POST', `/terraform/${id}/deploy`, {}, 202)
  assert.equal((await settledStatus(environment.id, id)).service_deployment_status, 'UP_TO_DATE')
  await sent('PUT', `/terraform/${id}`, variables({ ...secret, value: 'canary-6' }), 200)
  assert.equal((await settledStatus(environment.id, id)).service_deployment_status, 'OUT_OF_DATE')
})

test('what this server cannot apply is refused in one sentence when it is deployed; its record is kept', async () => {
  const blueprint = await create({ backend: { blueprint: { type: 's3' } } })
  assert.match((await sent('POST', `/terraform/${blueprint.id}/deploy`, {}, 400)).message, /blueprint/)
  const elsewhere = await create({ backend: { user_provided: {} } })
  const unlock = { action: 'FORCE_UNLOCK' }
  assert.match((await sent('POST', `/terraform/${elsewhere.id}/deploy`, unlock, 400)).message, /has nothing to run/)
  const { id } = await create()
  const { missingTool } = api.parts.builder
  api.parts.builder.missingTool = async (name) => `${name} is not here.`
  for (const action of ['deploy', 'redeploy'])
    assert.match((await sent('POST', `/terraform/${id}/${action}`, {}, 400)).message, /terraform is not here/)
  const plan = await sent('POST', `/terraform/${id}/deploy?dry_run=true`, {}, 200)
  assert.deepEqual(plan.stages[0].services[0].effect, 'REFUSED')
  api.parts.builder.missingTool = missingTool
})

test('arguments are words: one with a line break is 400', async () => {
  const refused = await create({ action_extra_arguments: { plan: ['a\nb'] } }, 400)
  assert.match(refused.message, /action_extra_arguments.plan/)
})

test('a delete of the resources only leaves the configuration', async () => {
  const { id } = await create()
  await sent('DELETE', `/terraform/${id}?resources_only=true`, undefined, 204)
  await sent('GET', `/terraform/${id}`, undefined, 200)
  await sent('DELETE', `/terraform/${id}`, undefined, 204)
  await sent('GET', `/terraform/${id}`, undefined, 404)
})

test('an uninstall that should skip the destroy says so, and runs nothing', async () => {
  const { id, environment } = await create()
  await sent('POST', `/terraform/${id}/deploy`, {}, 202)
  await settledStatus(environment.id, id)
  await sent('POST', `/terraform/${id}/uninstall?force_terraform_action=SKIP_DESTROY`, undefined, 202)
  const log = await until(
    async () => {
      const found = await call('GET', `/environment/${environment.id}/logs`)
      return /Uninstalled/.test(JSON.stringify(found.body)) ? found.body : null
    },
    { what: 'the uninstall' },
  )
  assert.match(JSON.stringify(log), /Skipping destroy as requested; resources are kept/)
})

test('variables and secrets are set through the generic family', async () => {
  const { id } = await create()
  const place = { variable_scope: 'TERRAFORM', variable_parent_id: id }
  const secret = await sent('POST', '/variable', { key: 'A', value: '1', is_secret: true, ...place }, 201)
  assert.deepEqual([secret.scope, secret.service_type, secret.value], ['TERRAFORM', 'TERRAFORM', null])
})
