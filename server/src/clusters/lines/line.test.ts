import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import { until } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { systemClock } from '../../lib/time/clock.ts'
import { createFakeRuntime, type FakeRuntime } from '../../runtimes/fake/fake.ts'
import type { Mark } from '../../runtimes/marks.ts'
import type { ServiceKey } from '../../runtimes/runtime.ts'
import type { Database } from '../../store/database.ts'
import { guardRuntime } from './guard.ts'
import { createLine } from './line.ts'
import { clearConflict } from './rows.ts'

const key = 'local'
const stopping = new AbortController()
after(() => stopping.abort())
const signal = AbortSignal.timeout(120_000)

const createEngine = () => {
  const runtime = createFakeRuntime({ ownerId: newId() })
  after(() => runtime.close())
  return runtime
}

/** A control plane as it starts: the marks that it finds decide what it may do. */
const start = (database: Database, runtime: FakeRuntime, writer: string, challengeMs = 300) =>
  createLine(
    { database, writer, clock: systemClock, log: createLog('silent'), stopping: stopping.signal, challengeMs },
    key,
    runtime,
  )

/** As a copied data directory would have them. */
const copyGenerations = async (from: Database, to: Database): Promise<void> => {
  const rows = await from.query('select * from cluster_generation')
  await to.query('delete from cluster_generation')
  await to.query(
    `insert into cluster_generation select * from jsonb_populate_recordset(null::cluster_generation, $1::jsonb)`,
    [JSON.stringify(rows)],
  )
}

const newest = async (runtime: FakeRuntime): Promise<Mark> => (await runtime.marks.list(key, signal))[0]!
const refused = { code: 'cluster_conflict' }

test('a control plane that restarts is ready at once, and leaves one mark, of its newest generation', async () => {
  const [database, runtime] = [await testDatabase(), createEngine()]
  await start(database, runtime, 'a').ready()
  const first = await newest(runtime)
  // Waiting for an answer to a challenge would time this test out.
  await start(database, runtime, 'a', 10 * 60_000).ready()
  const marks = await runtime.marks.list(key, signal)
  assert.equal(marks.length, 1)
  assert.ok(marks[0]!.generation > first.generation)
})

test('an older copy of a database changes nothing, from its first look on, until an operator has chosen', async () => {
  const [database, copy, runtime] = [await testDatabase(), await testDatabase(), createEngine()]
  await start(database, runtime, 'a').ready()
  await copyGenerations(database, copy)
  await start(database, runtime, 'a').ready()
  const restored = start(copy, runtime, 'a')
  const guarded = guardRuntime(restored, runtime)
  const service: ServiceKey = { serviceId: newId(), environmentId: newId() }
  const mark = await newest(runtime)
  await assert.rejects(guarded.converge(service, { state: 'absent', graceMs: 0 }, null, signal), refused)
  await assert.rejects(guarded.removeEnvironment(service.environmentId, signal), refused)
  await assert.rejects(guarded.ingress.unpublish(service.serviceId), refused)
  assert.deepEqual(await newest(runtime), mark)
  // The conflict is stored: the next start checks nothing else.
  await assert.rejects(start(copy, runtime, 'a').ready(), refused)
  await restored.takeOver(signal)
  await clearConflict(copy, key)
  await restored.check()
  await guarded.removeEnvironment(service.environmentId, signal)
  // The original line is the older one now.
  await assert.rejects(start(database, runtime, 'a').ready(), { code: 'cluster_conflict' })
})

test('of two control planes with copies of a database the one at work continues, and the other holds', async () => {
  const [database, copy, runtime] = [await testDatabase(), await testDatabase(), createEngine()]
  const original = start(database, runtime, 'a')
  await original.ready()
  await copyGenerations(database, copy)
  const second = start(copy, runtime, 'b', 60_000)
  const starting = second.ready()
  starting.catch(() => {})
  await until(async () => (await runtime.marks.list(key, signal)).some(({ generation }) => generation === 0), {
    what: 'the challenge',
  })
  await original.check()
  await assert.rejects(starting, refused)
  assert.equal(second.conflict()?.code, 'other_server')
  await original.check()
  await original.ready()
  assert.deepEqual(
    (await runtime.marks.list(key, signal)).map(({ generation }) => generation),
    [(await newest(runtime)).generation],
  )
})

test('a copy at another place continues when no answer comes, and the original holds when it returns', async () => {
  const [database, copy, runtime] = [await testDatabase(), await testDatabase(), createEngine()]
  const original = start(database, runtime, 'a')
  await original.ready()
  await copyGenerations(database, copy)
  await start(copy, runtime, 'b').ready()
  await original.check()
  await assert.rejects(original.ready(), refused)
  assert.equal(original.conflict()?.code, 'other_server')
})

test('of two writers of one generation the engine takes one, and the other holds', async () => {
  const [database, copy, runtime] = [await testDatabase(), await testDatabase(), createEngine()]
  await start(database, runtime, 'a').ready()
  await copyGenerations(database, copy)
  // Both begin as if they were alone.
  const both = [start(database, runtime, 'a'), start(copy, runtime, 'a')]
  const ends = await Promise.allSettled(both.map((line) => line.ready()))
  await Promise.all(both.map((line) => line.check()))
  assert.equal(ends.filter(({ status }) => status === 'fulfilled').length >= 1, true)
  assert.equal(both.filter((line) => line.conflict() === null).length, 1)
})

test('a database that does not know what runs is older, though its marks are the newest', async () => {
  const [database, runtime] = [await testDatabase(), createEngine()]
  await start(database, runtime, 'a').ready()
  const stranger = newId()
  const withStranger = { ...runtime, owned: async () => ({ instances: [], environments: [stranger], volumes: [] }) }
  await assert.rejects(start(database, withStranger, 'a').ready(), refused)
  const [row] = await database.query<{ message: string }>('select message from cluster_conflict')
  assert.match(row!.message, /does not know a service or environment/)
  // A deletion by request is not evidence of a conflict, and listed orphans are known to be unknown.
  await clearConflict(database, key)
  await database.query(`insert into deletion (id, kind, environment_id, cluster) values ($1, 'environment', $1, $2)`, [
    stranger,
    key,
  ])
  await start(database, withStranger, 'a').ready()
})
