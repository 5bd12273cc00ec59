import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createFakeClock } from '../../../test/support/fake-clock.ts'
import { standIn } from '../../../test/support/stand-in.ts'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import type { CacheStore } from '../cache-store.ts'
import type { CacheMount } from '../preparation/run-mounts.ts'
import { createStepCaches } from './step-caches.ts'

test('a locked cache stays held while its step runs, also when the database was away for a moment', async () => {
  const clock = createFakeClock()
  let heldUntilMs = 0
  let isAway = false
  const store = {
    use: async () => {},
    async hold(_volume: string, _holder: string, ms: number) {
      if (isAway) throw new Error('the connection was closed')
      heldUntilMs = clock.monotonicMs() + ms
      return true
    },
    async free() {
      heldUntilMs = 0
    },
  } as Partial<CacheStore> as CacheStore
  const engine = standIn<Engine>({ call: async () => ({}) })
  const caches = createStepCaches({ engine, store, clock, maxMb: 1 })
  const own = { uid: 0, gid: 0, mode: 0o755, isReadOnly: false } as const
  const mount: CacheMount = { type: 'cache', id: 'x', target: '/x', sharing: 'locked', ...own }
  const owner = { organizationId: 'o', clusterId: 'c', cacheScope: 's' } as Parameters<typeof caches.take>[0]
  const { release } = await caches.take(owner, [mount], () => assert.fail(), new AbortController().signal)
  for (let minute = 0; minute < 5; minute += 1) {
    isAway = true
    await clock.advance(20_000)
    isAway = false
    await clock.advance(40_000)
    assert.ok(heldUntilMs > clock.monotonicMs(), `after ${minute + 1} minutes`)
  }
  await release()
  assert.deepEqual([heldUntilMs, clock.sleeping()], [0, 0])
})
