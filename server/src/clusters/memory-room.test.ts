import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newApplication, newPlace, startApi, type TestApi } from '../../test/support/api.ts'
import { until } from '../../test/support/until.ts'
import { localKey } from './local.ts'
import { isRefused, memorySentence, readPromised } from './memory-room.ts'

/** The simulated machine has 65536 MB. */
const most = 40_000

const stateOf = async (api: TestApi, id: string): Promise<string> =>
  until(
    async () => {
      const { body } = await api.call('GET', `/application/${id}/status`, undefined, {
        'x-state-vocabulary': 'deployment',
      })
      return /^(DEPLOYED|DEPLOYMENT_ERROR)$/.test(body.state) ? body.state : null
    },
    { what: 'the deployment to end', timeoutMs: 20_000 },
  )

const warningsOf = async ({ database }: TestApi, id: string): Promise<string[]> => {
  const rows = await database.query<{ text: string }>(
    `select line ->> 'text' as text from deployment_log, jsonb_array_elements(lines) line
     where service_id = $1 and step = 'start' and line ->> 'text' like 'Warning:%'`,
    [id],
  )
  return rows.map(({ text }) => text)
}

test('a service with which more memory is promised than there is deploys with a warning in its log', async () => {
  const api = await startApi()
  const { environmentId } = await newPlace(api)
  const first = await newApplication(api, environmentId, { memory: most })
  const second = await newApplication(api, environmentId, { memory: most })
  await api.call('POST', `/application/${first.id}/deploy`)
  assert.equal(await stateOf(api, first.id), 'DEPLOYED')
  assert.deepEqual(await warningsOf(api, first.id), [])
  await api.call('POST', `/application/${second.id}/deploy`)
  assert.equal(await stateOf(api, second.id), 'DEPLOYED')
  const [warning = ''] = await until(
    async () => {
      const found = await warningsOf(api, second.id)
      return found.length > 0 ? found : null
    },
    { what: 'the warning' },
  )
  assert.match(warning, /more memory together than its machine has \(65536 MB\): if they need it all at once/)
  assert.equal(await readPromised(api.database, localKey), 2 * most)
})

test('beyond the setting of the operator one of two that are deployed at once is refused, and a stop makes room', async () => {
  const api = await startApi({ idle: true })
  const engine = api.another({ memoryOvercommit: 100 })
  await engine.start()
  try {
    const { environmentId } = await newPlace(api)
    const services = [0, 1].map(() => newApplication(api, environmentId, { memory: most }))
    const ids = (await Promise.all(services)).map(({ id }) => id as string)
    await api.call('POST', `/environment/${environmentId}/deploy`)
    const states = await Promise.all(ids.map((id) => stateOf(api, id)))
    assert.deepEqual(states.toSorted(), ['DEPLOYED', 'DEPLOYMENT_ERROR'])
    const refused = ids[states.indexOf('DEPLOYMENT_ERROR')]!
    const [row] = await api.database.query<{ error: { code: string; message: string } }>(
      'select error from deployment_service where service_id = $1 order by created_at desc limit 1',
      [refused],
    )
    assert.equal(row!.error.code, 'memory_overcommitted')
    assert.match(
      row!.error.message,
      /more than 100 % of the 65536 MB of its machine, which is refused \(SLIPWAY_MEMORY_OVERCOMMIT\)/,
    )
    const other = ids[1 - ids.indexOf(refused)]!
    await api.call('POST', `/application/${other}/stop`)
    await until(async () => (await readPromised(api.database, localKey)) === 0, { what: 'the stop', timeoutMs: 20_000 })
    await api.call('POST', `/application/${refused}/deploy`)
    await until(async () => (await readPromised(api.database, localKey)) === most, {
      what: 'the other service to run',
      timeoutMs: 20_000,
    })
  } finally {
    await engine.stop()
  }
})

test('what is promised is judged by the machine and by the setting', () => {
  const room = { promisedMb: 48_000, memoryMb: 24_000, overcommitPercent: 0 }
  assert.equal(memorySentence({ ...room, promisedMb: 24_000 }), null)
  assert.match(memorySentence(room)!, /the machine ends some of them/)
  assert.deepEqual(
    [0, 199, 200, 50].map((overcommitPercent) => isRefused({ ...room, overcommitPercent })),
    [false, true, false, true],
  )
  // An operator may also promise less than there is.
  assert.match(memorySentence({ promisedMb: 20_000, memoryMb: 24_000, overcommitPercent: 50 })!, /more than 50 %/)
})
