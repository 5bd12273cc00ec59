import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { until } from '../../test/support/until.ts'

const database = await testDatabase()
after(() => database.close())

/** Ends a connection from the server's side, as a crash or an operator does. */
const terminate = async (pid: number): Promise<void> => {
  await database.query('select pg_terminate_backend($1)', [pid])
  const isGone = async () => (await database.query('select 1 from pg_stat_activity where pid = $1', [pid])).length === 0
  await until(isGone, { what: 'the connection to be gone' })
}

test('a connection that is lost while its transaction waits for something else fails that transaction alone', async () => {
  const lost = database.transaction(async (tx) => {
    const [row] = await tx.query<{ pid: number }>('select pg_backend_pid() as pid')
    await terminate(row!.pid)
    await tx.query('select 1')
  })
  await assert.rejects(lost, { status: 503 })
  assert.deepEqual(await database.query('select 1 as n'), [{ n: 1 }])
})

test('statements of the pool keep one plan, which the test of plans explains', async () => {
  const [row] = await database.query('show plan_cache_mode')
  assert.deepEqual(row, { plan_cache_mode: 'force_generic_plan' })
})

test('the victim of a deadlock runs again, and both transactions are done', async () => {
  await database.query('create table pair (id int primary key, n int not null)')
  await database.query('insert into pair values (1, 0), (2, 0)')
  const both = Promise.withResolvers<void>()
  let begun = 0
  const add = (first: number, second: number) =>
    database.transaction(async (tx) => {
      await tx.query('update pair set n = n + 1 where id = $1', [first])
      begun += 1
      if (begun === 2) both.resolve()
      await both.promise
      await tx.query('update pair set n = n + 1 where id = $1', [second])
    })
  await Promise.all([add(1, 2), add(2, 1)])
  // A victim that is quick may be one once more.
  assert.ok(begun >= 3, String(begun))
  assert.deepEqual(await database.query('select n from pair order by id'), [{ n: 2 }, { n: 2 }])
})
