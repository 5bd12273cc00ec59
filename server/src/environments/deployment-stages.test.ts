import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { until } from '../../test/support/until.ts'
import { defaultStageId, environmentsOfStage } from '../deployments/request/stages.ts'
import { newId } from '../lib/ids.ts'

const api = await startApi()
const { call } = api

const ok = async (method: string, path: string, body?: object): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${JSON.stringify(answer.body)}`)
  return answer.body
}

const newEnvironment = async () => {
  const { environmentId } = await newPlace(api)
  const path = `/environment/${environmentId}`
  const list = async (): Promise<Json[]> => (await ok('GET', `${path}/deploymentStage`)).results
  const add = (name: string) => ok('POST', `${path}/deploymentStage`, { name })
  const names = async () => (await list()).map(({ name }) => name)
  const settled = () =>
    until(async () => /^(DEPLOYED|STOPPED|READY)$/.test((await ok('GET', `${path}/status`)).state), {
      timeoutMs: 10_000,
      what: 'the environment to come to rest',
    })
  return { environmentId, path, list, add, names, settled }
}

const usual = ['DATABASE DEFAULT', 'JOB DEFAULT', 'CONTAINER DEFAULT', 'APPLICATION DEFAULT']

test('the id of a default stage leads to its environment, and no other id does', () => {
  for (let round = 0; round < 100; round++) {
    const id = newId()
    const ids = [0, 1, 2, 3].map((order) => defaultStageId(id, order))
    assert.equal(new Set(ids).size, 4)
    for (const [order, stage] of ids.entries()) assert.equal(environmentsOfStage(stage.toUpperCase())[order], id)
    assert.deepEqual(environmentsOfStage(id), [])
  }
})

test('an environment begins with four stages, whose ids hold before and after the first change', async () => {
  const { list, names, add, environmentId } = await newEnvironment()
  const before = await list()
  assert.deepEqual(
    before.map(({ name, deployment_order }) => [name, deployment_order]),
    usual.map((name, at) => [name, at]),
  )
  assert.deepEqual(await ok('GET', `/deploymentStage/${before[2].id}`), before[2])
  assert.deepEqual(
    await api.database.query('select 1 from deployment_stage where environment_id = $1', [environmentId]),
    [],
  )
  await add('last')
  assert.deepEqual(await names(), [...usual, 'last'])
  assert.deepEqual(
    (await list()).slice(0, 4).map(({ id }) => id),
    before.map(({ id }) => id),
  )
})

test('stages are moved before and after each other, renamed and deleted; the order stays whole', async () => {
  const { list, names, add } = await newEnvironment()
  const extra = await add('extra')
  const [first, second] = await list()
  await ok('PUT', `/deploymentStage/${extra.id}/moveBefore/${first.id}`)
  assert.deepEqual((await names()).slice(0, 2), ['extra', usual[0]])
  await ok('PUT', `/deploymentStage/${extra.id}/moveAfter/${second.id}`)
  await ok('PUT', `/deploymentStage/${extra.id}/moveAfter/${extra.id}`)
  await ok('PUT', `/deploymentStage/${extra.id}`, { name: 'migrations' })
  await ok('DELETE', `/deploymentStage/${first.id}`)
  assert.deepEqual(await names(), ['JOB DEFAULT', 'migrations', 'CONTAINER DEFAULT', 'APPLICATION DEFAULT'])
  assert.deepEqual(
    (await list()).map(({ deployment_order }) => deployment_order),
    [0, 1, 2, 3],
  )
  const taken = await call('PUT', `/deploymentStage/${extra.id}`, { name: 'job default' })
  assert.deepEqual([taken.status, taken.body.code], [409, 'name_taken'])
  assert.equal((await call('GET', `/deploymentStage/${first.id}`)).status, 404)
})

test('a service is in one stage: that of its kind until it is moved; a stage that holds one is not deleted', async () => {
  const { environmentId, list, add } = await newEnvironment()
  const { id } = await newApplication(api, environmentId)
  const early = await add('early')
  const holders = async () =>
    (await list()).filter(({ services }) => services.some((one: Json) => one.service_id === id))
  assert.deepEqual(
    (await holders()).map(({ name }) => name),
    ['APPLICATION DEFAULT'],
  )
  const [usualStage] = await holders()
  assert.equal((await call('DELETE', `/deploymentStage/${usualStage.id}`)).body.code, 'stage_in_use')
  await ok('PUT', `/deploymentStage/${early.id}/service/${id}`)
  assert.deepEqual(
    (await holders()).map(({ name }) => name),
    ['early'],
  )
  assert.equal((await ok('GET', `/service/${id}/deploymentStage`)).id, early.id)
  await ok('DELETE', `/deploymentStage/${usualStage.id}`)
  assert.equal((await call('DELETE', `/deploymentStage/${early.id}`)).status, 409)
  const late = await newApplication(api, environmentId)
  assert.equal((await ok('GET', `/service/${late.id}/deploymentStage`)).name, 'early')
  await add('later still')
  assert.equal((await ok('GET', `/service/${late.id}/deploymentStage`)).name, 'early')
})

test('the last stage stays', async () => {
  const { list } = await newEnvironment()
  for (const { id } of (await list()).slice(1)) await ok('DELETE', `/deploymentStage/${id}`)
  const refused = await call('DELETE', `/deploymentStage/${(await list())[0].id}`)
  assert.deepEqual([refused.status, refused.body.code], [409, 'last_stage'])
})

test('a stage of another environment, or of another organization, is a 404', async () => {
  const [mine, other] = [await newEnvironment(), await newEnvironment()]
  const [stage, foreign] = [(await mine.list())[0].id, (await other.list())[0].id]
  const { id } = await newApplication(api, other.environmentId)
  assert.equal((await call('PUT', `/deploymentStage/${stage}/moveAfter/${foreign}`)).status, 404)
  assert.equal((await call('PUT', `/deploymentStage/${stage}/service/${id}`)).status, 404)
  const stranger = api.as((await api.newOrganization()).token)
  assert.equal((await stranger('GET', `/deploymentStage/${stage}`)).status, 404)
  assert.equal((await stranger('DELETE', `/deploymentStage/${stage}`)).status, 404)
})

test('a deployment follows the order of the stages, and histories, queue and statuses show them', async () => {
  const { environmentId, path, add, list, settled } = await newEnvironment()
  const [first, second] = [await newApplication(api, environmentId), await newApplication(api, environmentId)]
  const early = await add('early')
  await ok('PUT', `/deploymentStage/${early.id}/service/${second.id}`)
  await ok('PUT', `/deploymentStage/${early.id}/moveBefore/${(await list())[0].id}`)
  await ok('POST', `${path}/deploy`)
  await settled()
  const [newest] = (await ok('GET', `${path}/deploymentHistoryV2`)).results
  const members = (stages: Json[]) =>
    stages.map(({ name, services }) => [name, services.map((one: Json) => one.identifier.service_id)])
  assert.deepEqual(members(newest.stages), [
    ['early', [second.id]],
    ['APPLICATION DEFAULT', [first.id]],
  ])
  const times = await api.database.query<{ id: string }>(
    `select service_id as id from deployment_service where deployment_id = $1 order by started_at`,
    [newest.identifier.deployment_request_id],
  )
  assert.deepEqual(
    times.map(({ id }) => id),
    [second.id, first.id],
  )
  const { stages } = await ok('GET', `${path}/statusesWithStages`)
  assert.deepEqual(
    stages
      .map((one: Json) => [one.stage.name, one.applications.map(({ id }: Json) => id)])
      .filter(([, ids]: Json) => ids.length > 0),
    [
      ['early', [second.id]],
      ['APPLICATION DEFAULT', [first.id]],
    ],
  )
})

test('what is skipped is left out of what is asked of the whole environment, until it is moved, and never of a delete', async () => {
  const { environmentId, path, list, add, settled } = await newEnvironment()
  const [kept, skipped] = [await newApplication(api, environmentId), await newApplication(api, environmentId)]
  const stage = (await list())[3].id
  await ok('PUT', `/deploymentStage/${stage}/service/${skipped.id}`, { is_skipped: true })
  await ok('PUT', `/deploymentStage/${stage}/service/${skipped.id}`, {})
  const stateOf = async (id: string) =>
    (await call('GET', `/application/${id}/status`, undefined, { 'x-state-vocabulary': 'deployment' })).body.state
  await ok('POST', `${path}/deploy`)
  await settled()
  assert.deepEqual([await stateOf(kept.id), await stateOf(skipped.id)], ['DEPLOYED', 'READY'])
  await ok('POST', `/application/${skipped.id}/deploy`)
  await settled()
  await ok('POST', `${path}/stop`)
  await settled()
  assert.deepEqual([await stateOf(kept.id), await stateOf(skipped.id)], ['STOPPED', 'DEPLOYED'])
  const other = await add('other')
  const moved = await ok('PUT', `/deploymentStage/${other.id}/service/${skipped.id}`)
  assert.equal(moved.results[4].services[0].is_skipped, false)
  await ok('PUT', `/deploymentStage/${other.id}/service/${skipped.id}`, { is_skipped: true })
  await ok('DELETE', path)
  await until(async () => (await call('GET', `/application/${skipped.id}`)).status === 404, {
    timeoutMs: 10_000,
    what: 'its end',
  })
})

test('changes of one environment’s stages that race leave one order without gaps', async () => {
  const { list, add } = await newEnvironment()
  await Promise.all(Array.from({ length: 8 }, (_, at) => add(`stage ${at}`)))
  const stages = await list()
  assert.deepEqual(
    stages.map(({ deployment_order }) => deployment_order),
    stages.map((_, at) => at),
  )
  await Promise.all(stages.slice(4).map(({ id }) => call('PUT', `/deploymentStage/${id}/moveBefore/${stages[0].id}`)))
  const after = await list()
  assert.equal(new Set(after.map(({ id }) => id)).size, 12)
  assert.deepEqual(
    after.slice(8).map(({ name }) => name),
    usual,
  )
})
