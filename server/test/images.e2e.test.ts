/** Services made from images on a real engine: a registry with a login, a database whose data must survive, jobs. */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { ensureBusybox } from './support/docker/busybox-image.ts'
import { containersOf, engine, inspectContainer, networksOf } from './support/docker/docker.ts'
import { buildImage } from './support/docker/program-image.ts'
import { login, type Registry, registryIsMissing, startRegistry, untag } from './support/docker/registry.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { createPlace, deploymentLog, hostOf, isSettled, type Place, visit } from './support/slipway/story.ts'
import { until } from './support/until.ts'

let slipway: Slipway
let registry: Registry | undefined
const standInImage = 'redis:6.0.99'

before(async () => {
  await ensureBusybox()
  slipway = await prepareSlipway()
  await slipway.start()
})

after(async () => {
  await slipway?.remove()
  await registry?.close()
  for (const image of ['images-e2e:1', standInImage]) await untag(image)
  await engine.close()
})

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const stateOf = async (path: string): Promise<string> => {
  const { status, body } = await slipway.api('GET', `${path}/status`)
  return status === 404 ? 'DELETED' : body.state
}

/** Acts on a service and waits until it is at rest; returns its state. */
const act = async (path: string, verb: string, body?: unknown): Promise<string> => {
  await send(verb === 'DELETE' ? 'DELETE' : 'POST', verb === 'DELETE' ? path : `${path}/${verb}`, body)
  return until(
    async () => {
      const state = await stateOf(path)
      return isSettled(state) ? state : null
    },
    { timeoutMs: 60_000, what: `${verb} of ${path}` },
  )
}

const run = async (container: string, command: string): Promise<string> => {
  const body = { Cmd: ['sh', '-c', command], AttachStdout: true, AttachStderr: true, Tty: true }
  const { Id } = await engine.call<{ Id: string }>('POST', `/containers/${container}/exec`, { body })
  const output = await engine.stream('POST', `/exec/${Id}/start`, { body: { Detach: false, Tty: true } })
  let text = ''
  for await (const chunk of output) text += chunk
  return text.trim()
}

describe('a registry with a login', { skip: registryIsMissing }, () => {
  let place: Place
  let registryId: string

  before(async () => {
    registry = await startRegistry()
    await buildImage(
      'images-e2e:1',
      {},
      'CMD ["sh", "-c", "mkdir -p /w; echo page $TOLD > /w/index.html; exec httpd -f -p 8080 -h /w"]',
    )
    await registry.publish('images-e2e:1', 'team/web', '1')
    place = await createPlace(slipway)
    const made = await send('POST', `/organization/${place.organizationId}/containerRegistry`, {
      name: 'private',
      kind: 'GENERIC_CR',
      description: 'with a login',
      url: registry.url,
      config: login,
    })
    registryId = made.id
  })

  test('a container is deployed from it, restarts by digest, and the password is stored nowhere', async () => {
    const { id } = await send('POST', `/environment/${place.environmentId}/container`, {
      name: 'web',
      registry_id: registryId,
      image_name: 'team/web',
      tag: '1',
      memory: 64,
      healthchecks: {},
      ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
    })
    const path = `/container/${id}`
    assert.equal(await act(path, 'deploy'), 'DEPLOYED')
    assert.equal((await visit(slipway, hostOf(place, 'web'))).text, 'page')
    const [container] = await containersOf(id)
    const { Image } = (await inspectContainer(container!.Id)).Config as unknown as { Image: string }
    const [release] = (await send('GET', `${path}/release`)).results
    assert.match(release.image, /team\/web@sha256:[0-9a-f]{64}$/)
    // Its owner, and nothing about its origin.
    assert.match(Image, new RegExp(`^slipway/${place.organizationId}/pulled:[0-9a-f]{32}$`))
    await act(path, 'stop')
    await untag(Image)
    assert.equal(await act(path, 'redeploy'), 'DEPLOYED')
    const digest = release.image.slice(release.image.indexOf('@') + 1)
    assert.equal(await act(path, 'deploy', { image_tag: digest }), 'DEPLOYED')
    const absent = `sha256:${'0'.repeat(64)}`
    assert.equal(await act(path, 'deploy', { image_tag: absent }), 'DEPLOYMENT_ERROR')
    assert.ok((await deploymentLog(slipway, place.environmentId)).includes(`team/web@${absent} cannot be pulled`))
    assert.equal(await act(path, 'deploy', { image_tag: '2' }), 'DEPLOYMENT_ERROR')
    assert.equal((await visit(slipway, hostOf(place, 'web'))).text, 'page')
    const log = await deploymentLog(slipway, place.environmentId)
    assert.match(log, /team\/web:2/)
    for (const text of [log, slipway.output()]) assert.equal(text.includes(login.password), false)
    assert.equal(await act(path, 'uninstall'), 'READY')
    assert.deepEqual(await containersOf(id), [])
    assert.equal((await visit(slipway, hostOf(place, 'web'))).status, 404)
    assert.equal(await act(path, 'deploy'), 'DEPLOYED')
    assert.equal(await act(path, 'DELETE'), 'DELETED')
  })

  test('a lifecycle job runs with the variables of its place, once a deploy, and at its end', async () => {
    const { id } = await send('POST', `/environment/${place.environmentId}/job`, {
      name: 'migrate',
      source: { image: { registry_id: registryId, image_name: 'team/web', tag: '1' } },
      memory: 64,
      healthchecks: {},
      max_nb_restart: 1,
      schedule: {
        on_start: { entrypoint: 'sh -c', arguments: ['echo migrated-$TOLD; test "$TOLD" = word'] },
        on_delete: { entrypoint: 'sh -c', arguments: ['echo taken-down'] },
      },
    })
    const path = `/job/${id}`
    assert.equal(await act(path, 'deploy'), 'DEPLOYMENT_ERROR')
    assert.match(await deploymentLog(slipway, place.environmentId), /exited with code 1/)
    await send('POST', `/environment/${place.environmentId}/environmentVariable`, { key: 'TOLD', value: 'word' })
    assert.equal(await act(path, 'deploy'), 'DEPLOYED')
    assert.match(await deploymentLog(slipway, place.environmentId), /migrated-word/)
    assert.deepEqual(await containersOf(id), [])
    assert.equal(await act(path, 'DELETE'), 'DELETED')
    assert.match(await deploymentLog(slipway, place.environmentId), /taken-down/)
  })

  test('an environment is uninstalled with its network, and deployed again', async () => {
    const path = `/environment/${place.environmentId}`
    const state = async (): Promise<string> => (await send('GET', `${path}/status`)).state
    const settled = async () => ((value) => (isSettled(value) ? value : null))(await state())
    await send('POST', `${path}/container`, {
      name: 'again',
      registry_id: registryId,
      image_name: 'team/web',
      tag: '1',
      memory: 64,
      healthchecks: {},
    })
    await send('POST', `${path}/deploy`)
    assert.equal(await until(settled, { timeoutMs: 30_000, what: 'the deploy' }), 'DEPLOYED')
    await send('POST', `${path}/uninstall`)
    assert.equal(await until(settled, { timeoutMs: 30_000, what: 'the uninstall' }), 'READY')
    await until(async () => (await networksOf(place.environmentId)).length === 0, { what: 'the network to go' })
    await send('POST', `${path}/deploy`)
    assert.equal(await until(settled, { timeoutMs: 30_000, what: 'the deploy' }), 'DEPLOYED')
    await send('DELETE', path)
  })
})

// Starts and answers the probe like the real image: this tests our code, not Redis.
const standIn = {
  'docker-entrypoint.sh': '#!/bin/sh\nexec "$@"\n',
  'redis-server':
    '#!/bin/sh\ncat > /tmp/conf; grep -q "requirepass ....." /tmp/conf || exit 9\nexec httpd -f -p 6379 -h /data\n',
  'redis-cli': '#!/bin/sh\n[ -n "$REDISCLI_AUTH" ] && [ -e /tmp/conf ] && echo PONG\n',
}

test('a database keeps its data and its password over deploys; another service reads both by an alias of a built-in', async () => {
  await buildImage(standInImage, standIn, 'CMD ["redis-server"]')
  const place = await createPlace(slipway)
  const { id } = await send('POST', `/environment/${place.environmentId}/database`, {
    name: 'store',
    type: 'REDIS',
    version: '6.0.99',
    mode: 'CONTAINER',
    accessibility: 'PRIVATE',
  })
  const path = `/database/${id}`
  const only = async (): Promise<string> => {
    const all = await containersOf(id)
    assert.equal(all.length, 1)
    return all[0]!.Id
  }
  assert.equal(await act(path, 'deploy'), 'DEPLOYED')
  const first = await only()
  await run(first, 'echo kept > /data/marker')
  assert.equal(await act(path, 'deploy'), 'DEPLOYED')
  assert.equal(await only(), first, 'a deploy without a change leaves it alone')
  await send('PUT', path, { memory: 160 })
  assert.equal(await act(path, 'deploy'), 'DEPLOYED')
  const second = await only()
  assert.notEqual(second, first)
  assert.equal(await run(second, 'cat /data/marker'), 'kept')
  assert.equal((await send('GET', `${path}/status`)).service_deployment_status, 'UP_TO_DATE')

  const { password } = await send('GET', `${path}/masterCredentials`)
  const { Env } = (await inspectContainer(second)).Config
  assert.ok(Env.includes(`REDISCLI_AUTH=${password}`))
  const job = await send('POST', `/environment/${place.environmentId}/container`, {
    name: 'reader',
    registry_id: await hub(place),
    image_name: 'library/redis',
    tag: '6.0.99',
    memory: 64,
    healthchecks: {},
  })
  const key = `SLIPWAY_REDIS_Z${id.slice(0, 8).toUpperCase()}_PASSWORD`
  const secrets: Json[] = (await send('GET', `/container/${job.id}/secret`)).results
  const target = secrets.find((one) => one.key === key)
  assert.ok(target !== undefined && !JSON.stringify(target).includes(password))
  await send('POST', `/container/${job.id}/secret/${target.id}/alias`, { key: 'STORE_PASSWORD' })
  await send('PUT', `/container/${job.id}`, { entrypoint: 'sh -c', arguments: ['exec sleep 1000'] })
  assert.equal(await act(`/container/${job.id}`, 'deploy'), 'DEPLOYED')
  const [reader] = await containersOf(job.id)
  assert.ok((await inspectContainer(reader!.Id)).Config.Env.includes(`STORE_PASSWORD=${password}`))
  assert.equal(await run(reader!.Id, `wget -q -O - http://service-${id}:6379/marker`), 'kept')

  assert.equal(await act(path, 'DELETE'), 'DELETED')
  const volumes = engine.call('GET', `/volumes`, {
    query: { filters: JSON.stringify({ label: [`slipway.service=${id}`] }) },
  })
  assert.deepEqual(((await volumes) as unknown as { Volumes: unknown[] | null }).Volumes ?? [], [])
  await send('DELETE', `/environment/${place.environmentId}`)
  await until(async () => (await networksOf(place.environmentId)).length === 0, { timeoutMs: 30_000, what: 'the end' })
})

const hub = async (place: Place): Promise<string> =>
  (
    await send('POST', `/organization/${place.organizationId}/containerRegistry`, {
      name: 'hub',
      kind: 'DOCKER_HUB',
      description: 'public',
      url: 'https://docker.io',
      config: {},
    })
  ).id
