import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  addService,
  ask,
  createTestEngine,
  partsOf,
  type TestEngine,
  type World,
} from '../../../test/support/engine.ts'
import { newWorld, revisions, settled, statusOf } from '../../../test/support/engine-story.ts'
import { until } from '../../../test/support/until.ts'
import { learnCapacity } from '../../clusters/capacity.ts'
import { newId } from '../../lib/ids.ts'
import type { VolumeSizes } from '../desired/volume-sizes.ts'

const open = async (limits: boolean, volumeSizes: VolumeSizes = 'auto') => {
  const world = await newWorld()
  world.runtime.limitVolumes(limits)
  const { clusters } = partsOf(world, { off: false, callsLeft: null, lateCut: false })
  const learn = async () => learnCapacity(world.database, await clusters.of(world.clusterId))
  await learn()
  const engine = createTestEngine(world, {}, { volumeSizes })
  await engine.engine.start()
  return { world, engine, learn, close: () => engine.engine.stop() }
}

const addStored = async (world: World, sizeGb: number) => {
  const volume = newId()
  const id = await addService(world, { volumes: [{ id: volume, mountPath: '/data', sizeGb }] })
  const resize = (size: number) =>
    world.database.query(`update node set spec = jsonb_set(spec, '{volumes,0,sizeGb}', $2) where id = $1`, [id, size])
  const limit = async () => (await world.runtime.volumeSizes([volume])).get(volume)
  return { id, resize, limit }
}

const deploy = async (engine: TestEngine, world: World, id: string, more = {}): Promise<string> => {
  await ask(engine, world, 'DEPLOY', [{ id, ...more }])
  return settled(engine, world, id)
}

const planned = async ({ engine }: TestEngine, world: World, id: string) => {
  const asked = { ...world.ids, action: 'DEPLOY' as const, wholeEnvironment: false, services: [{ id }] }
  return (await engine.plan(world.database, asked)).stages.flatMap(({ services }) => services)[0]!
}

/** The lines of deployments about its volumes, once each is written. */
const notes = (world: World, id: string, least: number): Promise<string[]> =>
  until(
    async () => {
      const rows = await world.database.query<{ lines: { text: string }[] }>(
        `select lines from deployment_log where service_id = $1 and step = 'volumes' order by id`,
        [id],
      )
      const texts = rows.flatMap(({ lines }) => lines.map(({ text }) => text)).filter((text) => text.includes('size'))
      return texts.length >= least ? texts : null
    },
    { timeoutMs: 5000, what: 'lines about volumes' },
  )

test('a volume is limited to its size, which cannot be changed: a deploy says so and leaves what runs', async () => {
  const { world, engine, close } = await open(true)
  const { id, resize, limit } = await addStored(world, 4)
  assert.deepEqual((await planned(engine, world, id)).not_applied, [])
  assert.equal(await deploy(engine, world, id), 'DEPLOYED')
  assert.equal(await limit(), 4)
  const running = await revisions(world, id)
  for (const size of [8, 3]) {
    await resize(size)
    const plan = await planned(engine, world, id)
    assert.deepEqual([plan.effect, plan.reason.includes(`cannot be changed to ${size} GB`)], ['REFUSED', true])
    assert.equal(await deploy(engine, world, id), 'DEPLOYMENT_ERROR')
    const status = await statusOf(engine, world, id)
    assert.match(JSON.stringify(status), /The volume at \/data has 4 GB.*Set the size back to 4/)
    assert.deepEqual([await revisions(world, id), await limit()], [running, 4])
  }
  await resize(4)
  assert.equal(await deploy(engine, world, id), 'DEPLOYED')
  await close()
})

test('a volume that was made without a limit stays as it is, and each deployment says so once', async () => {
  const { world, engine, learn, close } = await open(false)
  const { id, resize, limit } = await addStored(world, 4)
  assert.deepEqual((await planned(engine, world, id)).not_applied, ['/storage/0/size'])
  assert.equal(await deploy(engine, world, id), 'DEPLOYED')
  world.runtime.limitVolumes(true)
  await learn()
  await resize(8)
  const plan = await planned(engine, world, id)
  assert.deepEqual([plan.effect, plan.not_applied], ['ROLL_OUT', ['/storage/0/size']])
  assert.equal(await deploy(engine, world, id), 'DEPLOYED')
  assert.equal(await limit(), null)
  assert.deepEqual(await notes(world, id, 2), [
    'The size of the volume at /data (4 GB) is not enforced: the cluster cannot limit it.',
    'The size of the volume at /data (8 GB) is not enforced: it was made without a limit and stays as it is.',
  ])
  await close()
})

test('an older release comes back whatever size its volume has by now', async () => {
  const { world, engine, close } = await open(true)
  const { id, resize, limit } = await addStored(world, 4)
  assert.equal(await deploy(engine, world, id), 'DEPLOYED')
  const [first] = await world.database.query<{ id: string }>('select id from release where service_id = $1', [id])
  await ask(engine, world, 'UNINSTALL', [{ id }])
  await settled(engine, world, id)
  await resize(8)
  assert.equal(await deploy(engine, world, id), 'DEPLOYED')
  assert.equal(await limit(), 8)
  assert.equal(await deploy(engine, world, id, { releaseId: first!.id }), 'DEPLOYED')
  assert.deepEqual(await notes(world, id, 1), ['The volume at /data keeps its size of 8 GB.'])
  await close()
})

test('where sizes must be enforced, nothing with storage is deployed to a cluster that cannot', async () => {
  const { world, engine, learn, close } = await open(false, 'enforce')
  const [stored, plain] = [await addStored(world, 4), await addService(world)]
  await assert.rejects(ask(engine, world, 'DEPLOY', [{ id: stored.id }]), {
    code: 'not_deployable',
    message: /cannot limit the size of volumes.*SLIPWAY_VOLUME_SIZES/,
  })
  const plan = await planned(engine, world, stored.id)
  assert.deepEqual([plan.effect, plan.reason.includes('SLIPWAY_VOLUME_SIZES')], ['REFUSED', true])
  assert.equal(await deploy(engine, world, plain), 'DEPLOYED')
  // Its disk is mounted in another way since the last check.
  world.runtime.limitVolumes(true)
  await learn()
  world.runtime.limitVolumes(false)
  assert.equal(await deploy(engine, world, stored.id), 'DEPLOYMENT_ERROR')
  assert.deepEqual([await stored.limit(), world.builds.length], [undefined, 1])
  world.runtime.limitVolumes(true)
  assert.equal(await deploy(engine, world, stored.id), 'DEPLOYED')
  assert.equal(await stored.limit(), 4)
  await close()
})
