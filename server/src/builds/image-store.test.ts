import assert from 'node:assert/strict'
import { test } from 'node:test'
import { testDatabase } from '../../test/database.ts'
import { createImageStore } from './image-store.ts'

test('an image is found by its content key, and a newer one replaces it', async () => {
  const store = createImageStore(await testDatabase())
  assert.equal(await store.find('key'), null)
  await store.save('key', { reference: 'sha256:a', imageId: 'sha256:a' })
  await store.save('key', { reference: 'sha256:b', imageId: 'sha256:b' })
  assert.deepEqual(await store.find('key'), { reference: 'sha256:b', imageId: 'sha256:b' })
})
