import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  createOwner,
  createWebhook,
  event,
  happen,
  outboxOf,
  receive,
  settledAs,
  start,
} from '../../test/support/peers/webhooks.ts'
import { until } from '../../test/support/until.ts'
import { newId } from '../lib/ids.ts'

/** Two quick attempts, then one that no test waits for. */
const scheduleSeconds = [0, 0.05, 86_400, 86_400]

const story = async (count: number) => {
  const [owner, serviceId] = [await createOwner(), newId()]
  const names = Array.from({ length: count }, (_, index) => `e-${index}`)
  return { owner, names, next: (executionId: string) => happen(event(owner, { serviceId, executionId })) }
}

test('an event that a receiver always refuses lets the later ones of its service pass, in order', async (t) => {
  const { owner, names, next } = await story(6)
  const { seen, url } = await receive(t, (request, response) =>
    response.writeHead(request.body.payload.execution_id === 'e-1' ? 500 : 200).end(),
  )
  const { id } = await createWebhook(owner, url)
  for (const name of names) await next(name)
  await start(t, { scheduleSeconds })
  await settledAs(id, 'DELIVERED', 5)
  const order = seen.map((one) => one.body.payload.execution_id!)
  assert.deepEqual(
    order.filter((name) => name !== 'e-1'),
    ['e-0', 'e-2', 'e-3', 'e-4', 'e-5'],
  )
  // Twice on its schedule, and once more because its receiver answered: not at every later event.
  await until(async () => (await outboxOf(id))[1]!.attempts === 3, { what: 'the early attempt' })
  await next('e-6')
  await settledAs(id, 'DELIVERED', 6)
  const refused = (await outboxOf(id))[1]!
  assert.deepEqual([refused.state, refused.attempts], ['PENDING', 3])
})

test('what a receiver missed while it was away comes in order as soon as it answers again', async (t) => {
  let away = true
  const { owner, names, next } = await story(5)
  const { seen, url } = await receive(t, (_, response) => response.writeHead(away ? 503 : 200).end())
  const { id } = await createWebhook(owner, url)
  await start(t, { scheduleSeconds })
  for (const name of names) await next(name)
  await until(() => seen.length === 2 * names.length, { what: 'two attempts of each' })
  seen.length = 0
  away = false
  await happen(event(owner, { executionId: 'another service' }))
  await settledAs(id, 'DELIVERED', names.length + 1)
  assert.deepEqual(
    seen.map((one) => one.body.payload.execution_id),
    ['another service', ...names],
  )
})
