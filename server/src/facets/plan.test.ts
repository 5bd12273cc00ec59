import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import { newContainer } from '../../test/cases/container.ts'
import { databaseBody } from '../../test/cases/database.ts'
import { lifecycleBody } from '../../test/cases/job.ts'
import { type Json, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { newScene } from '../../test/support/scene.ts'
import { until } from '../../test/support/until.ts'
import { describe } from '../api/operations/openapi.ts'
import { operations } from '../resources/index.ts'

const api = await startApi()
const { call } = api
const scene = newScene(api)

const plan = async (path: string, body?: unknown, method = 'POST'): Promise<Json> => {
  const answer = await call(method, `${path}?dry_run=true`, body)
  assert.equal(answer.status, 200, JSON.stringify(answer.body))
  return answer.body
}

const servicesOf = (answer: Json): Json[] => answer.stages.flatMap(({ services }: Json) => services)
const plannedFor = (answer: Json, id: string): Json => servicesOf(answer).find((each) => each.id === id)

const deploy = async (environmentId: string, path = `/environment/${environmentId}`, body?: unknown): Promise<void> => {
  const answer = await call('POST', `${path}/deploy`, body)
  assert.equal(answer.status, 202, JSON.stringify(answer.body))
  await scene.settled(environmentId)
}

/** The state of a service that a deployment can change: its instances, and their release. */
const standing = async (id: string): Promise<unknown> => {
  const [row] = await api.database.query<{ release: string }>(
    'select current_release_id as release from service_state where service_id = $1',
    [id],
  )
  return [row!.release, (await api.runtime.instancesOf(id)).map(({ id: instance }) => instance)]
}

const variable = (key: string, value: string, isSecret = false) => ({
  key,
  value,
  ...(isSecret ? { is_secret: true } : {}),
})

interface Change {
  what: string
  make(ids: { application: string; container: string }): Promise<unknown>
  changed: 'application' | 'container' | null
  effect: string
  shown(changes: Json): unknown
  expected: unknown
}

const edit = async (path: string, body: object): Promise<void> =>
  assert.equal((await call('PUT', path, body)).status, 200)
const post = async (path: string, body: object): Promise<void> => void (await scene.post(path, body))

const changes: Change[] = [
  { what: 'nothing', make: async () => {}, changed: null, effect: 'UNTOUCHED', shown: () => null, expected: null },
  {
    what: 'the tag of an image',
    make: ({ container }) => edit(`/container/${container}`, { tag: '2.0' }),
    changed: 'container',
    effect: 'ROLL_OUT',
    shown: ({ image }) => image,
    expected: { from: 'fake/serve:1.0', to: 'fake/serve:2.0' },
  },
  {
    what: 'a variable',
    make: ({ application }) => post(`/application/${application}/environmentVariable`, variable('COLOUR', 'blue')),
    changed: 'application',
    effect: 'ROLL_OUT',
    shown: ({ variables }) => variables,
    expected: { added: ['COLOUR'], changed: [], removed: [] },
  },
  {
    what: 'a secret',
    make: ({ container }) => post(`/container/${container}/secret`, variable('KEY', 'plan-canary-1')),
    changed: 'container',
    effect: 'ROLL_OUT',
    shown: ({ variables }) => variables,
    expected: { added: ['KEY'], changed: [], removed: [] },
  },
  {
    what: 'the value of a secret',
    make: ({ container }) => post(`/container/${container}/secret`, variable('KEY', 'plan-canary-2')),
    changed: 'container',
    effect: 'ROLL_OUT',
    shown: ({ variables }) => variables,
    expected: { added: [], changed: ['KEY'], removed: [] },
  },
  {
    what: 'a port',
    make: ({ container }) => edit(`/container/${container}`, { ports: [{ internal_port: 4000 }] }),
    changed: 'container',
    effect: 'ROLL_OUT',
    shown: ({ configuration }) => configuration.map(({ field }: Json) => field),
    expected: ['/ports'],
  },
  {
    what: 'the processor',
    make: ({ application }) => edit(`/application/${application}`, { cpu: 700 }),
    changed: 'application',
    effect: 'ROLL_OUT',
    shown: ({ configuration }) => configuration,
    expected: [{ field: '/cpu', from: 500, to: 700 }],
  },
  {
    what: 'the commit of the branch',
    make: async () => {
      api.source.head = 'b'.repeat(40)
    },
    changed: 'application',
    effect: 'BUILD',
    shown: ({ commit }) => commit,
    expected: { from: 'a'.repeat(40), to: 'b'.repeat(40) },
  },
  {
    what: 'the branch',
    make: ({ application }) =>
      edit(`/application/${application}`, {
        git_repository: { url: 'https://github.com/example/shop.git', branch: 'next' },
      }),
    changed: 'application',
    effect: 'ROLL_OUT',
    shown: ({ configuration }) => configuration,
    expected: [{ field: '/git_repository/branch', from: 'main', to: 'next' }],
  },
]

test('a plan of a whole environment names exactly what a deploy then changes, whatever has changed', async () => {
  const { environmentId } = await newPlace(api)
  const path = `/environment/${environmentId}`
  const { id: application } = await newApplication(api, environmentId)
  const { id: container } = await newContainer(scene, environmentId)
  const ids = { application, container }
  const first = await plan(`${path}/deploy`)
  assert.deepEqual(
    [plannedFor(first, application).effect, plannedFor(first, container).effect, first.expected_duration_sec],
    ['BUILD', 'ROLL_OUT', null],
  )
  await deploy(environmentId)
  for (const { what, make, changed, effect, shown, expected } of changes) {
    await make(ids)
    const answer = await plan(`${path}/deploy`)
    assert.doesNotMatch(JSON.stringify(answer), /canary|blue/, what)
    assert.equal(answer.downtime, false, what)
    for (const kind of ['application', 'container'] as const) {
      const { effect: told, reason } = plannedFor(answer, ids[kind])
      assert.equal(told, kind === changed ? effect : 'UNTOUCHED', `${what} of ${kind}: ${reason}`)
    }
    if (changed !== null) assert.deepEqual(shown(plannedFor(answer, ids[changed]).changes), expected, what)
    const before = { application: await standing(application), container: await standing(container) }
    await deploy(environmentId)
    for (const kind of ['application', 'container'] as const) {
      const isSame = isDeepStrictEqual(await standing(ids[kind]), before[kind])
      assert.equal(isSame, kind !== changed, `${what}: ${kind}`)
    }
  }
  assert.notEqual((await plan(`${path}/deploy`)).expected_duration_sec, null)
  const lines = (await call('GET', `${path}/logs`)).body as Json[]
  assert.ok(lines.some((line) => line.message?.safe_message === 'No changes; skipping.'))
})

test('what is left alone is DEPLOYED and UP_TO_DATE, also after a deployment that failed', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newContainer(scene, environmentId)
  await deploy(environmentId)
  const before = await standing(id)
  await edit(`/container/${id}`, { tag: 'refuse', image_name: 'fake/refuse' })
  await deploy(environmentId)
  await edit(`/container/${id}`, { tag: '1.0', image_name: 'fake/serve' })
  assert.equal(plannedFor(await plan(`/environment/${environmentId}/deploy`), id).effect, 'UNTOUCHED')
  await deploy(environmentId)
  assert.deepEqual(await standing(id), before)
  const { body } = await call('GET', `/container/${id}/status`)
  assert.deepEqual([body.state, body.service_deployment_status], ['DEPLOYED', 'UP_TO_DATE'])
})

test('a named deploy of one service rolls out in any case; one that would interrupt it only if something changed', async () => {
  const { environmentId } = await newPlace(api)
  const { id: container } = await newContainer(scene, environmentId)
  const { id: database } = await scene.post(`/environment/${environmentId}/database`, databaseBody('data'))
  await deploy(environmentId)
  const before = await standing(database)
  const named = plannedFor(await plan(`/container/${container}/deploy`), container)
  assert.deepEqual([named.effect, named.downtime], ['ROLL_OUT', false])
  assert.equal(plannedFor(await plan(`/database/${database}/deploy`), database).effect, 'UNTOUCHED')
  await deploy(environmentId, `/database/${database}`)
  assert.deepEqual(await standing(database), before)
  await edit(`/database/${database}`, { memory: 300 })
  const answer = await plan(`/database/${database}/deploy`)
  assert.deepEqual([answer.downtime, plannedFor(answer, database).effect], [true, 'ROLL_OUT'])
  await deploy(environmentId, `/database/${database}`)
  assert.notDeepEqual(await standing(database), before)
})

test('a service that is stopped is not left alone', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newContainer(scene, environmentId)
  await deploy(environmentId)
  await call('POST', `/container/${id}/stop`)
  await scene.settled(environmentId)
  const { effect, reason } = plannedFor(await plan(`/environment/${environmentId}/deploy`), id)
  assert.deepEqual([effect, reason], ['ROLL_OUT', 'Currently stopped.'])
  await deploy(environmentId)
  assert.equal((await api.runtime.instancesOf(id)).length, 1)
})

test('a job that runs at a deploy runs at every one; one that runs by the clock is left alone', async () => {
  const { environmentId } = await newPlace(api)
  const schedule = { cronjob: { scheduled_at: '0 3 * * *', arguments: ['tick'] } }
  const life = await scene.post(`/environment/${environmentId}/job`, lifecycleBody({ name: 'life' }))
  const cron = await scene.post(`/environment/${environmentId}/job`, lifecycleBody({ name: 'cron', schedule }))
  await deploy(environmentId)
  const answer = await plan(`/environment/${environmentId}/deploy`)
  assert.deepEqual([plannedFor(answer, life.id).effect, plannedFor(answer, cron.id).effect], ['RUN', 'UNTOUCHED'])
  const before = await standing(cron.id)
  await deploy(environmentId)
  assert.deepEqual(await standing(cron.id), before)
})

test('every action can be planned, and a plan does nothing', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newContainer(scene, environmentId)
  const { id: chart } = await scene.post(`/environment/${environmentId}/helm`, {
    name: 'chart',
    source: { git_repository: { url: 'https://github.com/example/charts.git', branch: 'main' } },
    allow_cluster_wide_resources: false,
    values_override: {},
  })
  await deploy(environmentId)
  const counts = `select (select count(*) from deployment) as deployments, (select count(*) from event) as events`
  const before = await api.database.query(counts)
  const ids = { container_ids: [id] }
  const environment = `/environment/${environmentId}`
  const cases: [string, unknown, string, string, boolean][] = [
    [`/container/${id}/redeploy`, undefined, 'DEPLOY', 'ROLL_OUT', false],
    [`/container/${id}/restart-service`, undefined, 'RESTART', 'RESTART', false],
    [`/container/${id}/stop`, undefined, 'STOP', 'STOP', true],
    [`/container/${id}/uninstall`, undefined, 'UNINSTALL', 'DELETE', true],
    [`${environment}/redeploy`, undefined, 'DEPLOY', 'UNTOUCHED', false],
    [`${environment}/stop`, undefined, 'STOP', 'STOP', true],
    [`${environment}/uninstall`, undefined, 'UNINSTALL', 'DELETE', true],
    [`${environment}/service/deploy`, { containers: [{ id }] }, 'DEPLOY', 'ROLL_OUT', false],
    [`${environment}/service/restart-service`, ids, 'RESTART', 'RESTART', false],
    [`${environment}/service/stop`, ids, 'STOP', 'STOP', true],
    [`${environment}/service/uninstall`, ids, 'UNINSTALL', 'DELETE', true],
    [`${environment}/service/delete`, ids, 'DELETE', 'DELETE', true],
  ]
  for (const [path, body, action, effect, downtime] of cases) {
    const answer = await plan(path, body)
    const told = plannedFor(answer, id)
    assert.deepEqual([answer.action, told.effect, told.downtime], [action, effect, downtime], path)
  }
  for (const path of [`/container/${id}`, environment])
    assert.equal(plannedFor(await plan(path, undefined, 'DELETE'), id).effect, 'DELETE')
  const refused = plannedFor(await plan(`${environment}/deploy`), chart)
  assert.equal(refused.effect, 'REFUSED')
  assert.match(refused.reason, /Kubernetes/)
  assert.deepEqual(await api.database.query(counts), before)
})

test('a plan takes the scope of its action', async () => {
  const { environmentId } = await newPlace(api)
  const reader = api.as(await api.newToken(['Read']))
  assert.equal((await reader('POST', `/environment/${environmentId}/deploy?dry_run=true`)).status, 403)
  const deployer = api.as(await api.newToken(['Deploy']))
  assert.equal((await deployer('DELETE', `/environment/${environmentId}?dry_run=true`)).status, 403)
})

test('an unknown head of a branch is said, and a build assumed', async (t) => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  await deploy(environmentId)
  t.mock.method(api.parts.builder, 'head', async () => null)
  const { effect, reason, builds } = plannedFor(await plan(`/environment/${environmentId}/deploy`), id)
  assert.deepEqual([effect, builds], ['BUILD', true])
  assert.match(reason, /cannot be read/)
})

test('a service that is skipped in its stage is shown as skipped', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newContainer(scene, environmentId)
  await api.database.query('update service_state set is_skipped = true where service_id = $1', [id])
  assert.equal(plannedFor(await plan(`/environment/${environmentId}/deploy`), id).effect, 'SKIPPED')
  await until(async () => (await call('GET', `/container/${id}/status`)).body.state === 'READY', { what: 'its rest' })
})

test('the description of the API shows both answers of an action that can be planned', () => {
  const { paths } = describe(operations) as Json
  const answersOf = (path: string, method: string) =>
    Object.keys(paths[path][method].responses).filter((code) => code < '300')
  for (const path of [
    '/container/{containerId}/deploy',
    '/environment/{environmentId}/deploy',
    '/job/{jobId}/rollback',
  ])
    assert.deepEqual(answersOf(path, 'post'), ['200', '202'], path)
  assert.deepEqual(answersOf('/environment/{environmentId}', 'delete'), ['200', '204'])
  assert.deepEqual(answersOf('/environment/{environmentId}/service/stop', 'post'), ['200'])
  assert.ok(paths['/environment/{environmentId}/deploy'].post.parameters.some(({ name }: Json) => name === 'dry_run'))
})
