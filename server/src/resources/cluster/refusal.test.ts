import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'

const api = await startApi()
const { call, database } = api

/** An environment on a cluster that is not this machine. */
const newElsewhere = async (): Promise<string> => {
  const { environmentId } = await newPlace(api)
  const id = newId()
  await database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
     values ($1, $2, 'cluster', $2, 'cluster', $3, '{"kubernetes": "MANAGED"}')`,
    [id, api.organizationId, `cluster ${id}`],
  )
  await database.query(`update node set spec = spec || jsonb_build_object('cluster_id', $2::text) where id = $1`, [
    environmentId,
    id,
  ])
  return environmentId
}

test('nothing is deployed to a cluster that this server does not run on, and it says why', async () => {
  const environmentId = await newElsewhere()
  const { id } = await newApplication(api, environmentId)
  for (const path of [
    `/application/${id}/deploy`,
    `/application/${id}/redeploy`,
    `/environment/${environmentId}/deploy`,
  ]) {
    const { status, body } = await call('POST', path)
    assert.deepEqual([status, body.code], [400, 'cluster_not_deployable'], path)
    assert.match(body.message, /cluster/)
  }
  assert.equal((await call('GET', `/application/${id}/status`)).body.state, 'READY')
})

test('what stands on such a cluster can be stopped, uninstalled and deleted: nothing of it runs', async () => {
  const environmentId = await newElsewhere()
  const { id } = await newApplication(api, environmentId)
  const state = async () => (await call('GET', `/application/${id}/status`)).body.state
  assert.equal((await call('POST', `/application/${id}/stop`)).status, 202)
  await until(async () => (await state()) === 'STOPPED', { what: 'the stop' })
  assert.equal((await call('POST', `/application/${id}/uninstall`)).status, 202)
  await until(async () => (await state()) === 'READY', { what: 'the uninstall' })
  assert.equal((await call('DELETE', `/environment/${environmentId}`)).status, 204)
  await until(async () => (await call('GET', `/application/${id}/status`)).status === 404, { what: 'the end' })
})
