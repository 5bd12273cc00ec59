/**
 * The process dies at every call that the engine makes to the world, before or after it: nothing may be lost or left
 * over.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService, ask, type World } from '../../test/support/engine.ts'
import {
  newWorld,
  openDeployments,
  revisions,
  settled,
  start,
  statusOf,
  targets,
} from '../../test/support/engine-story.ts'
import { howMany } from '../../test/support/nightly.ts'
import { until } from '../../test/support/until.ts'
import type { Kind } from '../kinds.ts'
import { isFinal } from './status/states.ts'

/** In a check one call of each five, beginning with another one each time; at night all of them. */
const callStep = howMany(5, 1)
const firstCall = 1 + Math.floor(Math.random() * callStep)

const finalEvents = (world: World, deploymentId: string): string[] =>
  world.events
    .filter((event) => event.deploymentId === deploymentId && event.kind !== 'DEPLOYMENT_STARTED')
    .map((event) => event.kind)

/** The expected result for a service of each kind after its deployment, whatever died meanwhile. */
const throughOf: Partial<Record<Kind, (world: World, id: string, deploymentId: string) => Promise<boolean>>> = {
  async application(world, id, deploymentId) {
    if (JSON.stringify(await revisions(world, id)) !== JSON.stringify([deploymentId])) return false
    return targets(world, id).length === 1
  },
  container: (world, id, deploymentId) => throughOf.application!(world, id, deploymentId),
  async job(world, id, deploymentId) {
    const { instances } = await world.runtime.owned()
    const [row] = await world.database.query(
      'select r.deployment_id from service_state s join release r on r.id = s.current_release_id where s.service_id = $1',
      [id],
    )
    return instances.length === 0 && row?.deployment_id === deploymentId
  },
}

// The event list replaces the outbox here and does not roll back, so a cut transaction may leave one entry twice.
for (const kind of Object.keys(throughOf) as Kind[])
  for (const lateCut of [false, true])
    test(`a process that dies at any call to the world ${lateCut ? 'after' : 'before'} it happens loses and leaves nothing of its ${kind}`, async () => {
      const world = await newWorld()
      const id = await addService(world, {}, kind)
      const first = await start(world)
      await ask(first, world, 'DEPLOY', [{ id }])
      await settled(first, world, id)
      await first.engine.stop()
      first.power.off = true
      for (let calls = firstCall, survived = false; !survived; calls += callStep) {
        world.head = `c${calls}${lateCut}`
        const dying = await start(world, { callsLeft: calls, lateCut })
        const { deploymentId } = await ask(dying, world, 'DEPLOY', [{ id }])
        await until(
          async () =>
            dying.power.off || isFinal((await statusOf(dying, world, id).catch(() => undefined))?.state ?? ''),
          { timeoutMs: 20_000, what: `the death at call ${calls}` },
        )
        dying.power.callsLeft = null
        survived = !dying.power.off
        if (survived) await dying.engine.stop()
        dying.power.off = true
        const next = await start(world)
        assert.equal(await settled(next, world, id, 20_000), 'DEPLOYED', `call ${calls}`)
        await until(async () => (await openDeployments(world)).length === 0, {
          timeoutMs: 20_000,
          what: 'the deployment to end',
        })
        await until(() => throughOf[kind]!(world, id, deploymentId), {
          timeoutMs: 10_000,
          what: `the end after death at call ${calls}`,
        })
        assert.ok(finalEvents(world, deploymentId).length >= 1)
        assert.equal(new Set(finalEvents(world, deploymentId)).size, 1)
        await next.engine.stop()
        next.power.off = true
        assert.ok(calls < 500, 'the deployment never survived')
      }
    })

test('a change of routes is decided once: a push after a death at any call changes nothing of what was frozen', async () => {
  const world = await newWorld()
  const id = await addService(world)
  const first = await start(world)
  await ask(first, world, 'DEPLOY', [{ id }])
  await settled(first, world, id)
  await first.engine.stop()
  first.power.off = true
  const frozenIn = (deploymentId: string) =>
    world.database.query('select image from release where deployment_id = $1', [deploymentId])
  let frozen = 0
  for (let calls = firstCall, survived = false; !survived; calls += callStep) {
    const before = await revisions(world, id)
    const path = { path: `/${calls}` }
    await world.database.query('update node set spec = $2 where id = $1', [id, JSON.stringify(path)])
    const dying = await start(world, { callsLeft: calls, lateCut: true })
    const { deploymentId } = await ask(dying, world, 'DEPLOY', [{ id }])
    const ended = async () => dying.power.off || (await openDeployments(world)).length === 0
    await until(ended, { timeoutMs: 20_000, what: `the death at call ${calls}` })
    dying.power.callsLeft = null
    survived = !dying.power.off
    if (survived) await dying.engine.stop()
    dying.power.off = true
    const wasFrozen = (await frozenIn(deploymentId)).length > 0
    const { head } = world
    const builds = [...world.builds]
    world.head = `pushed-${calls}`
    const next = await start(world)
    assert.equal(await settled(next, world, id, 20_000), 'DEPLOYED', `call ${calls}`)
    await until(async () => (await openDeployments(world)).length === 0, {
      timeoutMs: 20_000,
      what: 'the deployment to end',
    })
    if (wasFrozen) {
      frozen += 1
      assert.deepEqual([world.builds, await revisions(world, id)], [builds, before], `call ${calls}`)
      world.head = head
    } else assert.deepEqual(await revisions(world, id), [deploymentId], `call ${calls}`)
    const [revision] = await revisions(world, id)
    assert.deepEqual(await frozenIn(deploymentId), await frozenIn(revision!), `call ${calls}`)
    await next.engine.stop()
    next.power.off = true
    assert.ok(calls < 500, 'the deployment never survived')
  }
  assert.ok(frozen > 1, 'no death came after the release was frozen')
})

for (const lateCut of [false, true])
  test(`a process that dies at any call ${lateCut ? 'after' : 'before'} it happens still ends what it was to uninstall`, async () => {
    const world = await newWorld()
    const id = await addService(world, { on: { START: ['begun'], DELETE: ['gone'] }, volume: true }, 'job')
    const image = await addService(world, { volume: true }, 'container')
    for (let calls = firstCall, survived = false; !survived; calls += callStep) {
      const dying = await start(world)
      await ask(dying, world, 'DEPLOY', [{ id }, { id: image }])
      for (const each of [id, image]) assert.equal(await settled(dying, world, each), 'DEPLOYED')
      await until(async () => (await openDeployments(world)).length === 0, {
        timeoutMs: 20_000,
        what: 'the deployment to end',
      })
      await ask(dying, world, 'UNINSTALL', [{ id }, { id: image }], { wholeEnvironment: true })
      dying.power.lateCut = lateCut
      dying.power.callsLeft = calls
      const ended = async () => dying.power.off || (await openDeployments(world)).length === 0
      await until(ended, { timeoutMs: 20_000, what: `the death at call ${calls}` })
      dying.power.callsLeft = null
      survived = !dying.power.off
      if (survived) await dying.engine.stop()
      dying.power.off = true
      const next = await start(world)
      await until(async () => (await openDeployments(world)).length === 0, { timeoutMs: 20_000, what: 'the end' })
      for (const each of [id, image]) {
        const status = await statusOf(next, world, each)
        assert.deepEqual([status!.state, status!.service_deployment_status], ['READY', 'NEVER_DEPLOYED'], `${calls}`)
      }
      const { instances, volumes, environments } = await world.runtime.owned()
      assert.deepEqual([instances, volumes, environments], [[], [], []], `call ${calls}`)
      await next.engine.stop()
      next.power.off = true
      assert.ok(calls < 500, 'the uninstall never survived')
    }
  })

for (const lateCut of [false, true])
  test(`a process that dies at any call ${lateCut ? 'after' : 'before'} it happens loses no run by the clock, and begins none twice`, async () => {
    const world = await newWorld()
    const id = await addService(world, { on: { CRON: ['tick'] }, cron: '0 0 1 1 *' }, 'job')
    const first = await start(world)
    await ask(first, world, 'DEPLOY', [{ id }])
    await settled(first, world, id)
    await first.engine.stop()
    first.power.off = true
    const through = async () => {
      const open = `select 1 from task_run where state = 'RUNNING' union all select 1 from schedule where next_at <= now()`
      return (await world.database.query(open)).length === 0
    }
    for (let calls = firstCall, survived = false; !survived; calls += callStep) {
      await world.database.query(`update schedule set next_at = now() - interval '1 second'`)
      await world.database.query('delete from task_run')
      const dying = await start(world, { callsLeft: calls, lateCut })
      await until(async () => dying.power.off || (await through()), { timeoutMs: 20_000, what: `the death ${calls}` })
      dying.power.callsLeft = null
      survived = !dying.power.off
      if (survived) await dying.engine.stop()
      dying.power.off = true
      const next = await start(world)
      // A statement in progress at the death may renew the lease once more, which then runs out by itself.
      await until(through, { timeoutMs: 60_000, what: `the run after the death at call ${calls}` })
      const runs = await world.database.query('select state from task_run')
      assert.deepEqual(runs, [{ state: 'SUCCEEDED' }], `call ${calls}`)
      await next.engine.stop()
      next.power.off = true
      assert.ok(calls < 500, 'the run never survived')
    }
  })

/** Kills the process at every call of one request, and lets the next one resume; `check` verifies the result. */
const killEverywhere = async (
  world: World,
  lateCut: boolean,
  turn: {
    before(round: number): Promise<void>
    request(dying: Awaited<ReturnType<typeof start>>): Promise<string>
    check(deploymentId: string, call: number): Promise<boolean>
  },
): Promise<void> => {
  for (let calls = firstCall, survived = false; !survived; calls += callStep) {
    await turn.before(calls)
    const dying = await start(world, { callsLeft: calls, lateCut })
    const deploymentId = await turn.request(dying)
    const ended = async () => dying.power.off || (await openDeployments(world)).length === 0
    await until(ended, { timeoutMs: 20_000, what: `the death at call ${calls}` })
    dying.power.callsLeft = null
    survived = !dying.power.off
    if (survived) await dying.engine.stop()
    dying.power.off = true
    const next = await start(world)
    await until(async () => (await openDeployments(world)).length === 0, { timeoutMs: 20_000, what: 'the end' })
    await until(() => turn.check(deploymentId, calls), { timeoutMs: 10_000, what: `the end after call ${calls}` })
    await next.engine.stop()
    next.power.off = true
    assert.ok(calls < 500, 'the deployment never survived')
  }
}

const deployOnce = async (world: World, id: string): Promise<string> => {
  const engine = await start(world)
  const { deploymentId } = await ask(engine, world, 'DEPLOY', [{ id }])
  assert.equal(await settled(engine, world, id), 'DEPLOYED')
  await until(async () => (await openDeployments(world)).length === 0, {
    timeoutMs: 20_000,
    what: 'the deployment to end',
  })
  await engine.engine.stop()
  engine.power.off = true
  return deploymentId
}

const currentOf = async (world: World, id: string) => {
  const [row] = await world.database.query<{ revision: string; image: string; hash: string; deployed: string }>(
    `select r.deployment_id as revision, r.image, r.hash, s.deployed_hash as deployed
     from service_state s join release r on r.id = s.current_release_id where s.service_id = $1`,
    [id],
  )
  return row!
}

for (const lateCut of [false, true])
  test(`a process that dies at any call ${lateCut ? 'after' : 'before'} it happens still rolls back, and builds nothing`, async () => {
    const world = await newWorld()
    const id = await addService(world)
    await deployOnce(world, id)
    const [old] = await world.database.query<{ id: string; hash: string }>('select id, hash from release')
    await killEverywhere(world, lateCut, {
      async before(round) {
        world.head = `v${round}${lateCut}`
        await deployOnce(world, id)
        world.builds.length = 0
      },
      request: async (dying) => (await ask(dying, world, 'DEPLOY', [{ id, releaseId: old!.id }])).deploymentId,
      async check(deploymentId) {
        const current = await currentOf(world, id)
        assert.deepEqual([current.revision, current.image], [deploymentId, 'image-c1'])
        assert.deepEqual([current.hash, current.deployed], [old!.hash, old!.hash])
        assert.deepEqual(world.builds, [])
        assert.equal(targets(world, id).length, 1)
        return JSON.stringify(await revisions(world, id)) === JSON.stringify([deploymentId])
      },
    })
  })

for (const lateCut of [false, true])
  test(`a process that dies at any call ${lateCut ? 'after' : 'before'} it happens still leaves alone what has not changed`, async () => {
    const world = await newWorld()
    const id = await addService(world)
    const deployed = await deployOnce(world, id)
    const before = await world.runtime.instancesOf(id)
    await killEverywhere(world, lateCut, {
      before: async () => {},
      request: async (dying) => (await ask(dying, world, 'DEPLOY', [{ id }], { wholeEnvironment: true })).deploymentId,
      async check(deploymentId, call) {
        assert.deepEqual(await world.runtime.instancesOf(id), before, `call ${call}`)
        assert.equal((await currentOf(world, id)).revision, deployed)
        const parts = await world.database.query('select state from deployment_service where deployment_id = $1', [
          deploymentId,
        ])
        assert.deepEqual(parts, [{ state: 'DEPLOYED' }], `call ${call}`)
        assert.equal((await world.database.query('select 1 from release where service_id = $1', [id])).length, 1)
        return true
      },
    })
  })
