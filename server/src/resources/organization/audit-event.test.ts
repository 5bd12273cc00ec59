import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, startApi } from '../../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const events = `/organization/${organizationId}/events`

const made: string[] = []
for (let index = 0; index < 7; index += 1) {
  const answer = await call('POST', `/organization/${organizationId}/project`, { name: `project ${index}` })
  made.unshift(answer.body.id)
}

const idsOn = (body: Json): string[] => body.events.map((event: Json) => event.target_id)
const filter = 'targetType=PROJECT&eventType=CREATE'

test('the audit log is read newest first, page by page, forth and back, though events come meanwhile', async () => {
  const first = (await call('GET', `${events}?${filter}&pageSize=3`)).body
  assert.deepEqual(idsOn(first), made.slice(0, 3))
  assert.equal(first.links.previous, undefined)
  await call('POST', `/organization/${organizationId}/project`, { name: 'meanwhile' })
  const second = (await call('GET', first.links.next)).body
  assert.deepEqual(idsOn(second), made.slice(3, 6))
  const third = (await call('GET', second.links.next)).body
  assert.deepEqual([idsOn(third), third.links.next], [made.slice(6), undefined])
  const back = (await call('GET', third.links.previous)).body
  assert.deepEqual(idsOn(back), made.slice(3, 6))
  assert.deepEqual(idsOn((await call('GET', back.links.previous)).body), made.slice(0, 3))
  assert.deepEqual(idsOn((await call('GET', back.links.next)).body), made.slice(6))
})

test('an event says who, what and where, and takes no word of the caller for it', async () => {
  const sent = { 'user-agent': 'Slipway console 1' }
  const { body } = await call('PUT', `/project/${made[0]}`, { description: 'changed' }, sent)
  const [event] = (await call('GET', `${events}?targetId=${made[0]}`)).body.events
  assert.deepEqual(
    [event.event_type, event.target_name, event.project_name, event.origin, JSON.parse(event.change)],
    ['UPDATE', body.name, body.name, 'API', { description: 'changed' }],
  )
  const [own] = await api.database.query<{ id: string }>('select id from api_token where prefix = $1', [
    api.token.slice(0, 10),
  ])
  assert.deepEqual([event.actor_type, event.actor_id, event.user_agent], ['API_TOKEN', own!.id, 'Slipway console 1'])
  const first = (await call('GET', `${events}?triggeredBy=${encodeURIComponent('first start')}`)).body.events[0]
  assert.deepEqual([first.actor_type, first.actor_id], ['OPERATOR', null])
})

test('the log is narrowed by time, kind, origin, maker and project', async () => {
  const all = (await call('GET', `${events}?pageSize=100`)).body.events as Json[]
  const middle = all[3]!
  const count = async (query: string): Promise<number> =>
    (await call('GET', `${events}?pageSize=100&${query}`)).body.events.length
  assert.equal(await count(`fromTimestamp=${middle.timestamp}`), 4)
  assert.equal(await count(`fromTimestamp=${Date.parse(middle.timestamp)}000000`), 4)
  assert.equal(await count(`toTimestamp=${Math.floor(Date.parse(all.at(-1)!.timestamp) / 1000) - 1}`), 0)
  assert.equal(await count('origin=TERRAFORM_PROVIDER'), 0)
  assert.equal(await count('origin=API'), all.length - 2)
  assert.equal(await count(`triggeredBy=${encodeURIComponent('first start')}`), 2)
  assert.equal(await count(`serviceProjectId=${made[0]}`), 1)
  for (const wrong of [
    'eventType=NOTHING',
    'fromTimestamp=then',
    'toTimestamp=-271821-04-20',
    'continueToken=x',
    'pageSize=1000',
  ])
    assert.equal((await call('GET', `${events}?${wrong}`)).status, 400, wrong)
})

test('the words in the log can be listed, to choose a filter from', async () => {
  const { body } = await call('GET', `/organization/${organizationId}/targets?targetType=PROJECT`)
  const told = body.targets.map((each: Json) => each.id)
  assert.ok(made.every((id) => told.includes(id)))
  const projects = `/organization/${organizationId}/targets?targetLevelToFetch=PROJECT`
  assert.deepEqual((await call('GET', projects)).body.targets, [{ id: made[0], name: 'project 6' }])
})

test("the log shows nothing of another organization's", async () => {
  const stranger = await api.newOrganization()
  await api.as(stranger.token)('POST', `/organization/${stranger.id}/project`, { name: 'theirs' })
  const { body } = await api.as(stranger.token)('GET', `/organization/${stranger.id}/events`)
  assert.deepEqual(
    body.events.map((event: Json) => event.target_name),
    ['theirs'],
  )
  const names = (await call('GET', `${events}?pageSize=100`)).body.events.map((event: Json) => event.target_name)
  assert.ok(!names.includes('theirs'))
})
