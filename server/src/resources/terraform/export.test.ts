import assert from 'node:assert/strict'
import { buffer } from 'node:stream/consumers'
import { test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { extract } from 'tar-stream'
import { containerBody, newRegistry } from '../../../test/cases/container.ts'
import { databaseBody } from '../../../test/cases/database.ts'
import { terraformBody } from '../../../test/cases/terraform.ts'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call } = api

const post = async (path: string, body: object): Promise<Json> => {
  const answer = await call('POST', path, body)
  assert.ok(answer.status < 300, JSON.stringify(answer.body))
  return answer.body
}

const download = async (environmentId: string): Promise<Record<string, string>> => {
  const answer = await fetch(`${api.url}/environment/${environmentId}/terraformExport`, {
    headers: { authorization: `Token ${api.token}` },
  })
  assert.deepEqual([answer.status, answer.headers.get('content-type')], [200, 'application/octet-stream'])
  const files: Record<string, string> = {}
  const reading = extract()
  reading.end(gunzipSync(Buffer.from(await answer.arrayBuffer())))
  for await (const entry of reading) files[entry.header.name] = (await buffer(entry)).toString()
  return files
}

test('an environment is exported with its services, variables and stages, and no secret among them', async () => {
  const { environmentId, projectId } = await newPlace(api)
  const web = await newApplication(api, environmentId, {
    name: 'Web "1"',
    storage: [{ size: 4, mount_point: '/data' }],
  })
  await post(`/environment/${environmentId}/database`, databaseBody('store'))
  const registry = await newRegistry(api)
  await post(`/environment/${environmentId}/container`, containerBody(registry, { name: 'box' }))
  await post(`/environment/${environmentId}/terraform`, {
    ...terraformBody('modules'),
    terraform_variables_source: { tf_vars: [{ key: 'TOKEN', value: 'canary-1', secret: true }] },
  })
  const wide = await post(`/environment/${environmentId}/environmentVariable`, { key: 'WIDE', value: 'a ${b}' })
  await post(`/application/${web.id}/environmentVariable/${wide.id}/alias`, { key: 'ALSO' })
  await post(`/application/${web.id}/secret`, { key: 'TOKEN', value: 'canary-2', mount_path: '/etc/token' })
  const stage = await post(`/environment/${environmentId}/deploymentStage`, { name: 'late' })
  await call('PUT', `/deploymentStage/${stage.id}/service/${web.id}`, { is_skipped: true })

  const files = await download(environmentId)
  const all = Object.values(files).join('\n')
  assert.ok(!all.includes('canary'))
  assert.match(files['main.tf']!, new RegExp(`^# +export TEST_QOVERY_HOST=${api.url}$`, 'm'))
  assert.match(files['environment.tf']!, new RegExp(`project_id = "${projectId}"`))
  assert.match(files['environment.tf']!, /key = "WIDE"\n\s+value = "a \$\$\{b\}"/)
  const application = files['applications.tf']!
  assert.match(
    application,
    /^resource "qovery_application" "web_1" \{\n {2}environment_id = qovery_environment\.this\.id/,
  )
  assert.match(application, /name = "Web \\"1\\""/)
  assert.match(application, /environment_variable_aliases = \[\n\s+\{\n\s+key = "ALSO"\n\s+value = "WIDE"/)
  assert.match(
    application,
    /secret_files = \[\n\s+\{\n\s+key = "TOKEN"\n\s+mount_path = "\/etc\/token"\n\s+value = var\.web_1_token/,
  )
  assert.match(application, /deployment_stage_id = qovery_deployment_stage\.late\.id\n {2}is_skipped = true/)
  assert.match(files['variables.tf']!, /variable "web_1_token" \{\n {2}type = string\n {2}sensitive = true/)
  assert.match(files['databases.tf']!, /"qovery_database" "store"/)
  assert.match(files['containers.tf']!, new RegExp(`registry_id = "${registry}"`))
  assert.match(files['terraforms.tf']!, /"qovery_terraform_service" "modules"/)
  assert.equal((all.match(/\{/g) ?? []).length, (all.match(/\}/g) ?? []).length)
})

test('an export is noted in the audit', async () => {
  const { environmentId } = await newPlace(api)
  assert.deepEqual(Object.keys(await download(environmentId)), ['main.tf', 'environment.tf'])
  const rows = await api.database.query(`select 1 from event where event_type = 'EXPORT' and target_id = $1`, [
    environmentId,
  ])
  assert.equal(rows.length, 1)
})
