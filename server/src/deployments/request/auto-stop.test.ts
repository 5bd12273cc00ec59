/** Environments that run only in their hours, on the fake runtime. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'

const api = await startApi()
const { call } = api
const everyDay = ['MONDAY', 'TUESDAY', 'WEDNESDAY', 'THURSDAY', 'FRIDAY', 'SATURDAY', 'SUNDAY']

/** Hours from and to so many hours from now. */
const hours = (from: number, to: number) => {
  const at = (inHours: number): string => new Date(Date.now() + inHours * 3_600_000).toISOString()
  return { auto_stop: true, timezone: 'UTC', start_time: at(from), stop_time: at(to), weekdays: everyDay }
}

const newEnvironment = async () => {
  const { environmentId } = await newPlace(api)
  const services: Json[] = []
  for (const name of ['first', 'second', 'third']) services.push(await newApplication(api, environmentId, { name }))
  const path = `/environment/${environmentId}`
  const states = async (): Promise<string> => {
    const { results } = (await call('GET', `${path}/application/status`)).body
    return services.map(({ id }) => results.find((one: Json) => one.id === id).deployment_state).join(' ')
  }
  const reach = (wanted: string) => until(async () => (await states()) === wanted, { what: wanted, timeoutMs: 10_000 })
  const act = async (index: number, action: string) =>
    assert.equal((await call('POST', `/application/${services[index]!.id}/${action}`)).status, 202)
  const rule = (await call('GET', `${path}/deploymentRule`)).body
  const setHours = async (body: object) => {
    const put = await call('PUT', `${path}/deploymentRule/${rule.id}`, body)
    assert.equal(put.status, 200, JSON.stringify(put.body))
    const known = `select 1 from environment_hours where environment_id = $1 and next_at > clock_timestamp() + interval '2 minutes'`
    await until(async () => (await api.database.query(known, [environmentId])).length > 0, { what: 'the next change' })
  }
  /** As when the time has come. */
  const strike = async () => {
    await api.database.query(`update environment_hours set next_at = now() where environment_id = $1`, [environmentId])
    await api.database.query(`select pg_notify('slipway_hours', '')`)
  }
  return { path, services, reach, states, act, setHours, strike, rule }
}

test('what runs is stopped when the hours end, and the same is started, at its version, when they begin', async () => {
  const { path, services, reach, act, setHours, strike } = await newEnvironment()
  await call('POST', `${path}/deploy`)
  await reach('DEPLOYED DEPLOYED DEPLOYED')
  await act(1, 'stop')
  await reach('DEPLOYED STOPPED DEPLOYED')
  const commit = async () =>
    (await call('GET', `/application/${services[0]!.id}`)).body.git_repository.deployed_commit_id
  const before = await commit()
  // Outside from now on; nothing is stopped before the hours end the next time.
  await setHours(hours(2, 3))
  await reach('DEPLOYED STOPPED DEPLOYED')
  await strike()
  await reach('STOPPED STOPPED STOPPED')
  // A service started by a user at night runs until the next end, and is not started a second time.
  await act(2, 'deploy')
  await reach('STOPPED STOPPED DEPLOYED')
  await setHours(hours(-1, 1))
  await strike()
  await reach('DEPLOYED STOPPED DEPLOYED')
  assert.equal(await commit(), before)
  const { results } = (await call('GET', `${path}/deploymentHistory`)).body
  const byClock = results.filter(({ triggered_by: by }: Json) => by === 'auto-stop')
  assert.deepEqual(
    byClock.map(({ origin }: Json) => origin),
    ['QOVERY_INTERNAL', 'QOVERY_INTERNAL'],
  )
  const { events } = (await call('GET', `/organization/${api.organizationId}/events?pageSize=100`)).body
  assert.deepEqual(
    events
      .filter(({ triggered_by: by, target_type: target }: Json) => by === 'auto-stop' && target === 'ENVIRONMENT')
      .map(({ event_type: type }: Json) => type)
      .filter((type: string) => type.startsWith('TRIGGER_')),
    ['TRIGGER_DEPLOY', 'TRIGGER_STOP'],
  )
})

test('a new environment takes the hours of its project, and without auto_stop nothing is stopped', async () => {
  const { path, reach, setHours, rule } = await newEnvironment()
  await call('POST', `${path}/deploy`)
  await reach('DEPLOYED DEPLOYED DEPLOYED')
  await setHours(hours(2, 3))
  assert.equal((await call('PUT', `${path}/deploymentRule/${rule.id}`, { auto_stop: false })).status, 200)
  const left = await api.database.query('select 1 from environment_hours where environment_id = $1', [
    path.split('/').at(-1),
  ])
  assert.deepEqual(left, [])
})

test('hours that can never change anything are refused', async () => {
  const { path, rule } = await newEnvironment()
  const put = (body: object) => call('PUT', `${path}/deploymentRule/${rule.id}`, body)
  const same = { ...hours(1, 1) }
  for (const [body, field] of [
    [{ ...hours(1, 2), weekdays: [] }, '/weekdays'],
    [same, '/stop_time'],
    [{ ...hours(1, 2), timezone: 'Mars/Base' }, '/timezone'],
  ] as const) {
    const { status, body: answer } = await put(body)
    assert.deepEqual([status, answer.details?.[0]?.field], [400, field])
  }
  assert.equal((await put({ ...same, auto_stop: false })).status, 200)
})
