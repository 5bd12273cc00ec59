import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import { addService, ask, createTestEngine, createWorld } from '../../../test/support/engine.ts'
import { until } from '../../../test/support/until.ts'
import { createClusters } from '../../clusters/clusters.ts'
import { newId } from '../../lib/ids.ts'
import { systemClock } from '../../lib/time/clock.ts'
import { createImageSweep } from './pulled-images.ts'

const world = await createWorld(await testDatabase())
const main = createTestEngine(world)
await main.engine.start()
after(async () => {
  await main.engine.stop()
  await world.runtime.close()
})

const { organizationId } = world.ids

const deploy = async (tag: string): Promise<string> => {
  const id = await addService(world, { tag }, 'container')
  await ask(main, world, 'DEPLOY', [{ id }])
  await until(async () => (await main.engine.statuses(world.database, [id]))[0]!.state === 'DEPLOYED', {
    timeoutMs: 15_000,
    what: 'the deployment',
  })
  return id
}

test('the images that only a deleted service had are dropped with it', async (t) => {
  const dropped: unknown[] = []
  t.mock.method(world.runtime.images, 'drop', async (...[of, references]: [string, readonly string[]]) => {
    dropped.push([of, [...references]])
  })
  const first = await deploy('1.0')
  const second = await deploy('1.0')
  const remove = async (id: string) => {
    await ask(main, world, 'DELETE', [{ id }])
    await until(async () => (await main.engine.statuses(world.database, [id]))[0] === undefined, {
      timeoutMs: 15_000,
      what: 'the end of it',
    })
  }
  await remove(first)
  await remove(second)
  assert.deepEqual(dropped, [
    [organizationId, []],
    [organizationId, ['docker.io/fake/serve:1.0']],
  ])
})

test('a sweep keeps what releases name, takes all of an organization that is gone, and knows no other installation', async (t) => {
  await deploy('2.0')
  const gone = await createWorld(world.database)
  const swept: unknown[] = []
  const elsewhere = newId()
  let nowMs = 0
  t.mock.method(world.runtime.images, 'owners', async () => [organizationId, gone.ids.organizationId, elsewhere])
  t.mock.method(
    world.runtime.images,
    'sweep',
    async (...[of, needed, unusedMs]: [string, readonly string[], number]) => {
      swept.push([of, [...needed], unusedMs > 0])
    },
  )
  const clock = { ...systemClock, monotonicMs: () => nowMs }
  const clusters = createClusters({ database: world.database, runtime: world.runtime })
  const sweep = createImageSweep({ database: world.database, clock }, await clusters.of(world.clusterId))
  const signal = AbortSignal.timeout(10_000)
  await sweep(signal)
  await sweep(signal)
  const kept = [organizationId, ['docker.io/fake/serve:2.0'], true]
  assert.deepEqual(swept, [kept, [gone.ids.organizationId, [], true]], 'once an hour')
  swept.length = 0
  nowMs += 61 * 60_000
  await world.database.query('delete from node where id = $1', [gone.ids.organizationId])
  await sweep(signal)
  assert.deepEqual(swept, [kept, [gone.ids.organizationId, [], false]])
  await gone.runtime.close()
})
