import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import {
  addService,
  ask,
  createTestEngine,
  createWorld,
  type TestEngine,
  type World,
} from '../../../test/support/engine.ts'
import { newWorld, settled } from '../../../test/support/engine-story.ts'
import { until } from '../../../test/support/until.ts'
import { ApiError, DeploymentError } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { OutboundRefused } from '../../lib/net/outbound.ts'
import type { ImageRequest } from '../../runtimes/images.ts'
import { repositoryOf } from '../credentials/registry-image.ts'
import type { DeploymentRequest } from '../deployments.ts'
import type { RegistryCredentials } from '../parts.ts'
import { isFinal } from '../status/states.ts'

const world: World = await createWorld(await testDatabase())
const main: TestEngine = createTestEngine(world)
await main.engine.start()
after(async () => {
  await main.engine.stop()
  await world.runtime.close()
})

const statusOf = async (id: string) => (await main.engine.statuses(world.database, [id]))[0]!

type Services = DeploymentRequest['services']

/** Makes a request, waits for its end, and returns the state of the first service. */
const run = async (action: DeploymentRequest['action'], services: Services, more: object = {}): Promise<string> => {
  const { deploymentId } = await ask(main, world, action, services, more)
  await until(
    async () => {
      const [row] = await world.database.query('select state from deployment where id = $1', [deploymentId])
      return !['QUEUED', 'RUNNING'].includes(String(row?.state))
    },
    { timeoutMs: 15_000, what: 'the end' },
  )
  const { state } = await statusOf(services[0]!.id)
  assert.ok(isFinal(state), state)
  return state
}

const refusal = async (work: Promise<unknown>): Promise<[number, string]> => {
  const error = await work.then(
    () => assert.fail('it was accepted'),
    (caught: unknown) => caught,
  )
  assert.ok(error instanceof ApiError, String(error))
  return [error.status, error.code]
}

const imageOf = async (id: string) => {
  const [row] = await world.database.query<{ image: string; source: object }>(
    'select r.image, r.source from service_state s join release r on r.id = s.current_release_id where s.service_id = $1',
    [id],
  )
  return row!
}

const setSpec = (id: string, spec: object) =>
  world.database.query('update node set spec = $2 where id = $1', [id, JSON.stringify(spec)])

test('an image has the host of its registry; the public one is written out', () => {
  const cases: [string | null, string, string][] = [
    [null, 'library/postgres', 'docker.io/library/postgres'],
    [null, 'postgres', 'docker.io/library/postgres'],
    ['https://docker.io', 'bitnami/redis', 'docker.io/bitnami/redis'],
    ['https://registry-1.docker.io/v2', 'nginx', 'docker.io/library/nginx'],
    ['https://ghcr.io', 'team/app', 'ghcr.io/team/app'],
    ['http://127.0.0.1:5000', 'app', '127.0.0.1:5000/app'],
  ]
  for (const [url, name, expected] of cases) assert.equal(repositoryOf(url, name), expected)
})

test('an image that this server built for an organization cannot be named as one of a registry', () => {
  assert.throws(() => repositoryOf(null, 'slipway/0190aa'), DeploymentError)
})

test('a deploy of an image pulls it and builds nothing; a tag that the deploy names wins', async () => {
  const id = await addService(world, { tag: '1.0' }, 'container')
  assert.equal(await run('DEPLOY', [{ id }]), 'DEPLOYED')
  assert.equal((await imageOf(id)).image, 'docker.io/fake/serve:1.0')
  assert.equal(await run('DEPLOY', [{ id, imageTag: '2.0' }]), 'DEPLOYED')
  const { image, source } = await imageOf(id)
  assert.equal(image, 'docker.io/fake/serve:2.0')
  assert.deepEqual(source, { registryId: null, name: 'fake/serve', tag: '2.0', configured: '1.0' })
  assert.deepEqual(world.builds, [])
  assert.equal(await run('DEPLOY', [{ id }]), 'DEPLOYED')
  assert.equal((await imageOf(id)).image, 'docker.io/fake/serve:1.0')
})

test('a public image that the organization has deployed will do for all its services; a redeploy stays at the one that runs, until the configuration names another', async (t) => {
  const digest = 'docker.io/fake/serve@sha256:1'
  const asked: (ImageRequest & { refresh: boolean })[] = []
  t.mock.method(world.runtime.images, 'hold', async (image: ImageRequest & { refresh: boolean }) => {
    asked.push(image)
    return digest
  })
  const id = await addService(world, { tag: '1.0' }, 'container')
  await run('DEPLOY', [{ id, imageTag: '1.5' }])
  await run('DEPLOY', [{ id, redeploy: true }])
  await run('RESTART', [{ id }])
  assert.equal((await imageOf(id)).image, digest)
  await setSpec(id, { tag: '2.5' })
  await run('DEPLOY', [{ id, redeploy: true }])
  const second = await addService(world, { tag: '1.5' }, 'container')
  await run('DEPLOY', [{ id: second }])
  assert.equal((await imageOf(second)).image, digest)
  // Images that another organization has pulled belong only to it.
  const other = await createWorld(world.database)
  const foreign = await addService(other, { tag: '1.5' }, 'container')
  await run('DEPLOY', [{ id: foreign }], other.ids)
  const { organizationId } = world.ids
  assert.deepEqual(
    asked.map(({ reference, refresh, ...of }) => [reference, refresh, of.organizationId]),
    [
      ['docker.io/fake/serve:1.5', true, organizationId],
      ['docker.io/fake/serve:2.5', true, organizationId],
      ['docker.io/fake/serve:1.5', true, other.ids.organizationId],
    ],
  )
  await other.runtime.close()
})

test('an image that cannot be pulled is a DEPLOYMENT_ERROR that names it; the former version keeps running', async () => {
  const id = await addService(world, {}, 'container')
  await run('DEPLOY', [{ id }])
  await setSpec(id, { image: 'fake/refuse' })
  assert.equal(await run('DEPLOY', [{ id }]), 'DEPLOYMENT_ERROR')
  assert.equal((await world.runtime.instancesOf(id)).length, 1)
  const [row] = await world.database.query<{ error: { code: string; message: string } }>(
    'select error from deployment_service where service_id = $1 and error is not null',
    [id],
  )
  assert.equal(row!.error.code, 'image_missing')
  assert.match(row!.error.message, /docker\.io\/fake\/refuse:1\.0/)
})

test('a registry is asked at each deploy; one that was deleted stops the next, and not a restart of what was pulled', async (t) => {
  const own = await newWorld()
  let registry: RegistryCredentials | null = { url: 'https://registry.example', username: null, password: null }
  const engine = createTestEngine(own, {}, { registryCredentials: async () => registry })
  await engine.engine.start()
  const { mock: pull } = t.mock.method(own.runtime.images, 'hold')
  const id = await addService(own, { registryId: newId() }, 'container')
  await ask(engine, own, 'DEPLOY', [{ id }])
  assert.equal(await settled(engine, own, id), 'DEPLOYED')
  assert.deepEqual(
    pull.calls.map(({ arguments: [image] }) => image.refresh),
    [true],
  )
  registry = null
  await ask(engine, own, 'RESTART', [{ id }])
  assert.equal(await settled(engine, own, id), 'RESTARTED')
  await ask(engine, own, 'DEPLOY', [{ id, redeploy: true }])
  assert.equal(await settled(engine, own, id), 'DEPLOYED')
  await ask(engine, own, 'DEPLOY', [{ id }])
  assert.equal(await settled(engine, own, id), 'DEPLOYMENT_ERROR')
  await engine.engine.stop()
})

test('an address that the policy forbids is not pulled from', async () => {
  const own = await newWorld()
  const engine = createTestEngine(
    own,
    {},
    {
      registryCredentials: async () => ({ url: 'http://169.254.169.254', username: null, password: null }),
      checkAddress: async () => {
        throw new OutboundRefused('it is reserved')
      },
    },
  )
  await engine.engine.start()
  const id = await addService(own, { registryId: newId() }, 'container')
  await ask(engine, own, 'DEPLOY', [{ id }])
  assert.equal(await settled(engine, own, id), 'DEPLOYMENT_ERROR')
  const [row] = await own.database.query<{ error: { code: string } }>('select error from deployment_service')
  assert.equal(row!.error.code, 'registry_refused')
  await engine.engine.stop()
})

test('a kind with an environment of its own gets that and no variable; its password is sealed in the release', async (t) => {
  const id = await addService(world, {}, 'database')
  const sealed = Buffer.from('own-password').toString('base64')
  await world.database.query(`update node set sealed = jsonb_build_object('password', $2::text) where id = $1`, [
    id,
    sealed,
  ])
  const applied: Record<string, string>[] = []
  const { apply } = world.runtime.instances
  t.mock.method(world.runtime.instances, 'apply', (...values: Parameters<typeof apply>) => {
    applied.push(values[0].env.reveal())
    return apply(...values)
  })
  assert.equal(await run('DEPLOY', [{ id }]), 'DEPLOYED')
  assert.deepEqual(applied, [{ WORD: 'own-password' }])
  assert.equal((await statusOf(id)).service_deployment_status, 'UP_TO_DATE')
})

test('an uninstall removes what runs and makes the service as new; it can be deployed again', async () => {
  const id = await addService(world, { volume: true }, 'container')
  await run('DEPLOY', [{ id }])
  assert.equal(await run('UNINSTALL', [{ id }]), 'READY')
  const owned = await world.runtime.owned()
  assert.equal([...owned.instances, ...owned.volumes].filter(({ serviceId }) => serviceId === id).length, 0)
  assert.deepEqual(world.routes.get(id), [])
  const status = await statusOf(id)
  assert.deepEqual(
    [status.service_deployment_status, status.status_details, status.running_state],
    ['NEVER_DEPLOYED', { action: 'UNKNOWN', status: 'NEVER', sub_action: 'NONE' }, 'STOPPED'],
  )
  assert.equal((await world.database.query('select 1 from route where service_id = $1', [id])).length, 1)
  const [told] = await world.database.query(
    `select state from deployment_service where service_id = $1 and action = 'UNINSTALL'`,
    [id],
  )
  assert.equal(told!.state, 'DELETED')
  assert.equal(await run('DEPLOY', [{ id }]), 'DEPLOYED')
})

test('a whole environment is uninstalled with its network, and stays', async () => {
  const other = await createWorld(world.database)
  const id = await addService(other, {}, 'container')
  const { ids } = other
  await run('DEPLOY', [{ id }], ids)
  assert.ok((await world.runtime.owned()).environments.includes(ids.environmentId))
  assert.equal(await run('UNINSTALL', [{ id }], { ...ids, wholeEnvironment: true }), 'READY')
  assert.ok(!(await world.runtime.owned()).environments.includes(ids.environmentId))
  assert.equal((await world.database.query('select 1 from node where id = $1', [ids.environmentId])).length, 1)
  await other.runtime.close()
})

test('a service that cannot be deployed is refused with its name, and left out of a whole environment', async () => {
  const other = await createWorld(world.database)
  const { ids } = other
  const [able, unable] = [await addService(other, {}, 'container'), await addService(other, {}, 'helm')]
  const deploy = (services: Services, whole: boolean) =>
    ask(main, world, 'DEPLOY', services, { ...ids, wholeEnvironment: whole })
  assert.deepEqual(await refusal(deploy([{ id: unable }], false)), [400, 'not_deployable'])
  assert.deepEqual(await refusal(deploy([{ id: able }, { id: unable }], false)), [400, 'not_deployable'])
  assert.deepEqual(await refusal(deploy([{ id: unable }], true)), [400, 'not_deployable'])
  assert.equal(await run('DEPLOY', [{ id: able }, { id: unable }], { ...ids, wholeEnvironment: true }), 'DEPLOYED')
  assert.equal((await statusOf(unable)).state, 'READY')
  assert.equal(await run('STOP', [{ id: unable }], ids), 'STOPPED')
  assert.equal(await run('UNINSTALL', [{ id: unable }], ids), 'READY')
  await ask(main, world, 'DELETE', [{ id: unable }], ids)
  await until(async () => (await statusOf(unable)) === undefined, { what: 'the end of it' })
  await other.runtime.close()
})

test('nothing is deployed to a cluster that is not this machine, and what is there can be ended', async () => {
  const clusterId = newId()
  await world.database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name) values ($1, $2, 'cluster', $2, 'cluster', 'far')`,
    [clusterId, world.ids.organizationId],
  )
  await world.database.query(`update node set spec = jsonb_build_object('cluster_id', $2::text) where id = $1`, [
    world.ids.environmentId,
    clusterId,
  ])
  const elsewhere = createTestEngine(world)
  const id = await addService(world, {}, 'container')
  assert.deepEqual(await refusal(ask(elsewhere, world, 'DEPLOY', [{ id }])), [400, 'cluster_not_deployable'])
  await ask(elsewhere, world, 'STOP', [{ id }])
  await until(async () => (await statusOf(id)).state === 'STOPPED', { what: 'the stop' })
})
