import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createKeyedLock } from './keyed-lock.ts'

test('some share a key, one has it alone after all of them, and its waiter lets no later ones share before', async () => {
  const lock = createKeyedLock()
  const [first, second] = [lock.tryShare('a'), lock.tryShare('a')]
  assert.ok(first !== null && second !== null)
  let alone: (() => void) | null = null
  const waiting = lock.acquire('a').then((release) => {
    alone = release
  })
  assert.equal(lock.tryShare('a'), null)
  assert.ok(lock.tryShare('b') !== null)
  first()
  await new Promise((resolve) => setImmediate(resolve))
  assert.equal(alone, null)
  second()
  await waiting
  assert.equal(lock.tryShare('a'), null)
  alone!()
  assert.ok(lock.tryShare('a') !== null)
})
