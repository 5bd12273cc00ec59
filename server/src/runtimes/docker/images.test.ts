import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../test/support/docker/busybox-image.ts'
import { engine } from '../../../test/support/docker/docker.ts'
import { startImages, type TestImages } from '../../../test/support/docker/organization-images.ts'
import { login, type Registry, registryIsMissing, startRegistry, untag } from '../../../test/support/docker/registry.ts'
import {
  clean,
  createWorkload,
  deploymentError,
  ignore,
  signal,
  start,
} from '../../../test/support/runtimes/conformance.ts'
import { freePort } from '../../../test/support/slipway/slipway.ts'
import { pinnedReference } from '../../images/engine-images.ts'
import { pulledTag } from '../../images/tags.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { Secret } from '../../lib/secret.ts'
import type { Images } from '../images.ts'
import { createDockerRuntime, type DockerRuntime } from './docker.ts'
import { localName } from './images.ts'

/** An image unlike any other. */
const newImage = async (): Promise<string> => {
  const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', {
    body: { Image: busyboxImage, Cmd: ['httpd', '-f', '-p', '8080'], Labels: { only: newId() } },
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
  for (const [reference, steady] of Object.entries(cases)) assert.equal(pinnedReference(reference, detail), steady)
  assert.equal(pinnedReference('x.example/a:1', { Id: 'sha256:id', RepoDigests: null }), 'sha256:id')
  // The containerd store makes a digest of the id for every name, also for an image that was built or loaded.
  const made = { Id: 'sha256:id', RepoDigests: ['postgres@sha256:id'] }
  const from = (Repository: string) => ({ ...made, Identity: { Pull: [{ Repository }] } })
  assert.equal(pinnedReference('docker.io/library/postgres:16', made), 'sha256:id')
  assert.equal(pinnedReference('docker.io/library/postgres:16', from('127.0.0.1/team/app')), 'sha256:id')
  const pulled = from('docker.io/library/postgres')
  assert.equal(pinnedReference('docker.io/library/postgres:16', pulled), 'docker.io/library/postgres@sha256:id')
})

test('a container is made from the name of its organization, or from the id of what was built', () => {
  const organizationId = newId()
  const digest = `registry.example/team/app@sha256:${'a'.repeat(64)}`
  assert.match(localName(organizationId, digest), new RegExp(`^slipway/${organizationId}/pulled:[0-9a-f]{32}$`))
  assert.notEqual(localName(organizationId, digest), localName(newId(), digest))
  assert.equal(localName(organizationId, 'sha256:1'), 'sha256:1')
})

describe('pulling from a registry with a login', { skip: registryIsMissing }, () => {
  const organizationId = newId()
  let registry: Registry
  let images: TestImages
  let runtime: DockerRuntime
  const told: string[] = []
  const made: string[] = []

  type Held = Parameters<Images['hold']>[0]
  const request = (name: string, more: Partial<Held> = {}): Held => ({
    organizationId,
    reference: `${registry.host}/${name}`,
    origin: new URL(registry.url),
    login: new Secret(login),
    refresh: true,
    ...more,
  })
  const pull = (image: Held) => runtime.images.hold(image, (text) => told.push(text), signal())
  const publish = async (name: string, tag: string): Promise<void> => {
    const image = await newImage()
    made.push(image)
    await registry.publish(image, name, tag)
    await untag(image)
  }

  before(async () => {
    await ensureBusybox()
    registry = await startRegistry()
    images = await startImages()
    runtime = createDockerRuntime({ ownerId: `images-${newId()}`, images, log: createLog('silent') })
  })
  after(async () => {
    await clean(runtime)
    await runtime.close()
    await images.sweep(organizationId, [], -1, signal())
    await images.close()
    await registry.close()
    for (const image of made) await untag(image)
    await engine.close()
  })

  test('the present digest of a tag is read without pulling it, and null if its registry does not say', async () => {
    await publish('team/told', '1')
    const look = (image: Held) => runtime.images.resolve(image, signal())
    const isHeld = (reference: string, of = organizationId) => runtime.images.isHeld(of, reference, signal())
    const image = request('team/told:1')
    assert.equal(await isHeld(image.reference), false)
    const told = await look(image)
    assert.match(told ?? '', /\/team\/told@sha256:[0-9a-f]{64}$/)
    assert.equal(await isHeld(told!), false, 'nothing was pulled')
    assert.equal(await pull(image), told)
    await publish('team/told', '1')
    assert.notEqual(await look(image), told)
    assert.equal(await isHeld(told!), true)
    assert.equal(await isHeld(told!, newId()), false)
    assert.equal(await look(request('team/absent:1')), null)
    const host = `127.0.0.1:${await freePort()}`
    assert.equal(await look({ ...image, reference: `${host}/team/told:1`, origin: new URL(`http://${host}`) }), null)
  })

  test('an image is pulled with its login, runs by its digest, and the password appears nowhere', async () => {
    await publish('team/app', '1')
    const reference = await pull(request('team/app:1'))
    assert.match(reference, new RegExp(`^${registry.host}/team/app@sha256:[0-9a-f]{64}$`))
    const workload = createWorkload({ image: reference, entrypoint: null, arguments: null }, { organizationId })
    await start(runtime, workload)
    await runtime.instances.retire(workload, null, 0, signal())
    assert.equal(JSON.stringify(told).includes(login.password), false)
  })

  test('what an engine lost comes back by its digest, with the login', async () => {
    await publish('team/lost', '1')
    const reference = await pull(request('team/lost:1'))
    await engine.call('DELETE', `/images/${pulledTag(organizationId, reference)}`)
    const again = request('team/lost:1', { reference, refresh: false })
    assert.equal((await deploymentError(pull({ ...again, login: null }))).code, 'image_denied')
    assert.equal(await pull(again), reference)
  })

  test('a wrong login, no login and a missing tag have different errors, which name the image', async () => {
    await publish('team/denied', '1')
    const wrong = new Secret({ ...login, password: 'another-canary' })
    const sentences = new Set<string>()
    for (const denied of [null, wrong]) {
      const error = await deploymentError(pull(request('team/denied:1', { login: denied })))
      assert.equal(error.code, 'image_denied')
      assert.match(error.message, /team\/denied:1/)
      assert.doesNotMatch(error.message, /another-canary/)
      sentences.add(error.message)
    }
    const error = await deploymentError(pull(request('team/denied:2')))
    assert.equal(error.code, 'image_missing')
    assert.match(error.message, /team\/denied:2.*has no such image/)
    assert.equal(sentences.add(error.message).size, 3)
    assert.ok([...sentences].some((each) => each.includes('rejected this login')))
  })

  test('a tag that moved is followed when it is asked for, and only then', async () => {
    await publish('team/moving', '1')
    const first = await pull(request('team/moving:1'))
    await publish('team/moving', '1')
    assert.equal(await pull(request('', { reference: first, refresh: false })), first)
    assert.notEqual(await pull(request('team/moving:1')), first)
  })

  test('a registry that does not answer is named in time', async () => {
    const host = `127.0.0.1:${await freePort()}`
    const reference = `${host}/team/held:1`
    const begun = performance.now()
    const error = await deploymentError(pull(request('', { reference, origin: new URL(`http://${host}`) })))
    assert.equal(error.code, 'image_unreachable')
    assert.ok(error.message.includes(reference))
    assert.ok(performance.now() - begun < 30_000)
  })

  test('an image that a registry denies is not taken from the engine, which others may have pulled it to', async () => {
    await publish('team/private', '1')
    const reference = await pull(request('team/private:1'))
    for (const other of [{ login: null }, { login: null, organizationId: newId(), reference, refresh: false }])
      assert.equal((await deploymentError(pull(request('team/private:1', other)))).code, 'image_denied')
  })

  test('a pull ends with its signal', async () => {
    await publish('team/ended', '1')
    const controller = new AbortController()
    const image = request('team/ended:1')
    const work = runtime.images.hold(image, () => controller.abort(new Error('canceled')), controller.signal)
    await assert.rejects(work, /canceled/)
    await runtime.images.hold(image, ignore, signal())
  })
})
