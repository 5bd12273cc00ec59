import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  createOwner,
  createWebhook,
  database,
  event,
  happen,
  logOf,
  outboxOf,
} from '../../test/support/peers/webhooks.ts'
import { type ClaimedDelivery, claimDue, type Settled } from './queue.ts'
import { createSettler } from './settler.ts'

const limits = { leaseSeconds: 30, perWebhook: 4, rows: 10 }

const delivered = (claimed: ClaimedDelivery, request = '{"headers":{},"body":{}}'): Settled => ({
  claimed,
  result: { targetUrl: 'http://127.0.0.1:1/', request, status: 200, responseBody: 'ok', error: null, durationMs: 1.5 },
  settlement: { state: 'DELIVERED' },
})

const claimThree = async () => {
  const owner = await createOwner()
  const { id } = await createWebhook(owner, 'http://127.0.0.1:1/')
  for (let count = 0; count < 3; count++) await happen(event(owner))
  const { claimed } = await claimDue(database, 'me', limits)
  return { id, claimed: claimed.filter(({ webhookId }) => webhookId === id) }
}

test('attempts that end together are settled together, each with its own log', async () => {
  const { id, claimed } = await claimThree()
  assert.equal(claimed.length, 3)
  const settle = createSettler(database, 'me')
  await Promise.all(claimed.map((one) => settle(delivered(one))))
  assert.deepEqual(
    (await outboxOf(id)).map(({ state }) => state),
    ['DELIVERED', 'DELIVERED', 'DELIVERED'],
  )
  assert.equal((await logOf(id)).length, 3)
})

test('an attempt that cannot be settled spoils no other', async () => {
  const { id, claimed } = await claimThree()
  const settle = createSettler(database, 'me')
  const [bad, ...good] = claimed
  const ends = await Promise.allSettled([
    ...good.map((one) => settle(delivered(one))),
    settle(delivered(bad!, 'not JSON')),
  ])
  assert.deepEqual(
    ends.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'rejected'],
  )
  const states = new Map((await outboxOf(id)).map((row) => [row.id, row.state]))
  assert.deepEqual(
    claimed.map((one) => states.get(one.id)),
    ['PENDING', 'DELIVERED', 'DELIVERED'],
  )
})
