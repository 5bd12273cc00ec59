import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { hearEvents } from '../../../test/support/streams.ts'
import { until } from '../../../test/support/until.ts'
import { createAuthenticator } from '../../api/auth/auth.ts'
import { systemClock } from '../../lib/time/clock.ts'

const api = await startApi()
const { organizationId, call, database } = api
const tokensOf = (id: string): string => `/organization/${id}/apiToken`
const tokens = tokensOf(organizationId)
const events = `/organization/${organizationId}/events`

interface Made {
  id: string
  token: string
}

let made = 0
const make = async (maker: string, more: object = {}, organization = organizationId): Promise<Made> => {
  made += 1
  const answer = await api.as(maker)('POST', tokensOf(organization), { name: `made ${made}`, ...more })
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body
}

const statusOf = async (token: string): Promise<number> => (await api.as(token)('GET', '/organization')).status

const isRefused = (token: string): Promise<boolean> =>
  until(async () => (await statusOf(token)) === 401, { what: 'the token to be refused', timeoutMs: 2000 })

const chainOf = async (length: number): Promise<Made[]> => {
  const chain = [await make(api.token)]
  while (chain.length < length) chain.push(await make(chain.at(-1)!.token))
  return chain
}

test('a revoked token takes along what it made, and what these made, in one event that says how many', async () => {
  const [first, second, third] = (await chainOf(3)) as [Made, Made, Made]
  const [beside, byFirst] = [await make(api.token), await make(first.token, { scopes: ['Read'] })]
  assert.equal((await call('DELETE', `${tokens}/${first.id}`)).status, 204)
  for (const { token } of [first, second, third, byFirst]) await isRefused(token)
  assert.equal(await statusOf(beside.token), 200)
  const { body } = await call('GET', `${events}?targetId=${first.id}&eventType=DELETE`)
  assert.equal(body.events.length, 1)
  assert.equal(JSON.parse(body.events[0].change).tokens_made_with_it, 3)
  const listed = (await call('GET', tokens)).body.results.map(({ id }: Json) => id)
  for (const { id } of [first, second, third, byFirst]) assert.ok(!listed.includes(id))
})

test('what an operator’s token made elsewhere goes with it too, and the log of there says so', async () => {
  const other = (await call('POST', '/organization', { name: 'Elsewhere' })).body.id
  const operator = await make(api.token)
  await database.query('update api_token set is_operator = true where id = $1', [operator.id])
  await database.query(`select pg_notify('slipway_token', '')`)
  const there = await until(
    async () => {
      const answer = await api.as(operator.token)('POST', tokensOf(other), { name: 'there' })
      return answer.status === 201 ? (answer.body as Made) : undefined
    },
    { what: 'the operator to be one' },
  )
  assert.equal((await call('DELETE', `${tokens}/${operator.id}`)).status, 204)
  await isRefused(there.token)
  const told = await database.query<{ n: number }>(
    `select (change ->> 'tokens_made_with_it')::int as n from event where organization_id = $1 and target_id = $2`,
    [other, operator.id],
  )
  assert.deepEqual(told, [{ n: 1 }])
})

test('the streams of tokens that go along end', async () => {
  const { environmentId } = await newPlace(api)
  await newApplication(api, environmentId)
  const [first, second] = (await chainOf(2)) as [Made, Made]
  const stream = await hearEvents(`${api.url}/environment/${environmentId}/statuses/stream`, second.token)
  await until(() => stream.all.length > 0, { what: 'the stream to begin' })
  await call('DELETE', `${tokens}/${first.id}`)
  await until(() => stream.code !== 0, { what: 'the stream to end', timeoutMs: 2000 })
})

test('nothing that a token makes while it is being revoked outlives it', async () => {
  for (let round = 0; round < 8; round += 1) {
    const thief = await make(api.token)
    const makes = Array.from({ length: 4 }, (_, n) =>
      api.as(thief.token)('POST', tokens, { name: `race ${round} ${n}` }),
    )
    const [removed, ...answers] = await Promise.all([call('DELETE', `${tokens}/${thief.id}`), ...makes])
    assert.equal(removed!.status, 204)
    for (const { status, body } of answers) {
      assert.ok(status === 201 || status === 401, String(status))
      if (status === 201) await isRefused(body.token)
    }
  }
})

test('a revoked token that is used again is noted, once an hour and token', async () => {
  const { id, token } = await make(api.token)
  await call('DELETE', `${tokens}/${id}`)
  await isRefused(token)
  const noted = async (): Promise<Json[]> =>
    (await call('GET', `${events}?targetId=${id}&eventType=POLICY_FAILED`)).body.events
  await until(async () => (await noted()).length === 1, { what: 'the event' })
  // Other replicas have seen nothing yet.
  for (let replica = 0; replica < 3; replica += 1) {
    const elsewhere = await createAuthenticator({ ...api.parts, clock: systemClock })
    await assert.rejects(elsewhere.authenticate(token, '127.0.0.1'), { status: 401 })
    elsewhere.close()
  }
  for (let n = 0; n < 20; n += 1) assert.equal(await statusOf(token), 401)
  const [event, ...more] = await noted()
  assert.deepEqual([more.length, event.actor_type, event.target_name], [0, 'SYSTEM', `made ${made}`])
  await database.query(`update api_token set refused_at = refused_at - interval '61 minutes' where id = $1`, [id])
  const later = await createAuthenticator(api.parts)
  await assert.rejects(later.authenticate(token, '127.0.0.1'), { status: 401 })
  await until(async () => (await noted()).length === 2, { what: 'the second event' })
  later.close()
})

test('no token can be named like a person, and each event names the one that it was', async () => {
  for (const name of ['ceo@tenant.example', 'ceo＠tenant.example', 'ceo﹫tenant.example'])
    assert.equal((await call('POST', tokens, { name })).status, 400, name)
  const { id, token } = await make(api.token, { scopes: ['Write'] })
  await api.as(token)(
    'POST',
    `/organization/${organizationId}/project`,
    { name: 'by a token' },
    { 'user-agent': 'Slipway console 1' },
  )
  const [event] = (await call('GET', `${events}?targetType=PROJECT`)).body.events
  assert.deepEqual(
    [event.target_name, event.origin, event.actor_type, event.actor_id],
    ['by a token', 'API', 'API_TOKEN', id],
  )
})
