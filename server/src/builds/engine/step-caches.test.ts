import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createFakeClock } from '../../../test/support/fake-clock.ts'
import { createMemoryCaches } from '../../../test/support/image-store.ts'
import { standIn } from '../../../test/support/stand-in.ts'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import type { CacheStore } from '../cache-store.ts'
import type { CacheMount } from '../preparation/run-mounts.ts'
import { createStepCaches } from './step-caches.ts'

type StepCaches = ReturnType<typeof createStepCaches>

const mountOf = (id: string, sharing: CacheMount['sharing']): CacheMount => ({
  ...{ type: 'cache', id, target: '/x', sharing, isReadOnly: false },
  ...{ uid: 0, gid: 0, mode: 0o755 },
})

const ownerOf = (organizationId: string): Parameters<StepCaches['take']>[0] => ({
  organizationId,
  clusterId: 'c',
  cacheScope: 's',
})
const owner = ownerOf('o')
const { signal } = new AbortController()

/** On an engine that does whatever it is asked for. */
const createScene = (maxMb = 1) => {
  const clock = createFakeClock()
  const known = createMemoryCaches()
  const deleted: string[] = []
  const engine = standIn<Engine>({
    async call(method: string, path: string) {
      if (method === 'DELETE') deleted.push(path.replace('/volumes/', ''))
      return {}
    },
  })
  return { clock, known, deleted, caches: createStepCaches({ engine, store: known.store, clock, maxMb }) }
}

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
  const { release } = await caches.take(owner, [mountOf('x', 'locked')], () => assert.fail(), signal)
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

test('a step waits for a locked cache that another one holds, and has a private one of its own', async () => {
  const { clock, caches } = createScene()
  let waits = 0
  const take = async (sharing: CacheMount['sharing']) => {
    const onWait = (): void => {
      waits += 1
    }
    const { caches: held, release } = await caches.take(owner, [mountOf(sharing, sharing)], onWait, signal)
    return { volume: held[0]!.volume, release }
  }
  const first = await take('locked')
  let second: typeof first | undefined
  const waiting = take('locked').then((taken) => {
    second = taken
  })
  await clock.advance(30_000)
  assert.deepEqual([waits, second], [1, undefined])
  await first.release()
  await clock.advance(1000)
  await waiting
  assert.equal(second!.volume, first.volume)

  const [one, other] = [await take('private'), await take('private')]
  assert.notEqual(one.volume, other.volume)
  await one.release()
  const next = await take('private')
  assert.deepEqual([next.volume, waits], [one.volume, 1])
  for (const { release } of [second!, other, next]) await release()
  assert.equal(clock.sleeping(), 0)
})

test('above the limit of an organization the longest unused cache goes, and what is old, but none that is in use', async () => {
  const { known, deleted, caches } = createScene(3)
  const fill = async (organizationId: string, id: string, sizeMb: number) => {
    const own = ownerOf(organizationId)
    const { caches: held, release } = await caches.take(own, [mountOf(id, 'shared')], () => assert.fail(), signal)
    await caches.measure(own, held[0]!.volume, sizeMb * 1024)
    return { volume: held[0]!.volume, release }
  }
  const used = await fill('o', 'used', 2)
  const unused = await fill('o', 'unused', 1)
  const recent = await fill('o', 'recent', 1)
  const foreign = await fill('other', 'foreign', 3)
  for (const { release } of [unused, recent, foreign]) await release()
  await caches.tidy('c')
  assert.deepEqual(deleted, [unused.volume])
  assert.deepEqual(
    known.volumes(),
    [used, recent, foreign].map(({ volume }) => volume),
  )
  known.age(15)
  await caches.tidy('c')
  assert.deepEqual(known.volumes(), [used.volume])
  await used.release()
  await caches.tidy('c')
  assert.deepEqual(known.volumes(), [])
})
