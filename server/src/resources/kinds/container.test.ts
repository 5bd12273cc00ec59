import assert from 'node:assert/strict'
import { test } from 'node:test'
import { containerBody, newRegistry } from '../../../test/cases/container.ts'
import { cronBody } from '../../../test/cases/job.ts'
import { applicationBody, type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { container } from './container.ts'

const api = await startApi()
const { call } = api
const registryId = await newRegistry(api)

const create = async (more: Record<string, unknown>, environmentId?: string) => {
  const place = environmentId ?? (await newPlace(api)).environmentId
  return call('POST', `/environment/${place}/container`, containerBody(registryId, more))
}

/** The final state of a service. */
const atRest = async (path: string): Promise<string> => {
  let state = ''
  await until(
    async () => {
      state = (await call('GET', `${path}/status`)).body.state
      return /^(READY|DEPLOYED|RESTARTED|STOPPED|CANCELED|.*_ERROR)$/.test(state)
    },
    { what: 'the service to come to rest' },
  )
  return state
}

const kept = async (id: string): Promise<Record<string, unknown>> => {
  const [row] = await api.database.query<{ spec: Record<string, unknown> }>('select spec from node where id = $1', [id])
  return row!.spec
}

test('registry, image, tag and name are enough; the answer has the defaults and the registry', async () => {
  const { status, body } = await create({ name: 'small' })
  assert.equal(status, 201)
  assert.deepEqual(
    [body.cpu, body.memory, body.gpu, body.min_running_instances, body.max_running_instances, body.ports, body.storage],
    [500, 512, 0, 1, 1, [], []],
  )
  assert.deepEqual([body.auto_preview, body.auto_deploy, body.service_type], [false, false, 'CONTAINER'])
  assert.deepEqual([body.image_name, body.tag, body.registry_id], ['fake/serve', '1.0', registryId])
  const { id, kind, url } = body.registry
  assert.deepEqual([id, kind, url], [registryId, 'DOCKER_HUB', 'https://docker.io'])
})

test('every field that is sent is answered, and an edit keeps what it leaves out', async () => {
  const sent = {
    name: 'whole',
    description: 'all of it',
    cpu: 250,
    memory: 128,
    gpu: 0,
    ephemeral_storage_in_gib: 2,
    min_running_instances: 2,
    max_running_instances: 3,
    auto_preview: true,
    auto_deploy: true,
    arguments: ['--verbose'],
    entrypoint: 'serve',
    icon_uri: 'app://icon',
    healthchecks: { readiness_probe: { type: { http: { port: 8080, path: '/ok' } }, initial_delay_seconds: 1 } },
    ports: [{ internal_port: 8080, publicly_accessible: true, protocol: 'HTTP', name: 'web' }],
    storage: [{ type: 'FAST_SSD', size: 5, mount_point: '/data' }],
  }
  const made = await create(sent)
  assert.equal(made.status, 201, JSON.stringify(made.body))
  const { ports, storage, healthchecks, ...plain } = sent
  for (const [field, value] of Object.entries(plain)) assert.deepEqual(made.body[field], value, field)
  assert.equal(made.body.healthchecks.readiness_probe.failure_threshold, 9)
  assert.deepEqual([made.body.ports[0].external_port, made.body.storage[0].mount_point], [443, '/data'])
  const edited = await call('PUT', `/container/${made.body.id}`, { tag: '2.0', memory: 256 })
  assert.equal(edited.status, 200)
  const { tag, memory, updated_at, ...rest } = edited.body
  assert.deepEqual([tag, memory], ['2.0', 256])
  for (const [field, value] of Object.entries(rest)) assert.deepEqual(value, made.body[field], field)
})

test('the workload of a container is what its configuration says', async () => {
  const { body } = await create({ name: 'spec', entrypoint: 'sh -c', arguments: ['x'], ports: [{ internal_port: 80 }] })
  const spec = await kept(body.id)
  const workload = container.deployable.workload(spec)
  assert.deepEqual(
    [workload.entrypoint, workload.arguments, workload.ports[0]?.internalPort],
    [['sh', '-c'], ['x'], 80],
  )
  assert.deepEqual(container.deployable.source(spec), { from: 'image', registryId, name: 'fake/serve', tag: '1.0' })
})

test('a wrong field is refused by name', async () => {
  const cases: [Record<string, unknown>, string][] = [
    [{ image_name: 'UPPER/case' }, '/image_name'],
    [{ image_name: 'nginx:1.2' }, '/image_name'],
    [{ image_name: '../etc' }, '/image_name'],
    [{ image_name: '' }, '/image_name'],
    [{ tag: '' }, '/tag'],
    [{ tag: 'a b' }, '/tag'],
    [{ tag: 'x'.repeat(129) }, '/tag'],
    [{ registry_id: undefined }, '/registry_id'],
    [{ registry_id: api.clusterId }, '/registry_id'],
    [{ registry_id: 'nonsense' }, '/registry_id'],
    [{ cpu: 9 }, '/cpu'],
    [{ memory: 5 }, '/memory'],
    [{ min_running_instances: 2 }, '/min_running_instances'],
    [{ max_running_instances: -2 }, '/max_running_instances'],
    [{ gpu: 1 }, '/gpu'],
    [{ storage: [{ size: 1, mount_point: '/x' }] }, '/storage/0/size'],
    [{ ports: [{ internal_port: 70_000 }] }, '/ports/0/internal_port'],
    [{ autoscaling: { mode: 'KEDA' } }, '/autoscaling'],
  ]
  for (const [more, field] of cases) {
    const { status, body } = await create({ name: 'wrong', ...more })
    assert.deepEqual([status, body.details?.[0]?.field], [400, field], JSON.stringify(more))
  }
})

test('services of all kinds share the names of their environment', async () => {
  const { environmentId } = await newPlace(api)
  const environment = `/environment/${environmentId}`
  assert.equal((await create({ name: 'Shop' }, environmentId)).status, 201)
  const database = { name: 'SHOP', type: 'REDIS', version: '7', mode: 'CONTAINER' }
  assert.equal((await call('POST', `${environment}/application`, applicationBody('shop'))).status, 409)
  assert.equal((await call('POST', `${environment}/database`, database)).status, 409)
  assert.equal((await call('POST', `${environment}/job`, cronBody(registryId, { name: 'shoP' }))).status, 409)
  const { body } = await create({ name: 'other' }, environmentId)
  assert.equal((await call('PUT', `/container/${body.id}`, { name: 'SHOP' })).status, 409)
})

test('no service begins in an environment that is being deleted', async () => {
  const { environmentId } = await newPlace(api)
  await api.database.query(
    `insert into deployment (id, organization_id, environment_id, execution_number, action, whole_environment, origin,
       triggered_by, request_id, state)
     values (gen_random_uuid(), $1, $2, 1, 'DELETE', true, 'API', 'test', 'test', 'RUNNING')`,
    [api.organizationId, environmentId],
  )
  const refused = await create({ name: 'late' }, environmentId)
  assert.deepEqual([refused.status, refused.body.code], [409, 'deletion_in_progress'])
  await api.database.query('delete from deployment where environment_id = $1', [environmentId])
  assert.equal((await create({ name: 'late' }, environmentId)).status, 201)
})

test('a container is deployed at the tag named, and goes with its deletion', async () => {
  const { body } = await create({ name: 'whole life', ports: [{ internal_port: 80, publicly_accessible: true }] })
  const path = `/container/${body.id}`
  assert.equal((await call('GET', `${path}/status`)).body.state, 'READY')
  const accepted = await call('POST', `${path}/deploy`, { image_tag: '9.9' })
  assert.deepEqual([accepted.status, accepted.body.state, accepted.body.status], [202, 'DEPLOYMENT_QUEUED', 'QUEUED'])
  assert.equal(await atRest(path), 'DEPLOYED')
  const links = (await call('GET', `${path}/link`)).body.results
  assert.deepEqual(
    links.map((link: { is_default: boolean }) => link.is_default),
    [true, false],
    'the address of the service, and of its port',
  )
  const [entry] = (await call('GET', `${path}/deploymentHistoryV2`)).body.results
  assert.deepEqual([entry.status, entry.details.image_name, entry.details.tag], ['DEPLOYED', 'fake/serve', '9.9'])
  const [old] = (await call('GET', `${path}/deploymentHistory`)).body.results
  assert.deepEqual([old.status, old.image_name, old.tag], ['DEPLOYED', 'fake/serve', '9.9'])
  assert.equal((await call('POST', `${path}/stop`)).status, 202)
  assert.equal(await atRest(path), 'STOPPED')
  assert.equal((await call('DELETE', path)).status, 204)
  await until(async () => (await call('GET', path)).status === 404, { what: 'the end' })
})

test('a tag of the wrong form is not deployed', async () => {
  const { body } = await create({ name: 'tag form' })
  const answer = await call('POST', `/container/${body.id}/deploy`, { image_tag: 'a b' })
  assert.deepEqual([answer.status, answer.body.details[0].field], [400, '/image_tag'])
  assert.equal((await call('GET', `/container/${body.id}/status`)).body.state, 'READY')
})

test('a new tag is deployed to whatever follows the image, in all environments, and to nothing else', async () => {
  const image_name = 'team/followed'
  const follower = async (more: Record<string, unknown> = {}): Promise<Json> =>
    (await create({ name: 'follower', image_name, auto_deploy: true, ...more })).body
  const [first, second] = [await follower(), await follower()]
  const [fixed, other, same] = [
    await follower({ auto_deploy: false }),
    await follower({ image_name: 'team/other' }),
    await follower({ tag: '2.0' }),
  ]
  const path = `/organization/${api.organizationId}/container/deploy`
  const { status, body } = await call('POST', path, { image_name, tag: '2.0' })
  assert.equal(status, 202)
  assert.deepEqual(body.results.map(({ id }: Json) => id).sort(), [first.id, second.id].sort())
  assert.equal(body.id, body.results[0].id)
  const tagOf = async ({ id }: Json): Promise<string> => (await call('GET', `/container/${id}`)).body.tag
  assert.deepEqual(await Promise.all([first, second, fixed, other, same].map(tagOf)), [
    '2.0',
    '2.0',
    '1.0',
    '1.0',
    '2.0',
  ])
  const again = await call('POST', path, { image_name, tag: '2.0' })
  assert.deepEqual([again.status, again.body.results, again.body.id], [202, [], '00000000-0000-0000-0000-000000000000'])
})

test('the same notice sent several times at once deploys once', async () => {
  const image_name = 'team/eager'
  const { body } = await create({ name: 'eager', image_name, auto_deploy: true })
  const path = `/organization/${api.organizationId}/container/deploy`
  const answers = await Promise.all(Array.from({ length: 5 }, () => call('POST', path, { image_name, tag: '2.0' })))
  assert.deepEqual(
    answers.map(({ status }) => status),
    [202, 202, 202, 202, 202],
  )
  const deployed = answers.flatMap((answer) => answer.body.results.map(({ id }: Json) => id))
  assert.deepEqual(deployed, [body.id])
  assert.equal((await call('GET', `/container/${body.id}/deploymentHistoryV2`)).body.results.length, 1)
})

test('what is stopped takes the new tag and stays stopped; another organization touches nothing of ours', async () => {
  const image_name = 'team/stopped'
  const { body } = await create({ name: 'stopped', image_name, auto_deploy: true })
  await call('POST', `/container/${body.id}/stop`)
  await atRest(`/container/${body.id}`)
  const notice = { image_name, tag: '3.0' }
  const stranger = await api.newOrganization()
  const theirs = await api.as(stranger.token)('POST', `/organization/${stranger.id}/container/deploy`, notice)
  assert.deepEqual(theirs.body.results, [])
  assert.equal((await call('GET', `/container/${body.id}`)).body.tag, '1.0')
  const ours = await call('POST', `/organization/${api.organizationId}/container/deploy`, notice)
  assert.deepEqual(ours.body.results, [])
  assert.equal((await call('GET', `/container/${body.id}`)).body.tag, '3.0')
  assert.equal((await call('GET', `/container/${body.id}/status`)).body.state, 'STOPPED')
})
