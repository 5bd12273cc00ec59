/** Rows that are kept for a time are deleted after it, and no others. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { deleteOldKeys } from '../src/api/idempotency.ts'
import { newId } from '../src/lib/ids.ts'
import { forgetDeliveries } from '../src/webhooks/inbound/deliveries.ts'
import { sweep } from '../src/webhooks/queue.ts'
import { testDatabase } from './support/database.ts'

const never = new AbortController().signal

const scene = async () => {
  const database = await testDatabase()
  const id = newId()
  await database.query(
    `insert into node (id, organization_id, kind, name_scope, name) values ($1, $1, 'webhook', 'webhook', 'any')`,
    [id],
  )
  /** Ages in hours. */
  const left = async (table: string, column: string): Promise<number[]> => {
    const rows = await database.query<{ hours: number }>(
      `select round(extract(epoch from clock_timestamp() - ${column}) / 3600)::int as hours from ${table} order by 1`,
    )
    return rows.map(({ hours }) => hours)
  }
  return { database, id, left }
}

test('idempotency keys are deleted after their hours', async () => {
  const { database, id, left } = await scene()
  await database.query(
    `insert into idempotency_key (organization_id, method, path, key, body_hash, created_at)
     select $1, 'POST', '/', 'key ' || n, '', clock_timestamp() - n * interval '1 hour' from generate_series(1, 2500) n`,
    [id],
  )
  await deleteOldKeys(database, 3, never)
  assert.deepEqual(await left('idempotency_key', 'created_at'), [1, 2])
})

test('attempts and events that have ended are deleted after their days; what still waits is not', async () => {
  const { database, id, left } = await scene()
  await database.query(
    `insert into outbox (id, organization_id, webhook_id, ordering_key, event_type, body, state, created_at, finished_at)
     select gen_random_uuid(), $1, $1, $1, 'DEPLOYMENT_STARTED', '{}', s, at, case when s <> 'PENDING' then at end
     from unnest(array['PENDING', 'DELIVERED', 'FAILED']) s, unnest(array[24, 2400]) hours,
       lateral (select clock_timestamp() - hours * interval '1 hour' as at) t`,
    [id],
  )
  await database.query(
    `insert into delivery (id, outbox_id, webhook_id, attempt, event_type, target_url, request, response_status,
       duration_ms, created_at)
     select gen_random_uuid(), o.id, $1, 1, o.event_type, 'https://example.org', '{}', 500, 1, o.created_at from outbox o`,
    [id],
  )
  await sweep(database, 30, never)
  assert.deepEqual(await left('delivery', 'created_at'), [24, 24, 24])
  assert.deepEqual(await left('outbox', 'created_at'), [24, 24, 24, 2400])
})

test('what git hosts have sent is remembered for a week', async () => {
  const { database, id, left } = await scene()
  await database.query(
    `insert into git_delivery (webhook_id, digest, received_at)
     select $1, decode(lpad(n::text, 8, '0'), 'hex'), clock_timestamp() - n * interval '1 hour'
     from unnest(array[1, 160, 170, 2000]) n`,
    [id],
  )
  await forgetDeliveries(database, never)
  assert.deepEqual(await left('git_delivery', 'received_at'), [1, 160])
})
