/**
 * Services that sleep and scale, with the whole product and a real router: the programs are simulated, their ports are
 * real.
 */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createRouter } from '../src/router/control/client.ts'
import { newRegistry } from './cases/container.ts'
import { applicationBody, type Json, newApplication, newPlace, startApi } from './support/api.ts'
import { ask, quiet } from './support/router/parts.ts'
import { until } from './support/until.ts'

const dataDir = mkdtempSync(join(tmpdir(), 'router-'))
const router = createRouter({ dataDir, host: '127.0.0.1', port: 0, log: quiet })
await router.start()
const port = Number(new URL(router.url('x')).port)

const sleepAfterMs = 700
const api = await startApi({ router, scaleTimes: { sleepAfterMs, upMs: 300, downMs: 600 } })
const { call, runtime, database } = api
const registryId = await newRegistry(api)

after(async () => {
  await router.stop()
  rmSync(dataDir, { recursive: true, force: true })
})

/** How often an instance of each service was started. */
const starts = new Map<string, number>()
const watching = new AbortController()
after(() => watching.abort())
const watched = (async () => {
  for await (const { serviceId, kind } of runtime.watch(watching.signal))
    if (kind === 'started') starts.set(serviceId, (starts.get(serviceId) ?? 0) + 1)
})()
watched.catch(() => {})

const ok = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${JSON.stringify(answer.body)}`)
  return answer.body
}

interface Made {
  id: string
  path: string
  host: string
  environmentId: string
}

const hostOf = async (id: string): Promise<string> => {
  const [row] = await database.query<{ host: string }>(
    'select host from route where service_id = $1 order by is_default desc, host limit 1',
    [id],
  )
  return row!.host
}

const make = async (more: Record<string, unknown> = {}, tag = 'serve', place?: string): Promise<Made> => {
  const environmentId = place ?? (await newPlace(api)).environmentId
  const { id } = await ok('POST', `/environment/${environmentId}/container`, {
    ...applicationBody(`sleeper ${starts.size} ${Math.random().toString(36).slice(2)}`),
    registry_id: registryId,
    image_name: tag.includes(':') ? `fake/${tag.split(':')[0]}` : `fake/${tag}`,
    tag: tag.split(':')[1] ?? '1',
    min_running_instances: 0,
    ...more,
  })
  return { id, path: `/container/${id}`, host: await hostOf(id), environmentId }
}

const status = ({ path }: Made): Promise<Json> => ok('GET', `${path}/status`)

const shows = (made: Made, wanted: Record<string, unknown>, what: string): Promise<Json> =>
  until(
    async () => {
      const now = await status(made)
      const flat = { ...now, ...now.scaling }
      return Object.entries(wanted).every(([field, value]) => flat[field] === value) ? now : null
    },
    { what, timeoutMs: 30_000 },
  )

const act = async (made: Made, action: string, state: string): Promise<Json> => {
  await ok('POST', `${made.path}/${action}`, action === 'deploy' ? {} : undefined)
  return shows(made, { deployment_state: state }, state)
}

/** No instance is left, and requests wait from now on. */
const sleeps = async (made: Made): Promise<Json> => {
  const shown = await shows(made, { asleep: true, running_state: 'STOPPED' }, 'sleep')
  await until(async () => (await count(made)) === 0, { what: 'no instance' })
  return shown
}

const visit = (made: Made): Promise<{ status: number; body: string }> => ask(port, { host: made.host })

const count = async ({ id }: Made): Promise<number> => (await runtime.instancesOf(id)).length

test('an idle service sleeps, says so, and the next requests wake it with one start', async () => {
  const made = await make()
  const deployed = await act(made, 'deploy', 'DEPLOYED')
  assert.deepEqual(deployed.scaling, { running_instances: 1, minimum: 0, maximum: 1, asleep: false })
  const asleep = await sleeps(made)
  assert.deepEqual(
    [asleep.deployment_state, asleep.scaling.running_instances, asleep.error],
    ['DEPLOYED', 0, undefined],
  )
  const before = starts.get(made.id)!
  const answers = await Promise.all(Array.from({ length: 200 }, () => visit(made)))
  assert.deepEqual([...new Set(answers.map((answer) => answer.status))], [200])
  assert.equal(starts.get(made.id), before + 1)
  const awake = await shows(made, { asleep: false, running_state: 'RUNNING' }, 'being awake')
  assert.equal(awake.service_deployment_status, 'UP_TO_DATE')
  await sleeps(made)
})

test('a restarted server leaves sleeping services asleep, and wakes those that got requests meanwhile', async () => {
  const made = await make()
  await act(made, 'deploy', 'DEPLOYED')
  await sleeps(made)
  await api.engine.stop()
  const answer = visit(made)
  const second = api.another()
  await second.start()
  try {
    assert.equal((await answer).status, 200)
    await sleeps(made)
    // A look of the reconciler at everything changes nothing.
    await database.query(`select pg_notify('slipway_routes', $1)`, [made.id])
    await second.stop()
    const again = api.another()
    await again.start()
    assert.equal(await count(made), 0)
    assert.equal((await status(made)).scaling.asleep, true)
    await again.stop()
  } finally {
    await second.stop()
    await api.engine.start()
  }
})

test('only one of two servers wakes a requested service, whichever learns of the request', async () => {
  const second = api.another()
  await second.start()
  try {
    const made = await make()
    await act(made, 'deploy', 'DEPLOYED')
    for (let turn = 0; turn < 3; turn += 1) {
      await sleeps(made)
      const before = starts.get(made.id)!
      const answers = await Promise.all(Array.from({ length: 20 }, () => visit(made)))
      assert.deepEqual([...new Set(answers.map((answer) => answer.status))], [200])
      assert.equal(starts.get(made.id), before + 1)
    }
  } finally {
    await second.stop()
  }
})

test('waiting requests get an answer when their service is stopped or deleted meanwhile', async () => {
  const place = await newPlace(api)
  // Its instances take longer than the test to be ready, so the requests still wait.
  const made = await make({}, 'slow:1500', place.environmentId)
  await act(made, 'deploy', 'DEPLOYED')
  const ends: [string, string, number][] = [
    ['POST', '/stop', 503],
    ['DELETE', '', 404],
  ]
  for (const [method, action, expected] of ends) {
    await sleeps(made)
    const waiting = Array.from({ length: 50 }, () => visit(made))
    await shows(made, { running_state: 'STARTING' }, 'the start')
    await ok(method, `${made.path}${action}`)
    const answers = await Promise.all(waiting)
    assert.deepEqual([...new Set(answers.map((answer) => answer.status))], [expected])
    if (action === '/stop') {
      await shows(made, { deployment_state: 'STOPPED' }, 'the stop')
      assert.equal((await visit(made)).status, 503)
      assert.equal((await status(made)).scaling, undefined)
      await act(made, 'deploy', 'DEPLOYED')
    }
  }
})

test('a service that cannot be woken says why, also to waiting requests, and is retried', async () => {
  const made = await make()
  await act(made, 'deploy', 'DEPLOYED')
  await sleeps(made)
  const broken = { code: 'crash' }
  await database.query(`update release set image = 'fake/crash:3' where service_id = $1`, [made.id])
  const answer = await visit(made)
  assert.deepEqual([answer.status, JSON.parse(answer.body).message.includes('could not be started')], [503, true])
  const failed = await shows(made, { running_state: 'ERROR' }, 'the failure')
  assert.deepEqual([failed.error.code, failed.scaling.asleep], ['crash_loop', true], broken.code)
  await until(async () => (await count(made)) === 0, { what: 'nothing is left of it' })
  // It is not retried at once; a deployment fixes it.
  assert.equal((await visit(made)).status, 503)
  await act(made, 'deploy', 'DEPLOYED')
  assert.equal((await visit(made)).status, 200)
})

test('a deployment wakes its service, leaves unchanged services asleep, and ends a wake at once', async () => {
  const place = await newPlace(api)
  const made = await make({}, 'slow:300', place.environmentId)
  await act(made, 'deploy', 'DEPLOYED')
  await sleeps(made)
  // Requests wait while a deployment of the same service begins: whichever version is first answers all.
  const waiting = Array.from({ length: 30 }, () => visit(made))
  await ok('POST', `${made.path}/deploy`, {})
  const answers = await Promise.all(waiting)
  assert.deepEqual([...new Set(answers.map((answer) => answer.status))], [200])
  await shows(made, { deployment_state: 'DEPLOYED' }, 'the deployment')
  await until(async () => (await count(made)) <= 1, { what: 'one version' })
  await sleeps(made)
  const before = starts.get(made.id)!
  await ok('POST', `/environment/${place.environmentId}/deploy`)
  await until(
    async () =>
      (
        await database.query(`select from deployment where environment_id = $1 and state <> 'SUCCEEDED'`, [
          place.environmentId,
        ])
      ).length === 0,
    { what: 'the deployment of the environment', timeoutMs: 30_000 },
  )
  assert.equal(starts.get(made.id), before)
  assert.equal((await status(made)).scaling.asleep, true)
  await act(made, 'deploy', 'DEPLOYED')
  assert.equal(starts.get(made.id), before + 1)
})

test('a service that requests cannot wake never sleeps, and says why; with a maximum of 0 nothing runs', async () => {
  const web = { internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }
  const tcp = { internal_port: 8081, external_port: 31_999, protocol: 'TCP', publicly_accessible: true, name: 'tcp' }
  for (const ports of [[web, tcp], [{ ...web, publicly_accessible: false }]]) {
    const made = await make({ ports }).catch(() => null)
    if (made === null) continue
    const { scaling } = await act(made, 'deploy', 'DEPLOYED')
    assert.equal(scaling.asleep, false)
    assert.match(scaling.message, /One instance always runs/)
    assert.equal(await count(made), 1)
  }
  const none = await make({ max_running_instances: 0 })
  assert.equal((await act(none, 'deploy', 'DEPLOYED')).scaling, undefined)
  assert.deepEqual([await count(none), (await visit(none)).status], [0, 503])
})

test('instances are added and removed by CPU usage between minimum and maximum, none is restarted, and a deployment keeps their number', async () => {
  const made = await make({ min_running_instances: 1, max_running_instances: 3, cpu: 500 })
  await act(made, 'deploy', 'DEPLOYED')
  const [first] = await runtime.instancesOf(made.id)
  runtime.burn(made.id, 1500)
  await shows(made, { running_instances: 3 }, 'three instances')
  const ids = (await runtime.instancesOf(made.id)).map(({ id }) => id)
  assert.ok(ids.length === 3 && ids.includes(first!.id))
  // One that is replaced is replaced by as many.
  await act(made, 'deploy', 'DEPLOYED')
  await until(async () => (await count(made)) === 3, { what: 'three of the new version' })
  const after = await runtime.instancesOf(made.id)
  assert.ok(after.every(({ id }) => !ids.includes(id)))
  runtime.burn(made.id, 0)
  await shows(made, { running_instances: 1 }, 'one instance')
  await until(async () => (await count(made)) === 1, { what: 'one is left' })
  assert.equal((await runtime.instancesOf(made.id))[0]!.id, after.find(({ index }) => index === 0)!.id)
  const { events } = await ok('GET', `/organization/${api.organizationId}/events?targetType=CONTAINER&eventType=UPDATE`)
  const own = events.filter(({ target_id: id, change }: Json) => id === made.id && /running_instances/.test(change))
  const steps: { from: number; to: number }[] = own.map(({ change }: Json) => JSON.parse(change).running_instances)
  const way = steps.reverse().map(({ from, to }) => `${from} ${to}`)
  assert.deepEqual(way, ['1 2', '2 3', '3 2', '2 1'])
})

test('the target CPU usage is set by the owner, and acts with the next deployment', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId, { max_running_instances: 2, cpu: 500 })
  const made = { id, path: `/application/${id}`, host: '', environmentId }
  await ok('PUT', `${made.path}/advancedSettings`, { 'hpa.cpu.average_utilization_percent': 90 })
  await act(made, 'deploy', 'DEPLOYED')
  runtime.burn(id, 400)
  // Eighty percent is enough for the default target, but not for this one.
  const other = await make({ min_running_instances: 1, max_running_instances: 2, cpu: 500 })
  await act(other, 'deploy', 'DEPLOYED')
  runtime.burn(other.id, 400)
  await shows(other, { running_instances: 2 }, 'two instances')
  assert.equal((await status(made)).scaling.running_instances, 1)
})
