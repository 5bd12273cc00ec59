import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { ensureBusybox } from '../../../test/busybox-image.ts'
import { engine } from '../../../test/docker.ts'
import { login, type Registry, registryIsMissing, startRegistry, untag } from '../../../test/registry.ts'
import { freePort } from '../../../test/slipway.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { Secret } from '../../lib/secret.ts'
import { clean, createWorkload, deploy, deploymentError, ignore, signal } from '../conformance.ts'
import type { ImageRequest, Runtime } from '../runtime.ts'
import { createDockerRuntime } from './docker.ts'
import { steadyReference } from './images.ts'

/** An image unlike any other. */
const newImage = async (): Promise<string> => {
  const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', {
    body: { Image: 'busybox:1', Cmd: ['httpd', '-f', '-p', '8080'], Labels: { only: newId() } },
  })
  const query = { container: Id, repo: `images-test-${newId()}`, tag: '1' }
  await engine.call('POST', '/commit', { query })
  await engine.call('DELETE', `/containers/${Id}`)
  return `${query.repo}:1`
}

test('an image is named by the digest of its own registry, else by its id', () => {
  const detail = {
    Id: 'sha256:id',
    RepoDigests: ['postgres@sha256:1', 'bitnami/redis@sha256:2', 'host:5000/library/postgres@sha256:3'],
  }
  const cases = {
    'docker.io/library/postgres:16': 'docker.io/library/postgres@sha256:1',
    'docker.io/bitnami/redis:7': 'docker.io/bitnami/redis@sha256:2',
    'host:5000/library/postgres:16': 'host:5000/library/postgres@sha256:3',
    'elsewhere.example/postgres:16': 'sha256:id',
  }
  for (const [reference, steady] of Object.entries(cases)) assert.equal(steadyReference(reference, detail), steady)
  assert.equal(steadyReference('x.example/a:1', { Id: 'sha256:id', RepoDigests: null }), 'sha256:id')
})

describe('pulling from a registry with a login', { skip: registryIsMissing }, () => {
  let registry: Registry
  let runtime: Runtime
  const told: string[] = []
  const made: string[] = []

  const request = (name: string, more: Partial<ImageRequest> = {}): ImageRequest => ({
    reference: `${registry.host}/${name}`,
    login: new Secret(login),
    refresh: true,
    ...more,
  })
  const pull = (image: ImageRequest) => runtime.pull(image, (text) => told.push(text), signal())
  const publish = async (name: string, tag: string): Promise<void> => {
    const image = await newImage()
    made.push(image)
    await registry.publish(image, name, tag)
    await untag(image)
  }

  before(async () => {
    await ensureBusybox()
    registry = await startRegistry()
    runtime = createDockerRuntime({ ownerId: `images-${newId()}`, log: createLog('silent') })
  })
  after(async () => {
    await clean(runtime)
    await runtime.close()
    await registry.close()
    for (const image of made) await untag(image)
    await engine.close()
  })

  test('what a tag is by now is told without pulling it, and what is held where its registry does not tell', async () => {
    await publish('team/told', '1')
    const look = (image: ImageRequest) => runtime.lookUp(image, signal())
    const image = request('team/told:1')
    assert.equal(await look({ ...image, refresh: false }), null)
    const told = await look(image)
    assert.match(told ?? '', /\/team\/told@sha256:[0-9a-f]{64}$/)
    assert.equal(await look({ ...image, refresh: false }), null, 'nothing was pulled')
    assert.equal(await pull(image), told)
    await publish('team/told', '1')
    assert.notEqual(await look(image), told)
    assert.equal(await look({ ...image, reference: told!, refresh: false }), told)
    assert.equal(await look(request('team/absent:1')), null)
    const away = { ...image, reference: `127.0.0.1:${await freePort()}/team/told:1` }
    assert.equal(await look(away), null)
  })

  test('an image is pulled with its login, runs by its digest, and the password is told nowhere', async () => {
    await publish('team/app', '1')
    const reference = await pull(request('team/app:1'))
    assert.match(reference, new RegExp(`^${registry.host}/team/app@sha256:[0-9a-f]{64}$`))
    const workload = createWorkload({ image: reference, entrypoint: null, arguments: null })
    await deploy(runtime, workload)
    await runtime.retire(workload.serviceId, null, 0, signal())
    assert.equal(JSON.stringify(told).includes(login.password), false)
  })

  test('what an engine lost comes back by its digest, with the login', async () => {
    await publish('team/lost', '1')
    const reference = await pull(request('team/lost:1'))
    await untag(`${registry.host}/team/lost:1`)
    await untag(reference)
    const again = request('team/lost:1', { reference, refresh: false })
    assert.equal((await deploymentError(pull({ ...again, login: null }))).code, 'image_denied')
    assert.equal(await pull(again), reference)
  })

  test('a wrong login, no login and a tag that is not there are told apart, and name the image', async () => {
    await publish('team/denied', '1')
    const wrong = new Secret({ ...login, password: 'another-canary' })
    for (const denied of [null, wrong]) {
      const error = await deploymentError(pull(request('team/denied:1', { login: denied })))
      assert.equal(error.code, 'image_denied')
      assert.match(error.message, /team\/denied:1/)
      assert.doesNotMatch(error.message, /another-canary/)
    }
    const error = await deploymentError(pull(request('team/denied:2')))
    assert.equal(error.code, 'image_missing')
    assert.match(error.message, /team\/denied:2/)
  })

  test('a tag that moved is followed when it is asked for, and only then', async () => {
    await publish('team/moving', '1')
    const first = await pull(request('team/moving:1'))
    const image = await newImage()
    made.push(image)
    await registry.publish(image, 'team/moving-new', '1')
    await engine.call('POST', `/images/${image}/tag`, { query: { repo: `${registry.host}/team/moving`, tag: 'next' } })
    assert.equal(await pull(request('team/moving:1', { refresh: false })), first)
    await registry.publish(image, 'team/moving', '1')
    await engine.call('POST', `/images/${first}/tag`, { query: { repo: `${registry.host}/team/moving`, tag: '1' } })
    assert.equal(await pull(request('team/moving:1', { refresh: false })), first)
    assert.notEqual(await pull(request('team/moving:1')), first)
    await untag(`${registry.host}/team/moving:next`)
  })

  test('a registry that does not answer is named in time; what the engine holds stands in and it is said', async () => {
    const host = `127.0.0.1:${await freePort()}`
    const reference = `${host}/team/held:1`
    const begun = performance.now()
    const error = await deploymentError(pull(request('', { reference })))
    assert.equal(error.code, 'image_unreachable')
    assert.ok(error.message.includes(reference))
    assert.ok(performance.now() - begun < 30_000)
    await engine.call('POST', '/images/busybox:1/tag', { query: { repo: `${host}/team/held`, tag: '1' } })
    told.length = 0
    assert.match(await pull(request('', { reference })), /^sha256:/)
    assert.match(told.join('\n'), /engine holds one of this name/)
    await untag(reference)
  })

  test('an image that a registry denies is not taken from the engine, which others may have pulled it to', async () => {
    await publish('team/private', '1')
    await pull(request('team/private:1'))
    const error = await deploymentError(pull(request('team/private:1', { login: null })))
    assert.equal(error.code, 'image_denied')
  })

  test('a pull ends with its signal', async () => {
    const controller = new AbortController()
    const work = runtime.pull(request('team/app:1'), () => controller.abort(new Error('canceled')), controller.signal)
    await assert.rejects(work, /canceled/)
    await runtime.pull(request('team/app:1'), ignore, signal())
  })
})
