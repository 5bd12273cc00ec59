import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newContainer } from '../../test/cases/container.ts'
import { databaseBody } from '../../test/cases/database.ts'
import { type Json, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { newScene } from '../../test/support/scene.ts'
import { newId } from '../lib/ids.ts'

const api = await startApi()
const { call } = api
const scene = newScene(api)

const deploy = async (environmentId: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call('POST', `${path}/deploy`, body)
  assert.equal(answer.status, 202, JSON.stringify(answer.body))
  await scene.settled(environmentId)
  return answer.body
}

const rollBack = async (environmentId: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call('POST', `${path}/rollback`, body)
  assert.equal(answer.status, 202, JSON.stringify(answer.body))
  await scene.settled(environmentId)
  return answer.body
}

const releasesOf = async (path: string): Promise<Json[]> => (await call('GET', `${path}/release`)).body.results

const statusOf = async (path: string): Promise<unknown[]> => {
  const { body } = await call('GET', `${path}/status`, undefined, { 'x-state-vocabulary': 'deployment' })
  return [body.state, body.service_deployment_status]
}

/** An application at its second version: another commit, another variable, more memory. */
const atSecond = async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  const path = `/application/${id}`
  await call('POST', `${path}/environmentVariable`, { key: 'COLOUR', value: 'blue' })
  api.source.head = '1'.repeat(40)
  await deploy(environmentId, path)
  await call('POST', `${path}/environmentVariable`, { key: 'COLOUR', value: 'green' })
  await call('PUT', path, { memory: 300 })
  api.source.head = '2'.repeat(40)
  await deploy(environmentId, path)
  return { environmentId, id, path }
}

const steps = (id: string) =>
  api.database.query<{ name: string }>(
    `select p.name from deployment_step p join deployment d on d.id = p.deployment_id
     where p.service_id = $1 and d.seq = (select max(seq) from deployment where environment_id = d.environment_id)
     order by p.started_at`,
    [id],
  )

test('every deployment leaves a release, and a page of them is read newest first', async () => {
  const { path, environmentId } = await atSecond()
  const found = await releasesOf(path)
  assert.deepEqual(
    found.map((each) => [each.commit.git_commit_id[0], each.is_current, each.was_successful, each.execution_id]),
    [
      ['2', true, true, `${environmentId}-2`],
      ['1', false, true, `${environmentId}-1`],
    ],
  )
  const page = (await call('GET', `${path}/release?page=2&pageSize=1`)).body
  assert.deepEqual([page.page, page.page_size, page.results[0].id], [2, 1, found[1]!.id])
})

test('a rollback runs the version before with its commit, configuration and variables, and builds nothing', async () => {
  const { path, id, environmentId } = await atSecond()
  const [, first] = await releasesOf(path)
  const planned = await call('POST', `${path}/rollback?dry_run=true`)
  assert.equal(planned.status, 200)
  const [told] = planned.body.stages[0].services
  assert.deepEqual([told.effect, told.builds, told.downtime], ['ROLL_OUT', false, false])
  assert.deepEqual(told.changes, {
    image: null,
    commit: { from: '2'.repeat(40), to: '1'.repeat(40) },
    configuration: [{ field: '/memory', from: 300, to: 256 }],
    variables: { added: [], changed: ['COLOUR'], removed: [] },
  })
  const accepted = await rollBack(environmentId, path)
  assert.deepEqual([accepted.state, accepted.application_id], ['DEPLOYMENT_QUEUED', id])
  const [newest, second] = await releasesOf(path)
  assert.deepEqual(
    [newest!.is_current, newest!.commit.git_commit_id, newest!.image, newest!.deployment_request_id],
    [true, '1'.repeat(40), first!.image, accepted.deployment_request_id],
  )
  assert.deepEqual([second!.is_current, second!.was_successful], [false, true])
  assert.deepEqual(await statusOf(path), ['DEPLOYED', 'OUT_OF_DATE'])
  const [instance] = await api.runtime.instancesOf(id)
  assert.equal(instance!.revision, accepted.deployment_request_id)
  const names = (await steps(id)).map(({ name }) => name)
  assert.ok(!names.includes('source') && !names.includes('image'), names.join())
  const [row] = await api.database.query<{ memory: string }>(
    `select r.workload ->> 'memoryMb' as memory from service_state s join release r on r.id = s.current_release_id
     where s.service_id = $1`,
    [id],
  )
  assert.equal(row!.memory, '256')
})

test('a release of another service is 404, one that never ran well or has lost its image 409 with the reason', async (t) => {
  const { path, environmentId } = await atSecond()
  const other = await newApplication(api, environmentId)
  await deploy(environmentId, `/application/${other.id}`)
  const [theirs] = await releasesOf(`/application/${other.id}`)
  for (const release_id of [theirs!.id, newId()])
    assert.equal((await call('POST', `${path}/rollback`, { release_id })).status, 404)
  const alone = await call('POST', `/application/${other.id}/rollback`)
  assert.deepEqual([alone.status, alone.body.code], [409, 'release_not_usable'])
  api.source.image = 'fake/crash'
  api.source.head = '3'.repeat(40)
  await deploy(environmentId, path)
  api.source.image = 'fake/serve'
  const [failed, current, first] = await releasesOf(path)
  assert.deepEqual([failed!.was_successful, current!.is_current], [false, true])
  for (const query of ['', '?dry_run=true']) {
    const answer = await call('POST', `${path}/rollback${query}`, { release_id: failed!.id })
    assert.deepEqual([answer.status, answer.body.code], [409, 'release_not_usable'])
    assert.match(answer.body.message, /never run/)
  }
  t.mock.method(api.runtime.images, 'isHeld', async () => false)
  const gone = await call('POST', `${path}/rollback`, { release_id: first!.id })
  assert.deepEqual([gone.status, gone.body.code], [409, 'release_not_usable'])
  assert.match(gone.body.message, /no longer exists on the engine/)
})

test('releases left by a restart or an equal deploy are not a way back: the version before is', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newContainer(scene, environmentId)
  const path = `/container/${id}`
  await deploy(environmentId, path)
  await deploy(environmentId, path, { image_tag: '2.0' })
  await call('POST', `${path}/restart-service`)
  await scene.settled(environmentId)
  await rollBack(environmentId, path)
  const [newest] = await releasesOf(path)
  assert.deepEqual([newest!.image_name, newest!.tag, newest!.commit], ['fake/serve', '1.0', null])
})

test('a database does not go back to a version that cannot read its files', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await scene.post(`/environment/${environmentId}/database`, databaseBody('data', { version: '16.3' }))
  const path = `/database/${id}`
  await deploy(environmentId, path)
  assert.equal((await call('PUT', path, { version: '16.4' })).status, 200)
  await deploy(environmentId, path)
  const answer = await call('POST', `${path}/rollback`)
  assert.deepEqual([answer.status, answer.body.code], [409, 'release_not_usable'])
  assert.match(answer.body.message, /older/)
})

test('an environment goes back to how an execution left it, the services that differ only', async () => {
  const { environmentId } = await newPlace(api)
  const { id: changed } = await newContainer(scene, environmentId)
  const { id: same } = await newContainer(scene, environmentId)
  const path = `/environment/${environmentId}`
  const nothing = await call('POST', `${path}/rollback`)
  assert.deepEqual([nothing.status, nothing.body.code], [409, 'nothing_to_roll_back'])
  await deploy(environmentId, path)
  await call('PUT', `/container/${changed}`, { tag: '2.0' })
  await deploy(environmentId, path)
  await rollBack(environmentId, path)
  assert.equal((await releasesOf(`/container/${changed}`))[0]!.tag, '1.0')
  assert.equal((await releasesOf(`/container/${same}`)).length, 1)
  const again = await call('POST', `${path}/rollback`, { execution_id: `${environmentId}-1` })
  assert.deepEqual([again.status, again.body.code], [409, 'nothing_to_roll_back'])
  const forth = await rollBack(environmentId, path, { execution_id: `${environmentId}-2` })
  assert.equal(forth.state, 'DEPLOYMENT_QUEUED')
  assert.equal((await releasesOf(`/container/${changed}`))[0]!.tag, '2.0')
  for (const execution_id of [`${environmentId}-99`, `${newId()}-1`])
    assert.equal((await call('POST', `${path}/rollback`, { execution_id })).status, 404)
  assert.equal((await call('POST', `${path}/rollback`, { execution_id: 'nonsense' })).status, 400)
})

test('a version from before a port was changed is reached at the port it has', async () => {
  const { environmentId } = await newPlace(api)
  const port = (internal_port: number) => ({ ports: [{ internal_port, publicly_accessible: true }] })
  const { id } = await newContainer(scene, environmentId, port(3000))
  const path = `/container/${id}`
  const reached = async (): Promise<number[]> => {
    const routes = (await api.router.routes()).filter(({ serviceId }) => serviceId === id)
    // The default port has an address of its own beside the service's.
    return [...new Set(routes.flatMap(({ targets }) => targets.map((target) => target.port)))]
  }
  const listening = async () =>
    Object.values((await api.runtime.instancesOf(id))[0]!.endpoints).map((each) => each.port)
  await deploy(environmentId, path)
  await call('PUT', path, port(4000))
  await deploy(environmentId, path)
  await rollBack(environmentId, path)
  assert.deepEqual([await reached(), (await api.runtime.instancesOf(id)).length], [await listening(), 1])
})
