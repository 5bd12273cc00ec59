import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { type Heard, hearEvents, hearSocket } from '../../test/support/streams.ts'
import { until } from '../../test/support/until.ts'
import { createDeploymentLog, writeRunLines } from '../deployments/progress/log.ts'
import { newId } from '../lib/ids.ts'
import { systemClock } from '../lib/time/clock.ts'

const api = await startApi()
const { call, token, url, database } = api

const newService = async () => {
  const { environmentId } = await newPlace(api)
  return { environmentId, applicationId: (await newApplication(api, environmentId)).id as string }
}

const deploy = async ({ environmentId, applicationId }: { environmentId: string; applicationId: string }) => {
  await call('POST', `/application/${applicationId}/deploy`)
  await until(async () => (await call('GET', `/environment/${environmentId}/status`)).body.state === 'DEPLOYED', {
    what: 'the deployment',
  })
}

const read = async (environmentId: string): Promise<Json[]> =>
  (await call('GET', `/environment/${environmentId}/logs`)).body

const equals = (heard: () => Json[], environmentId: string) =>
  until(async () => JSON.stringify(heard()) === JSON.stringify(await read(environmentId)), {
    what: 'the stream to be what is read',
  })

/** Appends a line to a log, as a worker does. */
const say = (environmentId: string, text: string) =>
  database.query(
    `insert into deployment_log (deployment_id, step, lines)
     select id, 'run', $2::jsonb from deployment where environment_id = $1 order by created_at desc limit 1`,
    [environmentId, JSON.stringify([{ at: '2026-01-01T00:00:00Z', text, level: 'info' }])],
  )

const wake = (environmentId: string) => database.query(`select pg_notify('slipway_status', $1)`, [environmentId])

test('what a deployment says comes as it is said, each line once and in order, as events and on the websocket', async () => {
  const place = await newService()
  const { environmentId } = place
  const events = await hearEvents(`${url}/environment/${environmentId}/logs/stream`, token)
  const socket = await hearSocket(`${url}/deployment/logs?environment=${environmentId}`, token)
  const versioned = await hearSocket(
    `${url}/deployment/logs?environment=${environmentId}&version=${environmentId}-1`,
    token,
  )
  await deploy(place)
  const late = await hearEvents(`${url}/environment/${environmentId}/logs/stream`, token)
  await equals(() => events.all, environmentId)
  await equals(() => socket.all.flat(), environmentId)
  await equals(() => late.all, environmentId)
  assert.ok(events.all.length > 3)
  assert.ok(socket.all.every(Array.isArray))
  const first = events.all.length
  await deploy(place)
  const second = await read(environmentId)
  await until(() => events.all.length === first + second.length, { what: 'the second deployment' })
  assert.deepEqual(events.all.slice(first), second)
  assert.deepEqual(versioned.all.flat(), events.all.slice(0, first))
  for (const stream of [events, socket, versioned, late]) stream.close()
})

test('a stream of one execution has its lines only', async () => {
  const place = await newService()
  const { environmentId } = place
  await deploy(place)
  const lines = await read(environmentId)
  const stream = await hearEvents(`${url}/environment/${environmentId}/logs/stream?version=${environmentId}-1`, token)
  await deploy(place)
  await until(() => stream.all.length >= lines.length, { what: 'the first execution' })
  assert.deepEqual(stream.all, lines)
  const none = await hearEvents(`${url}/environment/${environmentId}/logs/stream?version=${newId()}-1`, token)
  await until(() => none.code !== 0, { what: 'the end of what is not there' })
  assert.deepEqual(none.all, [{ message: 'This environment has no such execution.' }])
  stream.close()
})

test('a client that reconnects with the id of the last line continues after it', async () => {
  const place = await newService()
  const { environmentId } = place
  await deploy(place)
  const address = `${url}/environment/${environmentId}/logs/stream`
  const whole = await hearEvents(address, token)
  await equals(() => whole.all, environmentId)
  whole.close()
  for (const [at, id] of whole.ids.entries()) {
    const rest = await hearEvents(address, token, { 'last-event-id': id })
    await say(environmentId, `after ${at}`)
    await wake(environmentId)
    const expected = (await read(environmentId)).slice(at + 1)
    await until(() => rest.all.length >= expected.length, { what: `what comes after line ${at}` })
    assert.deepEqual(rest.all, expected)
    rest.close()
    if (at > 3) break
  }
})

test('streams that are equally far share the reads, and lines that are written at once come in the order of a read', async () => {
  const place = await newService()
  const { environmentId } = place
  await deploy(place)
  const address = `${url}/environment/${environmentId}/logs/stream`
  const watchers: Heard[] = await Promise.all(Array.from({ length: 50 }, () => hearEvents(address, token)))
  const before = (await read(environmentId)).length
  await until(() => watchers.every(({ all }) => all.length === before), { what: 'all to begin' })
  let reads = 0
  const original = database.query.bind(database)
  database.query = (text, values) => {
    if (text.includes('c.id > $3')) reads += 1
    return original(text, values)
  }
  const [deployment] = await original<{ id: string }>('select id from deployment where environment_id = $1', [
    environmentId,
  ])
  const write = async (n: number): Promise<void> => {
    const log = createDeploymentLog(database, systemClock, api.parts.log, deployment!.id, null)
    log.line('run', `line ${n}`)
    await log.flush()
  }
  // Awake all the time: a line that becomes visible after a later one would be missed.
  const writing = Promise.all(Array.from({ length: 60 }, (_, n) => write(n)))
  for (let n = 0; n < 20; n += 1) await wake(environmentId)
  await writing
  await wake(environmentId)
  await until(() => watchers.every(({ all }) => all.length === before + 60), { what: 'all lines' })
  database.query = original
  assert.ok(reads < 50, `${reads} reads`)
  const expected = await read(environmentId)
  for (const watcher of watchers) {
    assert.deepEqual(watcher.all, expected)
    watcher.close()
  }
})

test('what is still being written is not passed over by what is written after it', async () => {
  const place = await newService()
  const { environmentId, applicationId } = place
  await deploy(place)
  const events = await hearEvents(`${url}/environment/${environmentId}/logs/stream`, token)
  await equals(() => events.all, environmentId)
  const before = events.all.length
  const [deployment] = await database.query<{ id: string }>('select id from deployment where environment_id = $1', [
    environmentId,
  ])
  const [written, committing] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const first = database.transaction(async (tx) => {
    const line = { at: '2026-01-01T00:00:00Z', text: 'first', level: 'info' as const }
    await writeRunLines(tx, { deploymentId: String(deployment!.id), serviceId: applicationId, runId: null }, [[line]])
    written.resolve()
    await committing.promise
  })
  await written.promise
  const log = createDeploymentLog(database, systemClock, api.parts.log, deployment!.id, null)
  log.line('run', 'second')
  const second = log.flush()
  const isWaiting = `select 1 from pg_locks where locktype = 'advisory' and not granted
    and database = (select oid from pg_database where datname = current_database())`
  await until(
    async () => {
      await wake(environmentId)
      return events.all.length > before || (await database.query(isWaiting)).length > 0
    },
    { what: 'the second to wait for its turn' },
  )
  committing.resolve()
  await Promise.all([first, second])
  await wake(environmentId)
  await until(() => events.all.length === before + 2, { what: 'both' })
  const texts = events.all.slice(before).map(({ message }) => message.safe_message)
  assert.deepEqual(texts, ['first', 'second'])
  events.close()
})
