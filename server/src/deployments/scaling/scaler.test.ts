/**
 * The process dies at every call while a service is woken and put to sleep: it ends in the desired state, and nothing
 * is left over.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService, ask, type TestEngine } from '../../../test/support/engine.ts'
import { newWorld, settled, start } from '../../../test/support/engine-story.ts'
import { until } from '../../../test/support/until.ts'

/** Sends the notifications of a router. */
const createVoice = () => {
  let tell = (_serviceId: string): void => {}
  const voice = {
    isIdle: false,
    wanted: (listener: typeof tell): void => {
      tell = listener
    },
    idle: async (serviceIds: readonly string[]) => (voice.isIdle ? [...serviceIds] : []),
    ask: (serviceId: string): void => tell(serviceId),
  }
  return voice
}

const scaleTimes = { sleepAfterMs: 100, upMs: 60_000, downMs: 60_000 }
const scaling = { min: 0, max: 2, cpuPercent: 60, sleeps: true }

for (const lateCut of [false, true])
  test(`a process that dies at any call ${lateCut ? 'after' : 'before'} it happens wakes and puts to sleep all the same`, async () => {
    const world = await newWorld()
    const id = await addService(world, { scaling }, 'container')
    const voice = createVoice()
    const begin = (): Promise<TestEngine> => start(world, {}, { router: voice, scaleTimes })
    const end = async ({ engine, power }: TestEngine): Promise<void> => {
      if (!power.off) await engine.stop()
      power.off = true
    }
    const first = await begin()
    await ask(first, world, 'DEPLOY', [{ id }])
    assert.equal(await settled(first, world, id), 'DEPLOYED')
    await end(first)
    const isAs = async (count: number): Promise<boolean> => {
      const [row] = await world.database.query<{ scale: number; state: string }>(
        'select scale, running_state as state from service_state where service_id = $1',
        [id],
      )
      const routes = world.routes.get(id) ?? []
      return (
        row!.scale === count &&
        row!.state === (count === 0 ? 'STOPPED' : 'RUNNING') &&
        (await world.runtime.instancesOf(id)).length === count &&
        routes.every(({ state, targets }) => state === (count === 0 ? 'asleep' : 'up') && targets.length === count)
      )
    }
    const wish = (count: number): void => {
      voice.isIdle = count === 0
      if (count > 0) voice.ask(id)
    }
    const reaches = (count: number, timeoutMs: number, over: () => boolean = () => false): Promise<boolean> =>
      until(
        async () => {
          wish(count)
          return over() || (await isAs(count))
        },
        { timeoutMs, what: `${count} instances` },
      )
    // Every other call: after one is before the next, so that the two tests together cut between all.
    for (const count of [0, 1])
      for (let calls = 1, survived = false; !survived; calls += 2) {
        const opposite = await begin()
        await reaches(1 - count, 30_000)
        await end(opposite)
        voice.isIdle = false
        const dying = await begin()
        Object.assign(dying.power, { callsLeft: calls, lateCut })
        await reaches(count, 30_000, () => dying.power.off)
        dying.power.callsLeft = null
        survived = !dying.power.off
        await end(dying)
        const next = await begin()
        await reaches(count, 30_000)
        const work = await world.database.query('select from scale_work')
        assert.ok(work.length <= 1)
        await end(next)
        assert.ok(calls < 200, 'it never survived')
      }
  })

test('what calls one another in a preview sleeps and wakes together; elsewhere each for itself', async () => {
  const world = await newWorld()
  const ids = [await addService(world, { scaling }, 'container'), await addService(world, { scaling }, 'container')]
  const [asked, other] = ids as [string, string]
  const idle = new Set<string>()
  let looks = 0
  const voice = createVoice()
  voice.idle = async (serviceIds) => {
    looks += 1
    return serviceIds.filter((id) => idle.has(id))
  }
  const test = await start(world, {}, { router: voice, scaleTimes })
  await ask(
    test,
    world,
    'DEPLOY',
    ids.map((id) => ({ id })),
  )
  for (const id of ids) assert.equal(await settled(test, world, id), 'DEPLOYED')
  const scales = async (): Promise<number[]> =>
    (
      await world.database.query<{ scale: number }>(
        'select scale from service_state where service_id = any($1) order by array_position($1, service_id)',
        [ids],
      )
    ).map(({ scale }) => scale)
  const become = (...wanted: number[]) =>
    until(async () => JSON.stringify(await scales()) === JSON.stringify(wanted), { what: `scales ${wanted}` })
  const setMode = (mode: string) =>
    world.database.query(`update node set spec = spec || jsonb_build_object('mode', $2::text) where id = $1`, [
      world.ids.environmentId,
      mode,
    ])
  await setMode('DEVELOPMENT')
  idle.add(other)
  await become(1, 0)
  idle.clear()
  voice.ask(other)
  await become(1, 1)
  await setMode('PREVIEW')
  idle.add(other)
  const before = looks
  await until(() => looks > before + 3, { what: 'looks at a preview one service of which is asked for' })
  assert.deepEqual(await scales(), [1, 1])
  idle.add(asked)
  await become(0, 0)
  idle.clear()
  voice.ask(asked)
  await become(1, 1)
  // A deployment may have woken one alone.
  await world.database.query('update service_state set scale = 0 where service_id = $1', [other])
  await become(1, 1)
})
