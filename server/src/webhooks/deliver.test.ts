import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test } from 'node:test'
import { Webhook } from 'standardwebhooks'
import {
  createOwner,
  createWebhook,
  database,
  event,
  happen,
  logOf,
  outboxOf,
  receive,
  settledAs,
  start,
} from '../../test/support/peers/webhooks.ts'
import { until } from '../../test/support/until.ts'
import { newId } from '../lib/ids.ts'
import { createOutbound } from '../lib/net/outbound.ts'
import { createSettler } from './deliver.ts'
import { type ClaimedDelivery, claimDue, type Settled, settle } from './queue.ts'

test('a delivery is the event, verified by the public library with either secret, and logged', async (t) => {
  const { seen, url } = await receive(t, (_, response) => response.end('x'.repeat(5000)))
  const owner = await createOwner()
  const { id, secret } = await createWebhook(owner, url, {}, 'my own secret')
  await start(t)
  const sent = await happen(event(owner))
  await settledAs(id, 'DELIVERED')
  const [one] = seen
  for (const verifier of [new Webhook(secret), new Webhook('my own secret', { format: 'raw' })])
    assert.deepEqual(verifier.verify(one!.raw, one!.headers), one!.body)
  assert.equal(one!.body.event_type, 'DEPLOYMENT_STARTED')
  assert.equal(one!.body.payload.application_id, sent.serviceId)
  assert.deepEqual(Object.keys(one!.body), ['event_type', 'payload'])
  assert.equal(one!.headers['content-type'], 'application/json')
  const [logged] = await logOf(id)
  assert.deepEqual([logged!.response_status, logged!.response_body?.length, logged!.attempt], [200, 1024, 1])
  assert.ok(!JSON.stringify(logged).includes(secret))
})

test('a failing receiver is tried on the schedule under one message id, and then no more', async (t) => {
  const { seen, url } = await receive(t, (_, response) => response.writeHead(500).end('no'))
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  await start(t)
  await happen(event(owner))
  await settledAs(id, 'FAILED')
  assert.equal(seen.length, 3)
  assert.equal(new Set(seen.map((one) => one.id)).size, 1)
  assert.deepEqual(
    (await logOf(id)).map((row) => [row.attempt, row.response_status]),
    [
      [1, 500],
      [2, 500],
      [3, 500],
    ],
  )
})

test('a redirect is a failure and is not followed', async (t) => {
  const elsewhere = await receive(t)
  const { url } = await receive(t, (_, response) => response.writeHead(307, { location: elsewhere.url }).end())
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  await start(t, { scheduleSeconds: [0] })
  await happen(event(owner))
  await settledAs(id, 'FAILED')
  assert.equal((await logOf(id))[0]!.response_status, 307)
  assert.equal(elsewhere.seen.length, 0)
})

test('410 switches the webhook off and drops what waits for it', async (t) => {
  const { seen, url } = await receive(t, (_, response) => response.writeHead(410).end())
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  const first = await happen(event(owner))
  await happen(event(owner, { serviceId: first.serviceId }))
  await start(t)
  await settledAs(id, 'DISCARDED')
  await settledAs(id, 'FAILED')
  const [node] = await database.query<{ enabled: boolean }>(
    `select (spec ->> 'enabled')::boolean as enabled from node where id = $1`,
    [id],
  )
  assert.equal(node!.enabled, false)
  assert.equal(seen.length, 1)
  assert.equal((await database.query('select 1 from event where target_id = $1', [id])).length, 1)
})

test('a refused address is a failure that says so, and nothing is connected to', async (t) => {
  const { seen, url } = await receive(t)
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  await start(t, { outbound: createOutbound({ allow: [] }), scheduleSeconds: [0] })
  await happen(event(owner))
  await settledAs(id, 'FAILED')
  const [logged] = await logOf(id)
  assert.match(logged!.error!, /SLIPWAY_OUTBOUND_ALLOW/)
  assert.deepEqual([logged!.response_status, seen.length], [0, 0])
})

test('events of one service arrive in order though the first fails at first', async (t) => {
  let failures = 2
  const { seen, url } = await receive(t, (_, response) => response.writeHead(failures-- > 0 ? 500 : 200).end())
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  await start(t)
  const service = newId()
  for (let index = 0; index < 6; index++) await happen(event(owner, { serviceId: service, executionId: `e-${index}` }))
  await settledAs(id, 'DELIVERED', 6)
  const order = seen.map((one) => one.body.payload.execution_id)
  assert.deepEqual(order, ['e-0', 'e-0', 'e-0', 'e-1', 'e-2', 'e-3', 'e-4', 'e-5'])
})

test('a receiver gets at most four at once, and a silent one delays no other', async (t) => {
  const open: ServerResponse[] = []
  const silent = await receive(t, (_, response) => open.push(response))
  const quick = await receive(t)
  const owner = await createOwner()
  const stuck = await createWebhook(owner, silent.url)
  const { id } = await createWebhook(owner, quick.url)
  await start(t)
  await start(t)
  for (let index = 0; index < 12; index++) await happen(event(owner))
  await settledAs(id, 'DELIVERED', 12)
  assert.equal(silent.seen.length, 4)
  const answer = setInterval(() => {
    for (const response of open.splice(0)) response.end()
  }, 5)
  t.after(() => clearInterval(answer))
  await settledAs(stuck.id, 'DELIVERED', 12)
})

test('two workers deliver each event once', async (t) => {
  const { seen, url } = await receive(t)
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  await Promise.all([start(t), start(t), start(t)])
  await Promise.all(Array.from({ length: 40 }, () => happen(event(owner))))
  await settledAs(id, 'DELIVERED', 40)
  assert.equal(seen.length, 40)
  assert.equal(new Set(seen.map((one) => one.id)).size, 40)
})

test('what a killed worker held is delivered by another when the lease ends, under the same message id', async (t) => {
  const { seen, url } = await receive(t)
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  await happen(event(owner))
  const { claimed: dead } = await claimDue(database, 'dead', { leaseSeconds: 0.3, perWebhook: 4, rows: 10 })
  const held = dead.find((row) => row.webhookId === id)!
  assert.equal(held.attempt, 1)
  await start(t)
  await settledAs(id, 'DELIVERED')
  assert.deepEqual(
    seen.map((one) => one.id),
    [`msg_${held.id.replaceAll('-', '')}`],
  )
  assert.equal((await outboxOf(id))[0]!.attempts, 2)
})

test('a worker that lost its lease cannot settle the event any more', async (t) => {
  const { url } = await receive(t)
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  await happen(event(owner))
  const {
    claimed: [held],
  } = await claimDue(database, 'late', { leaseSeconds: 0, perWebhook: 4, rows: 10 })
  const {
    claimed: [taken],
  } = await claimDue(database, 'next', { leaseSeconds: 30, perWebhook: 4, rows: 10 })
  assert.deepEqual([held!.id, taken!.attempt], [taken!.id, 2])
  await settle(database, 'late', [{ claimed: held!, result: null, settlement: { state: 'FAILED' } }])
  assert.equal((await outboxOf(id))[0]!.state, 'PENDING')
  await settle(database, 'next', [{ claimed: taken!, result: null, settlement: { state: 'DELIVERED' } }])
  assert.equal((await outboxOf(id))[0]!.state, 'DELIVERED')
})

test('a webhook deleted in mid delivery leaves nothing behind', async (t) => {
  const open: ServerResponse[] = []
  const { seen, url } = await receive(t, (_, response) => open.push(response))
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  const delivery = await start(t)
  await happen(event(owner))
  await until(() => seen.length === 1, { what: 'the delivery to begin' })
  await database.query('delete from node where id = $1', [id])
  open[0]!.end()
  await delivery.stop()
  assert.deepEqual([await outboxOf(id), await logOf(id)], [[], []])
})

test('stopping gives back what is under way without counting it', async (t) => {
  const { seen, url } = await receive(t, () => {})
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  const delivery = await start(t)
  await happen(event(owner))
  await until(() => seen.length === 1, { what: 'the delivery to begin' })
  await delivery.stop()
  const [row] = await outboxOf(id)
  assert.deepEqual([row!.state, row!.attempts], ['PENDING', 0])
  await database.query('delete from outbox where webhook_id = $1', [id])
})

test('an event can be sent again', async (t) => {
  const { seen, url } = await receive(t)
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  const delivery = await start(t)
  await happen(event(owner))
  await settledAs(id, 'DELIVERED')
  const [row] = await outboxOf(id)
  assert.equal(await delivery.deliver(row!.id), true)
  await until(() => seen.length === 2, { what: 'the second delivery' })
  assert.equal(seen[0]!.id, seen[1]!.id)
  assert.equal(await delivery.deliver(newId()), false)
})

test('a Slack webhook gets a sentence and no signature', async (t) => {
  const { seen, url } = await receive(t)
  const owner = await createOwner()
  await createWebhook(owner, url, { kind: 'SLACK' })
  await start(t)
  await happen(event(owner))
  await until(() => seen.length === 1, { what: 'the message' })
  assert.match(seen[0]!.body.text!, /^Deployment e-1 of api started$/)
  assert.equal(seen[0]!.headers['webhook-signature'], undefined)
})

test('what waits for a webhook that was switched off meanwhile is dropped', async (t) => {
  const { seen, url } = await receive(t)
  const owner = await createOwner()
  const { id } = await createWebhook(owner, url)
  await happen(event(owner))
  await database.query(`update node set spec = spec || '{"enabled":false}' where id = $1`, [id])
  await start(t)
  await settledAs(id, 'DISCARDED')
  assert.equal(seen.length, 0)
})

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
