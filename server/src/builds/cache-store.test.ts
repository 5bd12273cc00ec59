import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { newId } from '../lib/ids.ts'
import { createCacheStore } from './cache-store.ts'

const database = await testDatabase()
after(() => database.close())
const store = createCacheStore(database)

test('a cache is listed on its cluster, the longest unused first, and one of a deleted organization is marked', async () => {
  const owner = { organizationId: newId(), clusterId: newId() }
  for (const volume of ['one', 'two', 'one']) await store.use(owner, volume)
  await store.measure('one', 2 ** 41)
  const listed = await store.list(owner.clusterId)
  assert.deepEqual(
    listed.map(({ volume, sizeKb, isOrphan }) => [volume, sizeKb, isOrphan]),
    [
      ['two', 0, true],
      ['one', 2 ** 41, true],
    ],
  )
  assert.deepEqual(await store.list(newId()), [])
  await store.forget('two')
  assert.equal((await store.list(owner.clusterId)).length, 1)
})

test('a held cache belongs to its holder until it is released or its time is over', async () => {
  const owner = { organizationId: newId(), clusterId: newId() }
  const [one, other] = [newId(), newId()]
  await store.use(owner, 'held')
  assert.equal(await store.hold('held', one, 60_000), true)
  assert.equal(await store.hold('held', other, 60_000), false)
  assert.equal(await store.hold('held', one, 60_000), true)
  await store.free('held', other)
  assert.equal(await store.hold('held', other, 60_000), false)
  await store.free('held', one)
  assert.equal(await store.hold('held', other, 0), true)
  assert.equal(await store.hold('held', one, 60_000), true, 'whose holder was killed')
})
