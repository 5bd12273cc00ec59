/** Images that an engine saved, in each of the three forms that engines have, on their way to a registry. */
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import { after, test } from 'node:test'
import { gunzipSync, gzipSync } from 'node:zlib'
import { pack } from 'tar-stream'
import {
  type Auth,
  type FakeRegistry,
  sha256,
  startFakeRegistry,
  startTrap,
} from '../../test/support/docker/fake-registry.ts'
import { registryIsMissing, login as registryLogin, startRegistry } from '../../test/support/docker/registry.ts'
import { readAll } from '../lib/docker/registry-session.ts'
import { DeploymentError } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import { createOutbound } from '../lib/net/outbound.ts'
import { Secret } from '../lib/secret.ts'
import { readableOf } from '../lib/tar-streams.ts'
import { systemClock } from '../lib/time/clock.ts'
import { askRegistry } from './ask-registry.ts'
import type { ImageAccess } from './images.ts'
import { createImagePush } from './push.ts'

const open: (() => unknown)[] = []
after(async () => {
  for (const close of open) await close()
})

const outbound = createOutbound({ allow: ['127.0.0.1/32'] })
/** Without pauses between attempts. */
const clock = { ...systemClock, sleep: async () => {} }
const newPush = () => createImagePush({ outbound, clock })
const signal = new AbortController().signal

const start = async (auth?: Auth): Promise<FakeRegistry> => {
  const registry = await startFakeRegistry(auth)
  open.push(registry.close)
  return registry
}

const accessOf = (
  { host, url }: { host: string; url: URL | string },
  more: Partial<ImageAccess> = {},
): ImageAccess => ({
  ...{ organizationId: newId(), repository: `${host}/team/app`, tag: 'content', origin: new URL(url), login: null },
  ...more,
})

/** Large layers are passed on while they are read; small ones wait until the archive lists them. */
const [large, small] = [randomBytes(5 << 20), randomBytes(1000)]

interface Saved {
  imageId: string
  files: Record<string, Buffer | { to: string }>
  config: Buffer
}

const hex = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')
const configOf = (layers: readonly Buffer[]): Buffer =>
  Buffer.from(
    JSON.stringify({
      architecture: process.arch === 'x64' ? 'amd64' : process.arch,
      os: 'linux',
      rootfs: { type: 'layers', diff_ids: layers.map(sha256) },
    }),
  )
const listOf = (config: string, layers: readonly string[]): Buffer =>
  Buffer.from(JSON.stringify([{ Config: config, RepoTags: null, Layers: layers }]))

/** Three layers, the last of which equals the first. */
const layers = [large, small, large]
const config = configOf(layers)

const older: Saved = {
  config,
  imageId: sha256(config),
  files: {
    'one/layer.tar': large,
    'two/layer.tar': small,
    'three/layer.tar': { to: '../one/layer.tar' },
    [`${hex(config)}.json`]: config,
    'manifest.json': listOf(`${hex(config)}.json`, ['one/layer.tar', 'two/layer.tar', 'three/layer.tar']),
  },
}
const blobName = (bytes: Buffer): string => `blobs/sha256/${hex(bytes)}`
const newer: Saved = {
  config,
  imageId: sha256(config),
  files: {
    [blobName(large)]: large,
    [blobName(small)]: small,
    [blobName(config)]: config,
    'manifest.json': listOf(blobName(config), layers.map(blobName)),
  },
}
const packed = layers.map((layer) => gzipSync(layer))
const ownManifest = Buffer.from('{"schemaVersion":2}')
const containerd: Saved = {
  config,
  imageId: sha256(ownManifest),
  files: {
    ...Object.fromEntries(packed.map((bytes) => [blobName(bytes), bytes])),
    [blobName(config)]: config,
    [blobName(ownManifest)]: ownManifest,
    'manifest.json': listOf(blobName(config), packed.map(blobName)),
  },
}

const archiveOf = ({ files }: Saved): Readable => {
  const archive = pack()
  for (const [name, content] of Object.entries(files))
    if (Buffer.isBuffer(content)) archive.entry({ name }, content)
    else archive.entry({ name, type: 'symlink', linkname: content.to })
  archive.finalize()
  return readableOf(archive)
}
const opening = (saved: Saved) => async () => archiveOf(saved)

/** Layers that the registry has under a digest, in order, as a client pulls them. */
const pulled = async (access: ImageAccess, digest: string): Promise<Buffer[]> => {
  const asked = await askRegistry(
    outbound,
    { ...access, tag: digest },
    { architecture: process.arch, maxMb: 100 },
    signal,
  )
  const { layers: named } = JSON.parse(asked.manifest.bytes.toString()) as {
    layers: { digest: string; size: number }[]
  }
  const bytes = await Promise.all(named.map(async (each) => readAll(await asked.open(each.digest, 0, signal))))
  assert.deepEqual(
    bytes.map((each) => [sha256(each), each.length]),
    named.map((each) => [each.digest, each.size]),
  )
  return bytes.map((each) => gunzipSync(each))
}

const failure = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(
    () => assert.fail('it was pushed'),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof DeploymentError, String(error))
  return `${error.code}: ${error.message}`
}

test('an image arrives whole, whichever form the engine saves it in, and once more under the same digest', async () => {
  for (const saved of [older, newer, containerd]) {
    const registry = await start({ token: 'me:secret' })
    const access = accessOf(registry, { login: new Secret({ username: 'me', password: 'secret' }) })
    const push = newPush()
    const digest = await push.push(access, saved.imageId, opening(saved), () => {}, signal)
    assert.deepEqual(await pulled(access, digest), layers)
    const sent = () => registry.asked.filter((line) => line.startsWith('PATCH')).length
    const before = sent()
    assert.equal(await push.push(access, saved.imageId, opening(saved), () => {}, signal), digest)
    assert.equal(sent(), before, 'what is there is not sent again')
    assert.ok(await push.isThere({ ...access, tag: digest }, signal))
    assert.equal(await push.isThere({ ...access, tag: sha256(small) }, signal), false)
  }
})

test('a real registry takes an image, and gives it back', { skip: registryIsMissing }, async () => {
  const registry = await startRegistry()
  open.push(registry.close)
  const access = accessOf(registry, { login: new Secret(registryLogin) })
  const lines: string[] = []
  const digest = await newPush().push(access, older.imageId, opening(older), (line) => lines.push(line), signal)
  assert.deepEqual(await pulled(access, digest), layers)
  assert.match(lines.join('\n'), /^Pushing the image to .*\nPushed a layer of 5\.0 MB\./)
  assert.ok(!lines.join('').includes(registryLogin.password))
  const wrong = accessOf(registry, { login: new Secret({ ...registryLogin, password: 'other' }) })
  assert.match(
    await failure(newPush().push(wrong, older.imageId, opening(older), () => {}, signal)),
    /^image_denied: Image .* cannot be pushed: its registry rejected this login\.$/,
  )
})

const end = (response: ServerResponse, status: number, headers: Record<string, string> = {}): true => {
  response.writeHead(status, headers).end()
  return true
}

const isUpload = ({ method, url }: IncomingMessage, wanted: string): boolean =>
  method === wanted && url!.includes('/blobs/uploads/')

test('a registry that answers nonsense is reported, after few attempts', async () => {
  const trap = await startTrap('127.0.0.2')
  open.push(trap.close)
  const cases: [string, (request: IncomingMessage, response: ServerResponse) => boolean, RegExp][] = [
    ['no place', (request, response) => isUpload(request, 'POST') && end(response, 202), /does not say where/],
    [
      'a place elsewhere',
      (request, response) => isUpload(request, 'POST') && end(response, 202, { location: `http://${trap.host}/x` }),
      /redirects to another host/,
    ],
    [
      'a redirect with the layer',
      (request, response) => isUpload(request, 'PATCH') && end(response, 307, { location: `http://${trap.host}/x` }),
      /status 307|connection/,
    ],
    ['faults', (request, response) => isUpload(request, 'POST') && end(response, 500), /status 500/],
    ['success too early', (request, response) => isUpload(request, 'PUT') && end(response, 200), /status 200/],
    [
      'no repository',
      (request, response) => isUpload(request, 'POST') && end(response, 404),
      /^image_missing: .*create it there/,
    ],
    ['no right', (request, response) => isUpload(request, 'POST') && end(response, 403), /^image_denied/],
    [
      'another manifest',
      (request, response) =>
        request.method === 'PUT' &&
        request.url!.includes('/manifests/') &&
        end(response, 201, { 'docker-content-digest': sha256('other') }),
      /^image_refused: .*keeps something else/,
    ],
    [
      'a long answer',
      (request, response) => {
        if (!isUpload(request, 'POST')) return false
        response.writeHead(202, { location: '/v2/x' }).end(Buffer.alloc(1 << 20))
        return true
      },
      /more was sent than announced/,
    ],
  ]
  for (const [what, handle, told] of cases) {
    const registry = await start()
    registry.bend(handle)
    assert.match(
      await failure(newPush().push(accessOf(registry), older.imageId, opening(older), () => {}, signal)),
      told,
      what,
    )
    assert.ok(registry.asked.length < 20, `${what}: ${registry.asked.length} requests`)
  }
  assert.equal(trap.connections(), 0)
})

test('an interrupted push resumes from the existing parts, and a canceled one ends at once', async () => {
  const registry = await start()
  let cuts = 1
  registry.bend((request) => {
    if (request.method !== 'PUT' || !request.url!.includes('/manifests/') || cuts === 0) return false
    cuts -= 1
    request.socket.destroy()
    return true
  })
  const access = accessOf(registry)
  const lines: string[] = []
  const digest = await newPush().push(access, newer.imageId, opening(newer), (line) => lines.push(line), signal)
  assert.deepEqual(await pulled(access, digest), layers)
  assert.ok(lines.includes('A layer exists already.'))

  const control = new AbortController()
  const silent = await start()
  silent.bend((request) => {
    if (!isUpload(request, 'POST')) return false
    control.abort(new Error('canceled'))
    return true
  })
  const archive = archiveOf(older)
  await assert.rejects(
    newPush().push(
      accessOf(silent),
      older.imageId,
      async () => archive,
      () => {},
      control.signal,
    ),
    /canceled/,
  )
  assert.ok(archive.destroyed)
})

test('what an engine saves in place of the image is not pushed', async () => {
  const without = (name: string): Saved => ({
    ...newer,
    files: Object.fromEntries(Object.entries(newer.files).filter(([each]) => each !== name)),
  })
  const cases: [Saved, RegExp][] = [
    [{ ...newer, imageId: sha256('other') }, /a different image/],
    [without('manifest.json'), /no list of its layers/],
    [without(blobName(small)), /less than it lists/],
    [without(blobName(config)), /no configuration/],
    [{ ...newer, files: { ...newer.files, [blobName(small)]: Buffer.from('changed') } }, /other layers/],
    [{ ...newer, files: { ...newer.files, 'manifest.json': Buffer.from('[null]') } }, /no list/],
    [
      { ...newer, files: Object.fromEntries(Array.from({ length: 2001 }, (_, n) => [`${n}.json`, Buffer.alloc(1)])) },
      /too many files/,
    ],
  ]
  for (const [saved, told] of cases) {
    const registry = await start()
    const work = newPush().push(accessOf(registry), saved.imageId, opening(saved), () => {}, signal)
    assert.match(await failure(work), new RegExp(`^image_refused: .*${told.source}`))
    assert.ok(!registry.asked.some((line) => line.includes('/manifests/')))
  }
})
