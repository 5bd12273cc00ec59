import assert from 'node:assert/strict'
import { test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { newId } from '../lib/ids.ts'
import { deleteOldEvents } from './event-retention.ts'

test('events older than the retention are deleted in batches, and none with 0', async () => {
  const database = await testDatabase()
  const add = (days: number) =>
    database.query(
      `insert into event (id, organization_id, event_type, target_type, origin, triggered_by, created_at)
       values ($1, $2, 'CREATE', 'PROJECT', 'API', 'a test', clock_timestamp() - $3 * interval '1 day')`,
      [newId(), newId(), days],
    )
  const agesNow = async () =>
    (
      await database.query<{ days: number }>(
        `select round(extract(epoch from clock_timestamp() - created_at) / 86400)::int as days from event order by 1`,
      )
    ).map(({ days }) => days)
  for (const days of [1, 399, 401, 402, 403, 404, 405]) await add(days)
  const never = new AbortController().signal
  await deleteOldEvents(database, 0, never)
  assert.equal((await agesNow()).length, 7)
  await deleteOldEvents(database, 400, never, 2)
  assert.deepEqual(await agesNow(), [1, 399])
})
