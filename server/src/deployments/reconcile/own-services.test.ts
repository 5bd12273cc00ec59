import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import { addService, createWorld, partsOf } from '../../../test/support/engine.ts'
import { until } from '../../../test/support/until.ts'
import { localKey } from '../../clusters/local.ts'
import { newId } from '../../lib/ids.ts'
import type { Database } from '../../store/database.ts'
import { createOwnServices } from './own-services.ts'

const database = await testDatabase()
const world = await createWorld(database)
after(() => world.runtime.close())

test('of all that an engine names, the services on its cluster are passed on, and few questions are asked', async () => {
  const [own, other] = [await addService(world), await addService(world)]
  const parts = partsOf(world, { off: false, callsLeft: null, lateCut: false })
  let questions = 0
  const counted: Database = {
    ...database,
    query: (text, values) => {
      questions += 1
      return database.query(text, values)
    },
  }
  const ends = new AbortController()
  after(() => ends.abort())
  const found: string[] = []
  const name = createOwnServices({ ...parts, database: counted }, localKey, (id) => found.push(id), ends.signal)
  name(own)
  for (let n = 0; n < 20_000; n += 1) name(n % 2 === 0 ? newId() : `x${n}`)
  await until(() => found.includes(own), { what: 'the first one' })
  // Ids named while too many wait are skipped; they are named again.
  const nameAgain = (): boolean => {
    name(other)
    return found.includes(other)
  }
  await until(nameAgain, { what: 'the second one' })
  assert.deepEqual([...new Set(found)], [own, other])
  assert.ok(questions <= 10, `${questions} questions`)
  const elsewhere: string[] = []
  const foreign = createOwnServices(parts, newId(), (id) => elsewhere.push(id), ends.signal)
  const there = createOwnServices(parts, localKey, (id) => elsewhere.push(`here ${id}`), ends.signal)
  foreign(own)
  there(own)
  await until(() => elsewhere.length > 0, { what: 'an answer' })
  assert.deepEqual(elsewhere, [`here ${own}`])
})
