import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startApi, type TestApi } from '../../test/support/api.ts'
import { systemClock } from '../lib/time/clock.ts'
import { createThrottle } from './throttle.ts'

test('one client uses up its own share only, and a crowd slows all down without shutting anybody out', () => {
  const still = { ...systemClock, monotonicMs: () => 0 }
  const throttle = createThrottle(30, still)
  const admitted = (address: string, count: number): number =>
    Array.from({ length: count }, () => throttle.take(address)).filter((each) => each.admitted).length
  assert.equal(admitted('203.0.113.1', 100), 30)
  assert.equal(admitted('203.0.113.2', 100), 30)
  for (let n = 0; n < 18; n += 1) admitted(`198.51.100.${n}`, 30)
  // The shared allowance is used up; new clients still get a little.
  for (let n = 0; n < 50; n += 1) assert.equal(admitted(`192.0.2.${n}`, 30), 3)
  assert.equal(createThrottle(0, still).take('203.0.113.1').admitted, true)
})

test('what all together may have is a number of its own, and what proved to be right is given back', () => {
  const still = { ...systemClock, monotonicMs: () => 0 }
  const throttle = createThrottle(20, still, 30)
  const admitted = (address: string, count: number): number =>
    Array.from({ length: count }, () => throttle.take(address)).filter((each) => each.admitted).length
  assert.deepEqual([admitted('203.0.113.1', 40), admitted('203.0.113.2', 10), admitted('203.0.113.3', 20)], [20, 10, 2])
  for (let n = 0; n < 3; n += 1) throttle.give('203.0.113.1')
  assert.equal(admitted('203.0.113.1', 10), 3)
})

const failFrom = async (api: TestApi, address: string, count: number): Promise<number[]> => {
  const found: number[] = []
  for (let n = 0; n < count; n += 1)
    found.push((await api.as('no-token')('GET', '/organization', undefined, { 'x-forwarded-for': address })).status)
  return found
}

const settings = { rateLimit: 600, failedLoginLimit: 5 }

test('what a stranger says of its address is not believed', async () => {
  const api = await startApi({ idle: true, settings })
  const found = [...(await failFrom(api, '203.0.113.1', 4)), ...(await failFrom(api, '203.0.113.2', 4))]
  assert.deepEqual(found, [401, 401, 401, 401, 401, 429, 429, 429])
  assert.equal((await api.call('GET', '/organization')).status, 200)
  const [row] = await api.database.query<{ ip: string }>('select last_used_ip as ip from api_token where is_operator')
  assert.equal(row!.ip, '127.0.0.1')
  const invited = await api.call(
    'POST',
    `/organization/${api.organizationId}/inviteMember`,
    { email: 'a@example.com' },
    { 'x-forwarded-proto': 'https' },
  )
  assert.match(invited.body.invitation_link, /^http:/)
})

test('behind a proxy that is trusted each client is counted for itself, by what the proxy says', async () => {
  const api = await startApi({ idle: true, settings: { ...settings, trustedProxies: ['127.0.0.0/8'] } })
  assert.deepEqual(await failFrom(api, '203.0.113.1', 7), [401, 401, 401, 401, 401, 429, 429])
  // Whatever the client has put before it, the proxy's own word is the last.
  assert.deepEqual(await failFrom(api, '203.0.113.99, 203.0.113.1', 1), [429])
  assert.deepEqual(await failFrom(api, '203.0.113.2', 2), [401, 401])
  const invited = await api.call(
    'POST',
    `/organization/${api.organizationId}/inviteMember`,
    { email: 'a@example.com' },
    { 'x-forwarded-proto': 'https' },
  )
  assert.match(invited.body.invitation_link, /^https:/)
})
