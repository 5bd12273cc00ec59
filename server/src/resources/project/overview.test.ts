import assert from 'node:assert/strict'
import { test } from 'node:test'
import { databaseBody } from '../../../test/cases/database.ts'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'

const api = await startApi()
const { call } = api

const list = async (path: string): Promise<Json[]> => {
  const answer = await call('GET', path)
  assert.equal(answer.status, 200, JSON.stringify(answer.body))
  return answer.body.results
}
const organization = `/organization/${api.organizationId}`

test('an organization lists all its environments, services and counts, and those of no other', async () => {
  const { projectId, environmentId } = await newPlace(api)
  const web = await newApplication(api, environmentId, { description: 'the shop' })
  const store = (await call('POST', `/environment/${environmentId}/database`, databaseBody('store'))).body
  const second = (await call('POST', `/project/${projectId}/environment`, { name: 'second', mode: 'STAGING' })).body
  const mine = (rows: Json[], key: string, id: string) => rows.filter((row) => row[key] === id)

  const environments = (await list(`${organization}/environments`)).filter(({ project }) => project.id === projectId)
  assert.deepEqual(
    environments.map(({ id, mode }) => [id, mode]),
    [
      [environmentId, 'DEVELOPMENT'],
      [second.id, 'STAGING'],
    ],
  )
  const services = mine(await list(`${organization}/services`), 'project_id', projectId)
  assert.deepEqual(
    services.map(({ id, service_type }) => [id, service_type]),
    [
      [web.id, 'APPLICATION'],
      [store.id, 'DATABASE'],
    ],
  )
  assert.deepEqual(
    [services[0].description, services[0].environment_name, services[0].cluster_id],
    ['the shop', environments[0].name, api.clusterId],
  )
  const [stats] = mine(await list(`${organization}/project/stats`), 'id', projectId)
  assert.deepEqual(stats, { id: projectId, service_total_number: 2, number: 2, environment_total_number: 2 })
  assert.deepEqual(await list(`/project/${projectId}/environment/stats`), [
    { id: environmentId, service_total_number: 2, number: 2 },
    { id: second.id, service_total_number: 0, number: 0 },
  ])
  const stranger = await api.newOrganization()
  for (const path of ['environments', 'services', 'project/stats'])
    assert.deepEqual((await api.as(stranger.token)('GET', `/organization/${stranger.id}/${path}`)).body.results, [])
})

test('services are listed by project, environment and cluster', async () => {
  const [one, other] = [await newPlace(api), await newPlace(api)]
  const { id } = await newApplication(api, one.environmentId)
  await newApplication(api, other.environmentId)
  const ids = async (query: string) => (await list(`${organization}/services?${query}`)).map((row) => row.id)
  assert.deepEqual(await ids(`projectId=${one.projectId}`), [id])
  assert.deepEqual(await ids(`environmentId=${one.environmentId.toUpperCase()}`), [id])
  assert.ok((await ids(`clusterId=${api.clusterId.toUpperCase()}`)).includes(id))
  assert.deepEqual(await ids(`clusterId=${newId()}`), [])
  assert.equal((await call('GET', `${organization}/services?projectId=x`)).status, 400)
})

test('the overview of a project shows for each environment where it runs, its services and its state', async () => {
  const { projectId, environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  await call('POST', `/application/${id}/deploy`)
  const read = async () => (await list(`/project/${projectId}/environment/overview`))[0]
  await until(async () => (await read()).deployment_status.state === 'DEPLOYED', {
    timeoutMs: 10_000,
    what: 'DEPLOYED',
  })
  const { cluster, services_overview } = await read()
  assert.equal(cluster.id, api.clusterId)
  assert.deepEqual(services_overview, { service_count: 1, managed_by: 'QOVERY' })
})

test('an uninstall removes what services have, keeps their configuration, and is for Admins only', async () => {
  const { environmentId } = await newPlace(api)
  const [first, second] = [await newApplication(api, environmentId), await newApplication(api, environmentId)]
  const path = `/environment/${environmentId}`
  const stateOf = async () => (await call('GET', `${path}/status`)).body.state
  const settled = (state: string) => until(async () => (await stateOf()) === state, { timeoutMs: 10_000, what: state })
  await call('POST', `${path}/deploy`)
  await settled('DEPLOYED')
  const deployer = api.as(await api.newToken(['Deploy', 'Write']))
  assert.equal((await deployer('POST', `${path}/uninstall`)).status, 403)
  const chosen = await call('POST', `${path}/service/uninstall`, { application_ids: [first.id] })
  assert.deepEqual([chosen.status, chosen.body], [200, ''])
  const runs = async () =>
    (await Promise.all([first, second].map(({ id }) => api.runtime.instancesOf(id))))
      .flat()
      .map((each) => each.serviceId)
  await until(async () => (await runs()).join() === second.id, { timeoutMs: 10_000, what: 'the first to go' })
  assert.equal((await call('POST', `${path}/uninstall`)).status, 202)
  await settled('READY')
  assert.deepEqual(await runs(), [])
  assert.equal((await list(`${path}/services`)).length, 2)
  const [newest] = await list(`${path}/deploymentHistoryV2`)
  assert.deepEqual([newest.trigger_action, newest.action_status], ['UNINSTALL', 'SUCCESS'])
})

test('actions on chosen services name services of the environment by their kind', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  for (const [field, wrong] of [
    ['container_ids', id],
    ['application_ids', newId()],
  ] as const) {
    const answer = await call('POST', `/environment/${environmentId}/service/stop`, { [field]: [wrong] })
    assert.deepEqual([answer.status, answer.body.details[0].field], [400, `/${field}/0`])
  }
  const none = await call('POST', `/environment/${environmentId}/service/restart-service`, { job_ids: [id] })
  assert.equal(none.status, 400)
})
