/**
 * A built image that was removed from the engine by another client: reported, and built again by an ordinary
 * deployment.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService, ask, partsOf, type World } from '../../../test/support/engine.ts'
import { newWorld, settled, start, statusOf } from '../../../test/support/engine-story.ts'
import { until } from '../../../test/support/until.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { currentRelease } from '../release/releases.ts'
import { buildLostImage } from './lost-image.ts'

const deploymentsOf = (world: World) =>
  world.database.query<{ action: string; origin: string; triggeredBy: string; state: string }>(
    'select action, origin, triggered_by as "triggeredBy", state from deployment order by seq',
  )

/** An application deployed at `c1`, while the head of its branch is another commit by now. */
const createScene = async () => {
  const world = await newWorld()
  const lost = new Set<string>()
  const isHeld = async (_organizationId: string, image: string): Promise<boolean> => !lost.has(image)
  Object.assign(world.runtime.images, { isHeld })
  const { apply } = world.runtime.instances
  const applyHeld: typeof apply = async (workload, ...rest) => {
    if (lost.has(workload.image)) throw new DeploymentError('image_missing', `There is no ${workload.image}.`)
    return apply(workload, ...rest)
  }
  Object.assign(world.runtime.instances, { apply: applyHeld })
  const engine = await start(world)
  const id = await addService(world)
  await ask(engine, world, 'DEPLOY', [{ id }])
  assert.equal(await settled(engine, world, id), 'DEPLOYED')
  world.head = 'c2'
  const status = async () => (await statusOf(engine, world, id))!
  /** The container runs on. `again`: the result of the next build of the commit. */
  const loseImage = async (again: string | DeploymentError): Promise<void> => {
    world.images.set('c1', again)
    lost.add((await currentRelease(world.database, id))!.image)
  }
  const lose = async (again: string | DeploymentError): Promise<void> => {
    await loseImage(again)
    await world.runtime.instances.retire({ ...world.ids, serviceId: id }, null, 0, AbortSignal.timeout(10_000))
  }
  const parts = partsOf(world, { off: false, callsLeft: null, lateCut: false })
  const repair = async () => buildLostImage(parts, (await currentRelease(world.database, id))!, async () => {})
  return { world, engine, id, status, lose, loseImage, repair }
}

test('a version whose container and image are gone is reported within 10 s, and runs again from its own commit', async () => {
  const { world, id, status, lose } = await createScene()
  const seen = new Set<string>()
  await lose('image-c1-again')
  const lostAtMs = performance.now()
  await until(
    async () => {
      const { running_state: running, error, state } = await status()
      if (running === 'ERROR') seen.add(error?.code ?? 'without a sentence')
      return state === 'RESTARTED' && running === 'RUNNING'
    },
    { what: 'the version' },
  )
  assert.ok(performance.now() - lostAtMs < 10_000)
  assert.ok(!seen.has('without a sentence'), [...seen].join())
  const { error } = await status()
  assert.equal(error, undefined)
  const release = (await currentRelease(world.database, id))!
  assert.equal(release.image, 'image-c1-again')
  assert.equal((release.commit as { git_commit_id: string }).git_commit_id, 'c1')
  assert.equal((await world.runtime.instancesOf(id)).length, 1)
  await until(async () => (await deploymentsOf(world)).every(({ state }) => /ED$/.test(state)), { what: 'the end' })
  const [, repair, ...more] = await deploymentsOf(world)
  assert.deepEqual(more, [])
  const triggeredBy = 'Slipway: the image of the running version was removed'
  assert.deepEqual(repair, { action: 'RESTART', origin: 'QOVERY_INTERNAL', triggeredBy, state: 'SUCCEEDED' })
})

test('a failed build is reported with its reason, retried after ever longer pauses, and not forever', async () => {
  const { world, engine, id, status, lose, repair } = await createScene()
  await lose(new DeploymentError('build_failed', 'The build failed: the disk is away.'))
  await until(async () => (await status()).state === 'RESTART_ERROR', { what: 'the first attempt' })
  assert.match((await status()).error!.message, /removed from the cluster.*could not be built again.*disk is away/)
  // The first pause is of seconds, too few for a busy machine: longer here, so that no attempt is made meanwhile.
  await world.database.query(`update repair set last_at = last_at + interval '50 seconds'`)
  await until(async () => (await status()).running_state === 'ERROR', { what: 'its running state', timeoutMs: 20_000 })
  // The service shows its end before the deployment is over.
  await until(async () => (await deploymentsOf(world)).every(({ state }) => /ED$/.test(state)), { what: 'the end' })
  // The first pause is reported as a minute.
  for (const minutes of [1, 1, 5, 15, 60, 240]) {
    const before = (await deploymentsOf(world)).length
    assert.match((await repair())!.message, new RegExp(`next one within ${minutes} min.*disk is away`))
    assert.equal((await deploymentsOf(world)).length, before, 'not before its pause is over')
    const passed = `update repair set last_at = clock_timestamp() - interval '${minutes} minutes'`
    await world.database.query(passed)
    assert.match((await repair())!.message, /is being built again/)
    assert.equal(await settled(engine, world, id), 'RESTART_ERROR')
    await until(async () => (await deploymentsOf(world)).every(({ state }) => /ED$/.test(state)), { what: 'the end' })
  }
  await world.database.query(`update repair set last_at = last_at - interval '10 days'`)
  const count = (await deploymentsOf(world)).length
  assert.match((await repair())!.message, /7 attempts: deploy the service\..*disk is away/)
  assert.equal((await deploymentsOf(world)).length, count)
  // A deployment by a user repairs it, and the pauses begin anew.
  world.images.set('c2', 'image-c2')
  await ask(engine, world, 'DEPLOY', [{ id }])
  assert.equal(await settled(engine, world, id), 'DEPLOYED')
  assert.equal((await status()).error, undefined)
})

test('that nothing runs is reported with the request to build it again, however soon that begins', async () => {
  const { world, status, lose } = await createScene()
  const { query } = world.database
  // As if the deployment had begun by then: it now writes the row.
  world.database.query = async <R extends object>(...[text, values]: Parameters<typeof query>): Promise<R[]> =>
    /^update service_state set running_state = \$2/.test(String(text)) ? [] : query<R>(text, values)
  await lose('hang')
  const isTold = async () => (await status()).running_state === 'ERROR'
  await until(isTold, { what: 'its running state' })
  assert.match((await status()).error!.message, /removed from the cluster: it is being built again/)
})

test('it is asked for once by several servers, never beside a deployment of a user, and not for what is stopped', async () => {
  const { world, engine, id, loseImage, repair } = await createScene()
  await loseImage('hang')
  const both = await Promise.all([repair(), repair()])
  assert.deepEqual(both.map((problem) => problem?.code ?? null).sort(), ['image_lost', null])
  assert.equal(await repair(), null, 'while it waits or runs')
  await world.database.transaction((tx) => engine.engine.cancel(tx, world.ids.environmentId))
  await until(async () => (await deploymentsOf(world)).every(({ state }) => /ED$/.test(state)), { what: 'the cancel' })
  const other = await addService(world)
  world.images.set('c2', 'hang')
  await ask(engine, world, 'DEPLOY', [{ id: other }])
  assert.equal(await repair(), null)
  await world.database.transaction((tx) => engine.engine.cancel(tx, world.ids.environmentId))
  await until(async () => (await deploymentsOf(world)).every(({ state }) => /ED$/.test(state)), { what: 'the cancel' })
  await ask(engine, world, 'STOP', [{ id }])
  assert.equal(await settled(engine, world, id), 'STOPPED')
  const before = (await deploymentsOf(world)).length
  assert.equal(await repair(), null)
  assert.equal((await deploymentsOf(world)).length, before)
})
