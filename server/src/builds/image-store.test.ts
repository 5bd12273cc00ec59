import assert from 'node:assert/strict'
import { test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { newId } from '../lib/ids.ts'
import { createImageStore } from './image-store.ts'

const scene = async () => {
  const database = await testDatabase()
  const [a, b] = [newId(), newId()]
  for (const id of [a, b])
    await database.query(
      `insert into node (id, organization_id, kind, name_scope, name) values ($1, $1, 'organization', 'organization', 'any')`,
      [id],
    )
  const clusterId = newId()
  const on = (organizationId: string) => ({ organizationId, clusterId })
  return { database, store: createImageStore(database), a, b, on }
}

test('an image is found by its content key on the cluster that built it, and a newer one replaces it', async () => {
  const { store, a, on } = await scene()
  assert.equal(await store.find(on(a), 'key'), null)
  await store.save(on(a), 'key', { reference: 'sha256:a', imageId: 'sha256:a' })
  await store.save(on(a), 'key', { reference: 'sha256:b', imageId: 'sha256:b' })
  assert.deepEqual(await store.find(on(a), 'key'), { reference: 'sha256:b', imageId: 'sha256:b' })
  const there = { organizationId: a, clusterId: newId() }
  assert.equal(await store.find(there, 'key'), null)
  await store.save(there, 'key', { reference: 'sha256:t', imageId: 'sha256:t' })
  assert.equal((await store.find(there, 'key'))?.imageId, 'sha256:t')
  assert.equal((await store.find(on(a), 'key'))?.imageId, 'sha256:b')
})

test('what one organization built is not found by another, nor what was built before images had one', async () => {
  const { database, store, a, b, on } = await scene()
  await store.save(on(a), 'key', { reference: 'sha256:a', imageId: 'sha256:a' })
  await database.query(`insert into image (content_key, reference, image_id) values ('old', 'sha256:o', 'sha256:o')`)
  assert.deepEqual([await store.find(on(b), 'key'), await store.find(on(b), 'old')], [null, null])
  assert.deepEqual([await store.owns(a, 'sha256:a'), await store.owns(b, 'sha256:a')], [true, false])
  assert.deepEqual([await store.owns(a, 'sha256:o'), await store.owns(b, 'sha256:o')], [false, false])
})

test('a base image is remembered for the organization that pulled it', async () => {
  const { store, a, b } = await scene()
  await store.saveBase(a, 'busybox:1', 'sha256:a')
  await store.saveBase(a, 'busybox:1', 'sha256:b')
  assert.deepEqual([await store.findBase(a, 'busybox:1'), await store.findBase(b, 'busybox:1')], ['sha256:b', null])
})

test('steps are found by their key, and the secret of an organization stays its own', async () => {
  const { store, a, b, on } = await scene()
  await store.saveStep(on(a), 'step', 'sha256:s')
  assert.equal(await store.findStep('step'), 'sha256:s')
  const secret = await store.cacheSecret(a)
  assert.match(secret, /^[0-9a-f]{64}$/)
  assert.equal(await store.cacheSecret(a), secret)
  assert.notEqual(await store.cacheSecret(b), secret)
})
