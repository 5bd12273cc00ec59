import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { after, test } from 'node:test'
import {
  type Auth,
  challengeOf,
  type FakeImage,
  type FakeRegistry,
  indexType,
  makeImage,
  manifestType,
  startFakeRegistry,
  startTrap,
} from '../../test/support/docker/fake-registry.ts'
import { until } from '../../test/support/until.ts'
import { readAll } from '../lib/docker/registry-session.ts'
import { DeploymentError } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import { createOutbound, type Outbound, type Resolve } from '../lib/net/outbound.ts'
import type { OutboundStream } from '../lib/net/outbound-stream.ts'
import { Secret } from '../lib/secret.ts'
import { type AskedImage, askRegistry, explain } from './ask-registry.ts'
import type { ImageAccess } from './images.ts'

const open: (() => unknown)[] = []
after(() => {
  for (const close of open) close()
})

const start = async (auth?: Auth): Promise<FakeRegistry> => {
  const registry = await startFakeRegistry(auth)
  open.push(registry.close)
  return registry
}

/** An address of this machine that is not allowed. */
const trapped = async () => {
  const trap = await startTrap('127.0.0.2')
  open.push(trap.close)
  return trap
}

const outboundOf = (resolve?: Resolve): Outbound => createOutbound({ allow: ['127.0.0.1/32'], resolve })
const outbound = outboundOf()

const accessOf = (registry: FakeRegistry, more: Partial<ImageAccess> = {}): ImageAccess => ({
  organizationId: newId(),
  repository: `${registry.host}/team/app`,
  tag: '1',
  origin: registry.url,
  login: null,
  ...more,
})

const login = (text: string): ImageAccess['login'] => {
  const [username = '', password = ''] = text.split(':')
  return new Secret({ username, password })
}

const signal = () => AbortSignal.timeout(20_000)

const ask = (access: ImageAccess, way = outbound): Promise<AskedImage> =>
  askRegistry(way, access, { architecture: process.arch === 'x64' ? 'amd64' : process.arch, maxMb: 100 }, signal())

/** The sentence that the user gets, with its code before it. */
const refusal = async (access: ImageAccess, work: Promise<unknown>): Promise<string> => {
  const error = await work.then(
    () => assert.fail('it was given'),
    (caught: unknown) => explain(access, caught),
  )
  assert.ok(error instanceof DeploymentError, String(error))
  assert.ok(error.message.startsWith(`Image ${access.repository}`), error.message)
  return `${error.code} ${error.message}`
}

const published = async (registry: FakeRegistry): Promise<FakeImage> => {
  const image = await makeImage()
  registry.publish('team/app:1', image)
  return image
}

const challenge = (response: ServerResponse, text: string): boolean => {
  response.writeHead(401, { 'www-authenticate': text }).end()
  return true
}

const redirect = (response: ServerResponse, location: string): boolean => {
  response.writeHead(307, { location }).end()
  return true
}

test('a tag is asked for with a token that the login bought, and its blobs with the same token', async () => {
  const registry = await start({ token: 'bot:pass' })
  const image = await published(registry)
  const asked = await ask(accessOf(registry, { login: login('bot:pass') }))
  assert.equal(asked.digest, image.digest)
  for (const { digest, bytes, size } of image.blobs) {
    assert.equal(asked.blobs.get(digest), size)
    assert.deepEqual(await readAll(await asked.open(digest, 0, signal())), bytes)
    assert.deepEqual(await readAll(await asked.open(digest, 3, signal())), bytes.subarray(3))
  }
  assert.equal(registry.asked.filter((each) => each.includes('/token')).length, 2)
})

test('of an index the digest of the whole is returned and the image of the engine is offered', async () => {
  const registry = await start()
  const image = await published(registry)
  const platform = { os: 'linux', architecture: process.arch === 'x64' ? 'amd64' : process.arch }
  const index = {
    manifests: [{ mediaType: manifestType, digest: image.digest, size: image.manifest.length, platform }],
  }
  const whole = { ...image, blobs: [], manifest: Buffer.from(JSON.stringify(index)) }
  registry.publish('team/app:all', whole, indexType)
  const asked = await ask(accessOf(registry, { tag: 'all' }))
  assert.equal(asked.manifest.digest, image.digest)
  assert.notEqual(asked.digest, image.digest)
})

test('a token realm at an address that is not allowed gets nothing, and neither does who named it', async () => {
  const trap = await trapped()
  const registry = await start({ token: 'bot:pass', realm: `http://${trap.host}/latest/meta-data` })
  for (const own of [null, login('bot:pass')]) {
    const access = accessOf(registry, { login: own })
    assert.match(await refusal(access, ask(access)), /^registry_refused .*SLIPWAY_OUTBOUND_ALLOW/)
  }
  assert.equal(trap.connections(), 0)
  assert.equal(registry.asked.length, 2)
})

test('a manifest and a blob that are redirected to an address that is not allowed get nothing there', async () => {
  const trap = await trapped()
  const registry = await start()
  const image = await published(registry)
  const access = accessOf(registry)
  const asked = await ask(access)
  registry.bend((_, response) => redirect(response, `http://${trap.host}/secret`))
  assert.match(await refusal(access, ask(access)), /^registry_refused/)
  assert.match(await refusal(access, asked.open(image.blobs[1]!.digest, 0, signal())), /^registry_refused/)
  assert.equal(trap.connections(), 0)
})

test('a name that moves to a refused address after it was looked at gets nothing', async () => {
  const trap = await trapped()
  const registry = await start()
  const port = new URL(`http://${trap.host}`).port
  let looked = 0
  // The first lookup is allowed, the next is not: code that resolves only once connects to the allowed address.
  const moving = outboundOf(async () => [{ address: looked++ === 0 ? '127.0.0.1' : '127.0.0.2' }])
  const access = accessOf(registry, {
    repository: 'moving.test/team/app',
    origin: new URL(`http://moving.test:${port}`),
  })
  assert.match(await refusal(access, ask(access, moving)), /^image_unreachable/)
  assert.match(await refusal(access, ask(access, moving)), /^registry_refused/)
  const both = outboundOf(async () => [{ address: '127.0.0.1' }, { address: '127.0.0.2' }])
  assert.match(await refusal(access, ask(access, both)), /^registry_refused/)
  assert.equal(trap.connections(), 0)
})

test('only a token with that name is one: the answer of an address inside is passed to no client', async () => {
  for (const body of ['{"Token":"inside"}', '{"ACCESS_TOKEN":"inside"}', '{"token":5}', '{"token":"a\\r\\nb"}', '[]']) {
    const registry = await start()
    registry.bend((request, response) => {
      if (!request.url!.startsWith('/token')) return challenge(response, challengeOf(`${registry.url.origin}/token`))
      response.writeHead(200, { 'content-type': 'application/json' }).end(body)
      return true
    })
    const access = accessOf(registry)
    assert.match(await refusal(access, ask(access)), /^image_unreachable/, body)
    assert.ok(!registry.asked.some((each) => each.includes('inside')))
  }
})

test('a token service that answers without end is cut off', async () => {
  const registry = await start()
  registry.bend((request, response) => {
    if (!request.url!.startsWith('/token')) return challenge(response, challengeOf(`${registry.url.origin}/token`))
    response.writeHead(200)
    Readable.from(
      (function* () {
        for (;;) yield Buffer.alloc(65_536, ' ')
      })(),
    ).pipe(response)
    return true
  })
  const access = accessOf(registry)
  assert.match(await refusal(access, ask(access)), /^image_unreachable/)
})

test('the credential goes with no redirect to another host, and its challenge is not answered', async () => {
  const [registry, elsewhere] = [await start({ basic: 'bot:pass' }), await start()]
  const image = await published(registry)
  const access = accessOf(registry, { login: login('bot:pass') })
  const asked = await ask(access)
  registry.bend(
    (request, response) =>
      request.headers.authorization !== undefined && redirect(response, `${elsewhere.url.origin}${request.url}`),
  )
  elsewhere.publish('team/app:1', image)
  const { digest, bytes } = image.blobs[1]!
  assert.deepEqual(await readAll(await asked.open(digest, 0, signal())), bytes)
  elsewhere.bend((_, response) => challenge(response, challengeOf(`${elsewhere.url.origin}/token`)))
  const denied = await asked.open(digest, 0, signal())
  assert.equal(denied.status, 401)
  denied.body.destroy()
  assert.ok(elsewhere.asked.length >= 2 && elsewhere.asked.every((each) => each.endsWith(' -')))
})

test('redirects are followed five times and no more, and never from https to http', async () => {
  const registry = await start()
  const image = await published(registry)
  let hops = 5
  registry.bend((request, response) => hops-- > 0 && redirect(response, request.url!))
  assert.equal((await ask(accessOf(registry))).digest, image.digest)
  hops = 6
  const access = accessOf(registry)
  assert.match(await refusal(access, ask(access)), /^image_unreachable .*loop/)

  const targets: string[] = []
  const secure: Outbound = {
    ...outbound,
    open: async ({ url }): Promise<OutboundStream> => {
      targets.push(String(url))
      return { status: 302, headers: { location: 'http://images.example/x' }, body: Readable.from([]) }
    },
  }
  const https = accessOf(registry, { repository: 'images.example/team/app', origin: null })
  assert.match(await refusal(https, ask(https, secure)), /^image_unreachable/)
  assert.deepEqual(targets, ['https://images.example/v2/team/app/manifests/1'])
})

test('what is not what its digest says is refused: of a tag, of a digest, of an index', async () => {
  const registry = await start()
  const [image, other] = [await published(registry), await makeImage()]
  registry.bend((request, response) => {
    if (!request.url!.includes(image.digest)) return false
    response.writeHead(200, { 'content-type': manifestType }).end(other.manifest)
    return true
  })
  const byDigest = accessOf(registry, { tag: image.digest })
  assert.match(await refusal(byDigest, ask(byDigest)), /^image_refused .*digest/)
  registry.bend((_, response) => {
    response.writeHead(200, { 'content-type': manifestType, 'docker-content-digest': other.digest })
    response.end(image.manifest)
    return true
  })
  const byTag = accessOf(registry)
  assert.match(await refusal(byTag, ask(byTag)), /^image_refused .*digest/)
})

test('an image that is larger than allowed, and a manifest without end, are refused', async () => {
  const registry = await start()
  const image = await makeImage()
  const manifest = JSON.parse(image.manifest.toString())
  manifest.layers[0].size = 101 * 2 ** 20
  registry.publish('team/app:1', { ...image, manifest: Buffer.from(JSON.stringify(manifest)) })
  const access = accessOf(registry)
  assert.match(await refusal(access, ask(access)), /^image_refused .*SLIPWAY_IMAGE_MAX_MB/)
  registry.publish('team/app:1', { ...image, manifest: Buffer.alloc(5 << 20, ' ') })
  assert.match(await refusal(access, ask(access)), /^image_unreachable .*more was sent/)
})

test('a sender that drips is given up, a reader that is slow is not', async () => {
  const registry = await start()
  registry.bend((_, response) => {
    response.writeHead(200)
    const timer = setInterval(() => response.write('.'), 10)
    response.once('close', () => clearInterval(timer))
    return true
  })
  const limits = { method: 'GET', url: registry.url, maxBytes: 1e6, silenceMs: 200 }
  const dripped = await outbound.open({ ...limits, leastBytes: 1000 })
  await assert.rejects(readAll(dripped), /too slow/)
  const read = await outbound.open({ ...limits, leastBytes: 2 })
  let chunks = 0
  const began = performance.now()
  for await (const _ of read.body) {
    chunks += 1
    const pausedAt = performance.now()
    await until(() => performance.now() - pausedAt > 60, { what: 'a slow reader' })
    if (performance.now() - began > 600) break
  }
  assert.ok(chunks > 3)
})

test('a denied login, a missing image, and a registry without an answer get three sentences', async () => {
  for (const auth of [{ basic: 'bot:pass' }, { token: 'bot:pass' }] as Auth[]) {
    const registry = await start(auth)
    await published(registry)
    const wrong = accessOf(registry, { login: login('bot:wrong-canary') })
    const denied = await refusal(wrong, ask(wrong))
    assert.match(denied, /^image_denied .*rejected this login/)
    assert.ok(!denied.includes('canary'))
    const absent = accessOf(registry, { tag: '2', login: login('bot:pass') })
    assert.match(await refusal(absent, ask(absent)), /^image_missing .*:2 .*has no such image/)
    const nobody = accessOf(registry)
    assert.match(await refusal(nobody, ask(nobody)), /^image_denied/)
  }
  const away = accessOf(await start(), { origin: new URL('http://127.0.0.1:1') })
  assert.match(await refusal(away, ask(away)), /^(image_unreachable|registry_refused)/)
})

test('the public registry answers 401 for what it does not have: no login is blamed', async () => {
  const hub: Outbound = {
    ...outbound,
    open: async () => ({
      status: 401,
      headers: { 'www-authenticate': challengeOf('https://auth.docker.io/token') },
      body: Readable.from([]),
    }),
    request: async () => ({ status: 200, headers: {}, body: '{"token":"anonymous"}', truncated: false }),
  }
  const registry = await start()
  const access = accessOf(registry, { repository: 'docker.io/library/no-such', origin: null })
  assert.match(await refusal(access, ask(access, hub)), /^image_missing .*no such image, or it is private/)
})

test('a name that could lead elsewhere than to a manifest is not asked for', async () => {
  const registry = await start()
  const names = ['team/../../token', 'team/app/../..', 'Team/app', 'team//app', 'team/app?x', 'team/app#', '', '/team']
  for (const name of names) {
    const access = accessOf(registry, { repository: `${registry.host}/${name}` })
    assert.match(await refusal(access, ask(access)), /^image_missing .*not a valid image name/, name)
  }
  for (const tag of ['../x', 'a/b', '', 'sha256:short', 'a b', '.']) {
    const access = accessOf(registry, { tag })
    assert.match(await refusal(access, ask(access)), /^image_missing/, tag)
  }
  assert.deepEqual(registry.asked, [])
})
