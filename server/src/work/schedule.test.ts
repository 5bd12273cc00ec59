/** Which runs get a place, over a real database. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { addService, createWorld, type World } from '../../test/support/engine.ts'
import { newId } from '../lib/ids.ts'
import { releaseLeases } from './lease.ts'
import { askForRun, claimRun, nextDue, runLeases, runsEach, setSchedules } from './schedule.ts'

const database = await testDatabase()
const now = new Date('2026-03-01T12:00:30Z')
const everyMinute = { main: { expression: '* * * * *', timeZone: 'UTC' } }

/** A deployed job; its release has a scheduled task. */
const addJob = async (world: World): Promise<string> => {
  const id = await addService(world, {}, 'job')
  const [release, deployment] = [newId(), newId()]
  await database.query(
    `insert into release (id, organization_id, service_id, deployment_id, image, workload, sealed_env, hash)
     values ($1, $2, $3, $4, 'x', '{"tasks":{"main":{"on":{"CRON":{}}}}}', 'x', 'x')`,
    [release, world.ids.organizationId, id, deployment],
  )
  await database.query(`update service_state set current_release_id = $2, desired = 'RUNNING' where service_id = $1`, [
    id,
    release,
  ])
  return id
}
const schedule = (id: string, at: Date): Promise<void> =>
  database.transaction((tx) => setSchedules(tx, id, everyMinute, at))
const claimedBy = async (worker = 'here'): Promise<string | undefined> =>
  (await claimRun(database, worker, now))?.run.serviceId

test('an organization whose runs take for ever has places of its own, by the clock and by hand', async () => {
  const [crowd, other] = [await createWorld(database), await createWorld(database)]
  const jobs = await Promise.all(Array.from({ length: runsEach + 2 }, () => addJob(crowd)))
  for (const id of jobs) await schedule(id, new Date('2026-03-01T11:58:00Z'))
  const late = await addJob(other)
  await schedule(late, new Date('2026-03-01T11:59:00Z'))
  const begun = new Set<string>()
  for (let n = 0; n < runsEach; n += 1) begun.add((await claimedBy())!)
  assert.equal(begun.size, runsEach)
  assert.ok(!begun.has(late))
  assert.equal(await claimedBy(), late, 'what was due later')
  assert.equal(await claimedBy(), undefined)
  // A run that waits for a place is not due again at once.
  const [left] = jobs.filter((id) => !begun.has(id))
  assert.ok((await nextDue(database, now))! > now)
  const byHand = await addJob(other)
  for (const serviceId of [left!, byHand])
    await database.transaction((tx) => askForRun(tx, { id: newId(), serviceId, name: 'main', askedBy: 'somebody' }))
  assert.equal(await claimedBy(), byHand)
  assert.equal(await claimedBy(), undefined)
  await database.query(
    `update task_run set state = 'SUCCEEDED' where id in (select id from task_run where organization_id = $1 limit 1)`,
    [crowd.ids.organizationId],
  )
  assert.equal(await claimedBy(), left)
  await Promise.all([crowd.runtime.close(), other.runtime.close()])
})

test('runs that a server leaves are claimed by another one', async () => {
  const rows = await database.query<{ id: string }>(`select id from task_run where state = 'RUNNING'`)
  await releaseLeases(
    database,
    runLeases,
    'here',
    rows.map(({ id }) => id),
  )
  const taken = new Set<string>()
  for (let run = await claimedBy('there'); run !== undefined; run = await claimedBy('there')) taken.add(run)
  assert.ok(taken.size >= runsEach)
})
