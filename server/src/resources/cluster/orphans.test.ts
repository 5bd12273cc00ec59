/**
 * Objects on a cluster that the database does not know, and a database that is older than the objects it finds,
 * through the API.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Call, caller, type Json, newApplication, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { localKey } from '../../clusters/local.ts'

const api = await startApi({ hasLines: true })
const { clusterId, database, runtime } = api
const signal = AbortSignal.timeout(600_000)

const send = async (call: Call, method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const orphans = (call: Call = api.call): Promise<Json> => send(call, 'GET', `/cluster/${clusterId}/orphans`)

const otherOrganization = async (): Promise<Call> => {
  const { id } = await send(api.call, 'POST', '/organization', { name: `other ${Date.now()}`, plan: 'FREE' })
  return caller(api.url, await api.newToken(['Admin'], id))
}

const ownToken = async (): Promise<Call> => caller(api.url, await api.newToken(['Admin']))

let made = 0
const storage = [{ type: 'FAST_SSD', size: 4, mount_point: '/data' }]

const deployed = async (): Promise<{ id: string; environmentId: string }> => {
  made += 1
  const project = await send(api.call, 'POST', `/organization/${api.organizationId}/project`, { name: `p${made}` })
  const environment = await send(api.call, 'POST', `/project/${project.id}/environment`, { name: `e${made}` })
  const { id } = await newApplication(api, environment.id, { storage })
  await send(api.call, 'POST', `/application/${id}/deploy`)
  await until(async () => (await runtime.instancesOf(id)).length > 0 && (await stateOf(id)) === 'RUNNING', {
    what: 'it to run',
  })
  return { id, environmentId: environment.id }
}

const stateOf = async (id: string): Promise<string> => (await send(api.call, 'GET', `/application/${id}/status`)).state

/** As a copy of the database that is older than the environment. */
const forget = async (environmentId: string): Promise<void> => {
  await database.query('delete from node where id = $1', [environmentId])
  await database.query('delete from deletion where environment_id = $1', [environmentId])
}

/** Makes a pass of the reconciler check the cluster. */
const restart = async (): Promise<void> => {
  await api.engine.stop()
  await api.engine.start()
}

test('an orphan is listed to its own organization and to the operator, runs on, and goes when a person removes it', async () => {
  const { id, environmentId } = await deployed()
  await until(async () => (await database.query(`select from deployment where state = 'RUNNING'`)).length === 0, {
    what: 'the end of the deployment',
  })
  await forget(environmentId)
  await restart()
  await until(async () => (await orphans()).results.length === 2, { what: 'both to be listed' })
  const { conflict, results } = await orphans()
  assert.equal(conflict, null)
  assert.deepEqual(
    results.map(({ id, kind, organization_id: of }: Json) => [kind, id, of]),
    [
      ['ENVIRONMENT', environmentId, api.organizationId],
      ['SERVICE', id, api.organizationId],
    ],
  )
  assert.equal(results[1].volumes.length, 1)
  assert.equal((await orphans(await ownToken())).results.length, 2)
  const other = await otherOrganization()
  const [theirs] = (await send(other, 'GET', '/organization')).results
  const [cluster] = (await send(other, 'GET', `/organization/${theirs.id}/cluster`)).results
  const path = `/cluster/${cluster.id}/orphans`
  assert.deepEqual((await send(other, 'GET', path)).results, [])
  assert.deepEqual((await send(other, 'POST', `${path}/remove`, { ids: [id] })).ids, [])
  await until(async () => /slipway_orphans\{cluster="local"\} 2/.test((await api.call('GET', '/metrics')).body), {
    what: 'both to be counted',
  })
  assert.equal((await send(api.call, 'POST', `/cluster/${clusterId}/orphans/ignore`, { ids: [id] })).ids[0], id)
  assert.notEqual((await orphans()).results[1].ignored_at, null)
  assert.equal((await runtime.instancesOf(id)).length, 1)
  const gone = await send(api.call, 'POST', `/cluster/${clusterId}/orphans/remove`, { ids: [environmentId] })
  assert.deepEqual(gone.ids.sort(), [environmentId, id].sort())
  await restart()
  await until(async () => (await runtime.owned()).volumes.every(({ serviceId }) => serviceId !== id), {
    what: 'the volume to be removed',
  })
  await until(async () => (await orphans()).results.length === 0, { what: 'an empty list' })
})

test('an orphan that is adopted is a service again, as it runs', async () => {
  const { id, environmentId } = await deployed()
  await until(async () => (await database.query(`select from deployment where state = 'RUNNING'`)).length === 0, {
    what: 'the end of the deployment',
  })
  const [instance] = await runtime.instancesOf(id)
  await forget(environmentId)
  await restart()
  await until(async () => (await orphans()).results.length === 2, { what: 'both to be listed' })
  const path = `/cluster/${clusterId}/orphans/adopt`
  const { adopted, left } = await send(api.call, 'POST', path, { ids: [environmentId, id] })
  assert.deepEqual([adopted.toSorted(), left], [[environmentId, id].toSorted(), []])
  assert.equal(await stateOf(id), 'RUNNING')
  const twice = await send(api.call, 'POST', path, { ids: [api.organizationId] })
  assert.deepEqual([twice.adopted, twice.left.map((one: Json) => one.id)], [[], [api.organizationId]])
  await restart()
  await until(async () => (await orphans()).results.length === 0, { what: 'an empty list' })
  assert.deepEqual(
    (await runtime.instancesOf(id)).map((one) => one.id),
    [instance!.id],
  )
})

test('on a cluster with a conflict everything is refused until the operator has chosen', async () => {
  const { id } = await deployed()
  const [newest] = await runtime.marks.list(localKey, signal)
  // Another line of the database has worked on it.
  await runtime.marks.put(localKey, { generation: newest!.generation + 5, nonce: 'theirs', writer: 'them' }, signal)
  await api.parts.clusters.own.line!.check()
  const refused = await api.call('POST', `/application/${id}/deploy`)
  assert.deepEqual([refused.status, refused.body.code], [409, 'cluster_conflict'])
  const { conflict } = await orphans()
  assert.equal(conflict.code, 'other_server')
  const status = await send(api.call, 'GET', `/organization/${api.organizationId}/cluster/${clusterId}/status`)
  assert.match(status.error_message, /until an operator decides/)
  await until(
    async () => {
      const ready = await fetch(`${api.url}/readyz`)
      return ready.status === 200 && ((await ready.json()) as Json).cluster_conflicts === 1
    },
    { what: 'the conflict in /readyz' },
  )
  const path = `/cluster/${clusterId}/conflict`
  assert.equal((await (await ownToken())('POST', path, { action: 'ignore' })).status, 403)
  assert.equal((await api.call('POST', path, { action: 'remove' })).status, 400)
  const both = await Promise.all(['ignore', 'adopt', 'ignore'].map((action) => api.call('POST', path, { action })))
  assert.deepEqual(both.map(({ status }) => status).toSorted(), [200, 409, 409])
  assert.equal((await orphans()).conflict, null)
  assert.equal((await api.call('POST', path, { action: 'ignore' })).status, 409)
  await send(api.call, 'POST', `/application/${id}/deploy`)
  assert.equal((await runtime.instancesOf(id)).length >= 1, true)
})

test('a service whose volume is gone is not started again with an empty one until it is deployed', async () => {
  const { id, environmentId } = await deployed()
  await runtime.converge({ serviceId: id, environmentId }, { state: 'absent', graceMs: 0 }, null, signal)
  await restart()
  const status = await until(
    async () => {
      const found = await send(api.call, 'GET', `/application/${id}/status`)
      return found.error?.code === 'volume_missing' ? found : null
    },
    { what: 'the status to say so' },
  )
  assert.match(status.error.message, /deploy the service to start with an empty volume/)
  assert.equal((await runtime.instancesOf(id)).length, 0)
  await send(api.call, 'POST', `/application/${id}/deploy`)
  await until(async () => (await stateOf(id)) === 'RUNNING', { what: 'it to run' })
})
