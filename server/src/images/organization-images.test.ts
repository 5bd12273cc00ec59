import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { connectEngine, engine } from '../../test/support/docker/docker.ts'
import {
  type Auth,
  type FakeRegistry,
  makeImage,
  startFakeRegistry,
  startTrap,
} from '../../test/support/docker/fake-registry.ts'
import { startImages, type TestImages } from '../../test/support/docker/organization-images.ts'
import { logins, registryIsMissing, startRegistry, untag } from '../../test/support/docker/registry.ts'
import { until } from '../../test/support/until.ts'
import { isEngineError } from '../lib/docker/docker-engine.ts'
import { splitTag } from '../lib/docker/image-name.ts'
import { DeploymentError } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import { Secret } from '../lib/secret.ts'
import type { ImageAccess, OrganizationImages } from './images.ts'
import { pulledTag } from './tags.ts'

const organizations: string[] = []
const newOrganization = (): string => organizations[organizations.push(newId()) - 1]!
const signal = () => AbortSignal.timeout(60_000)
const ignore = () => {}
const open: (() => Promise<unknown> | unknown)[] = []

let images: TestImages
before(async () => {
  images = await startImages({ allow: ['127.0.0.1/32'] })
})
after(async () => {
  for (const id of organizations) await images.sweep(id, [], -1, signal())
  await images.close()
  for (const close of open.reverse()) await close()
  await engine.close()
})

const start = async (auth?: Auth): Promise<FakeRegistry> => {
  const registry = await startFakeRegistry(auth)
  open.push(registry.close)
  return registry
}

const accessOf = (registry: Pick<FakeRegistry, 'host'>, more: Partial<ImageAccess> = {}): ImageAccess => ({
  organizationId: newOrganization(),
  repository: `${registry.host}/team/app`,
  tag: '1',
  origin: new URL(`http://${registry.host}`),
  login: null,
  ...more,
})

const loginOf = (username: string, password: string) => new Secret({ username, password })

const refusal = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(
    () => assert.fail('it was pulled'),
    (caught: unknown) => caught,
  )
  assert.ok(error instanceof DeploymentError, String(error))
  return `${error.code} ${error.message}`
}

interface Row {
  Id: string
  RepoTags: string[] | null
  RepoDigests: string[] | null
}

const isHeld = async (name: string): Promise<boolean> => {
  try {
    await engine.call('GET', `/images/${name}/json`)
    return true
  } catch (error) {
    if (isEngineError(error, 404)) return false
    throw error
  }
}

const namesOf = async (imageId: string): Promise<string[]> => {
  const { RepoTags, RepoDigests } = await engine.call<Row>('GET', `/images/${imageId}/json`)
  const tags = RepoTags ?? []
  // With the containerd store a name with a tag is also listed with the image's digest.
  const twice = tags.map((tag) => `${splitTag(tag).name}@${imageId}`)
  const names = [...tags, ...(RepoDigests ?? []).filter((name) => !twice.includes(name))]
  return names.filter((name) => !name.startsWith('<none>'))
}

test('what is pulled has the name of its organization on the engine and no other; another organization has nothing', async () => {
  const registry = await start({ basic: 'bot:pass' })
  const image = await makeImage()
  registry.publish('team/app:1', image)
  const access = accessOf(registry, { login: loginOf('bot', 'pass') })
  const told: string[] = []
  const held = await images.pull(access, (text) => told.push(text), signal())
  assert.equal(held.reference, `${registry.host}/team/app@${image.digest}`)
  assert.deepEqual(told, [`Pulling image ${registry.host}/team/app:1`])
  const { organizationId } = access
  assert.deepEqual(await namesOf(held.imageId), [pulledTag(organizationId, held.reference)])
  assert.equal(await images.held(organizationId, held.reference, signal()), held.imageId)
  assert.equal(await images.held(newOrganization(), held.reference, signal()), null)
  const other = accessOf(registry)
  assert.match(await refusal(images.pull(other, ignore, signal())), /^image_denied/)
  assert.match(await refusal(images.pull({ ...other, tag: image.digest }, ignore, signal())), /^image_denied/)
  assert.deepEqual(await images.pull(access, ignore, signal()), held)
})

test('nothing is pulled onto a disk that is nearly full, and what is there is still used', async () => {
  const registry = await start()
  registry.publish('team/app:1', await makeImage())
  const access = accessOf(registry)
  let isFull = true
  const watch = async <T>(work: (inner: AbortSignal) => Promise<T>, outer: AbortSignal): Promise<T> => {
    if (isFull) throw new DeploymentError('disk_full', 'The disk is nearly full.')
    return work(outer)
  }
  const watched = await startImages({ allow: ['127.0.0.1/32'], disk: { watch } })
  open.push(watched.close)
  assert.equal(await refusal(watched.pull(access, ignore, signal())), 'disk_full The disk is nearly full.')
  assert.ok(!registry.asked.some((each) => each.includes('/blobs/')))
  isFull = false
  const held = await watched.pull(access, ignore, signal())
  isFull = true
  assert.deepEqual(await watched.pull(access, ignore, signal()), held)
})

test('several who pull the same for one organization fetch it once; one who leaves does not end it for the others', async () => {
  const registry = await start()
  const image = await makeImage()
  registry.publish('team/app:1', image)
  const access = accessOf(registry)
  let isOpen = false
  const waiting: (() => void)[] = []
  registry.bend((request, response) => {
    if (isOpen || !request.url!.includes('/blobs/')) return false
    waiting.push(() => response.destroy())
    return true
  })
  const leaving = new AbortController()
  const left = images.pull(access, ignore, leaving.signal)
  const staying = [1, 2, 3].map(() => images.pull(access, ignore, signal()))
  await until(() => waiting.length > 0 && registry.asked.filter((each) => each.includes('/manifests/')).length === 4, {
    what: 'all of them to wait',
  })
  leaving.abort(new Error('canceled'))
  await assert.rejects(left, /canceled/)
  isOpen = true
  for (const release of waiting) release()
  const ids = new Set((await Promise.all(staying)).map(({ imageId }) => imageId))
  assert.equal(ids.size, 1)
  const layer = registry.asked.filter((each) => each.includes(image.blobs[1]!.digest))
  assert.ok(layer.length <= 2, layer.join('\n'))
})

test('a blob that leads to a refused address ends the pull at once with a sentence, and nothing of it stays', async () => {
  const trap = await startTrap('127.0.0.2')
  open.push(trap.close)
  const registry = await start()
  registry.publish('team/app:1', await makeImage())
  registry.bend((request, response) => {
    if (!request.url!.includes('/blobs/')) return false
    response.writeHead(307, { location: `http://${trap.host}/latest/meta-data` }).end()
    return true
  })
  const access = accessOf(registry)
  const begun = performance.now()
  assert.match(await refusal(images.pull(access, ignore, signal())), /^registry_refused .*SLIPWAY_OUTBOUND_ALLOW/)
  assert.ok(performance.now() - begun < 10_000)
  assert.equal(trap.connections(), 0)
  const rows = await engine.call<Row[]>('GET', '/images/json')
  const names = rows.flatMap(({ RepoDigests }) => RepoDigests ?? [])
  assert.ok(!names.some((name) => name.startsWith(images.address)))
})

test('a manifest that names blobs the engine has for another organization gets nothing that its registry cannot send', async () => {
  const theirs = await start({ basic: 'bot:pass' })
  const image = await makeImage({ secret: 'of the other organization' })
  theirs.publish('team/app:1', image)
  await images.pull(accessOf(theirs, { login: loginOf('bot', 'pass') }), ignore, signal())
  const [config, layer] = image.blobs
  const mine = await start()
  const without = (held: typeof image.blobs, bytes: (blob: (typeof image.blobs)[number]) => Buffer | null) => {
    mine.publish('team/app:1', image)
    mine.bend((request, response) => {
      const blob = held.find(({ digest }) => request.url!.endsWith(digest))
      if (blob === undefined) return false
      const body = bytes(blob)
      response.writeHead(body === null ? 404 : 200).end(body ?? undefined)
      return true
    })
  }
  for (const held of [[config!, layer!], [layer!]])
    for (const bytes of [() => null, ({ size }: { size: number }) => Buffer.alloc(size, 1), () => Buffer.alloc(0)]) {
      without(held, bytes)
      const access = accessOf(mine)
      assert.match(await refusal(images.pull(access, ignore, signal())), /^image_(refused|missing|unreachable) /)
      const reference = `${mine.host}/team/app@${image.digest}`
      assert.equal(await images.held(access.organizationId, reference, signal()), null)
    }
  mine.bend(null)
  assert.match((await images.pull(accessOf(mine), ignore, signal())).reference, /@sha256:/)
})

test('bytes that are not what their digest says are refused by the engine, whatever their number', async () => {
  const registry = await start()
  const image = await makeImage()
  registry.publish('team/app:1', image)
  registry.bend((request, response) => {
    if (!request.url!.endsWith(image.blobs[1]!.digest)) return false
    response.writeHead(200).end(Buffer.alloc(image.blobs[1]!.size, 1))
    return true
  })
  assert.match(await refusal(images.pull(accessOf(registry), ignore, signal())), /^image_unreachable/)
})

test('passwords of every length from 8 to 20 buy a token, and a wrong one is named as what it is', async () => {
  for (const { username, password } of logins) {
    const registry = await start({ token: `${username}:${password}` })
    registry.publish('team/app:1', await makeImage())
    const access = accessOf(registry, { login: loginOf(username, password) })
    assert.ok((await images.pull(access, ignore, signal())).imageId, `${password.length} characters`)
    const wrong = { ...access, login: loginOf(username, `${password}!`) }
    assert.match(await refusal(images.pull(wrong, ignore, signal())), /^image_denied .*rejected this login/)
  }
})

describe('Debian’s registry', { skip: registryIsMissing }, () => {
  test('it admits passwords of every length from 8 to 20', async () => {
    const registry = await startRegistry()
    open.push(registry.close)
    const query = { fromSrc: '-', repo: 'slipway-test-import', tag: newId().slice(-12) }
    const local = `${query.repo}:${query.tag}`
    const { blobs } = await makeImage()
    const imported = await engine.stream('POST', '/images/create', { query, body: blobs[1]!.bytes })
    for await (const _ of imported);
    await registry.publish(local, 'team/app', '1')
    await untag(local)
    for (const { username, password } of logins) {
      const access = accessOf(registry, { login: loginOf(username, password) })
      const { reference } = await images.pull(access, ignore, signal())
      assert.match(reference, /team\/app@sha256:/, `${password.length} characters`)
      const wrong = { ...access, login: loginOf(username, `${password}!`) }
      assert.match(await refusal(images.pull(wrong, ignore, signal())), /^image_denied/)
    }
  })
})

describe('images that the operator put on the engine', () => {
  const name = `slipway-test-held-${newId()}`
  let imageId: string

  before(async () => {
    const registry = await start()
    registry.publish('team/app:1', await makeImage())
    ;({ imageId } = await images.pull(accessOf(registry), ignore, signal()))
    for (const repo of [name, `registry.example/${name}`])
      await engine.call('POST', `/images/${imageId}/tag`, { query: { repo, tag: '1' } })
  })
  after(async () => {
    for (const each of [`${name}:1`, `registry.example/${name}:1`]) await untag(each)
  })

  const silent: Partial<ImageAccess> = { origin: new URL('http://127.0.0.1:9'), tag: '1' }

  test('one replaces that of the public registry if it does not answer, and the log says so', async () => {
    const access = accessOf({ host: 'docker.io' }, { ...silent, repository: `docker.io/library/${name}` })
    const told: string[] = []
    const held = await images.pull(access, (text) => told.push(text), signal())
    assert.deepEqual(held, { imageId, reference: imageId })
    assert.match(told.join('\n'), /Using the image with this name/)
  })

  test('under a name that is not listed, or of another registry, it is not used', async () => {
    const strict = await startImages({ allow: ['127.0.0.1/32'], engineImages: ['redis'] })
    open.push(strict.close)
    const cases: [OrganizationImages, string][] = [
      [strict, `docker.io/library/${name}`],
      [images, `docker.io/team/${name}`],
      [images, `registry.example/${name}`],
    ]
    for (const [of, repository] of cases)
      assert.match(
        await refusal(of.pull(accessOf({ host: 'x' }, { ...silent, repository }), ignore, signal())),
        /^image_/,
      )
  })

  test('a public registry that does not answer is asked once in a while, not by each of a burst', async () => {
    let looked = 0
    const offline = await startImages({
      resolve: async () => {
        looked += 1
        throw new Error('ENOTFOUND')
      },
    })
    open.push(offline.close)
    const access = accessOf({ host: 'docker.io' }, { origin: null, repository: `docker.io/library/${name}` })
    for (let times = 0; times < 5; times += 1) await offline.pull(access, ignore, signal())
    assert.equal(looked, 1)
  })
})

test('what was pulled before images had organizations is taken over by the release that names it', async () => {
  const registry = await start()
  registry.publish('team/app:1', await makeImage())
  const { imageId } = await images.pull(accessOf(registry), ignore, signal())
  const repo = `slipway-test-legacy-${newId()}`
  await engine.call('POST', `/images/${imageId}/tag`, { query: { repo, tag: '1' } })
  const organizationId = newOrganization()
  assert.equal(await images.held(organizationId, imageId, signal()), null)
  assert.equal(await images.adopt(organizationId, imageId, signal()), imageId)
  await untag(`${repo}:1`)
  assert.equal(await images.held(organizationId, imageId, signal()), imageId)
  assert.equal(await images.adopt(organizationId, `docker.io/library/x@sha256:${'a'.repeat(64)}`, signal()), null)
})

test('what the engine lost is pulled again by its digest with whatever login of the organization serves', async () => {
  const registry = await start({ basic: 'bot:pass' })
  registry.publish('team/app:1', await makeImage())
  const origin = new URL(`http://${registry.host}`)
  const own = newOrganization()
  const asked: string[] = []
  const restoring = await startImages({
    registryLogins: async (organizationId, host) => {
      asked.push(host)
      return organizationId === own
        ? [loginOf('bot', 'old'), loginOf('bot', 'pass')].map((login) => ({ origin, login }))
        : []
    },
  })
  open.push(restoring.close)
  const access = accessOf(registry, { organizationId: own, login: loginOf('bot', 'pass') })
  const { reference } = await restoring.pull(access, ignore, signal())
  await restoring.drop(own, [reference], signal())
  assert.equal(await restoring.held(own, reference, signal()), null)
  const imageId = await restoring.restore(own, reference, ignore, signal())
  assert.equal(await restoring.held(own, reference, signal()), imageId)
  assert.match(await refusal(restoring.restore(newOrganization(), reference, ignore, signal())), /^image_missing/)
  assert.match(
    await refusal(restoring.restore(own, imageId, ignore, signal())),
    /^image_missing .*no registry to pull it from/,
  )
  assert.deepEqual(asked, [registry.host, registry.host])
})

test('what an organization needs no more goes, what it needs or has just used stays, and so does everybody else’s', async () => {
  const registry = await start()
  const [one, two] = [await makeImage(), await makeImage()]
  registry.publish('team/app:1', one)
  registry.publish('team/app:2', two)
  const access = accessOf(registry)
  const { organizationId } = access
  const first = await images.pull(access, ignore, signal())
  const second = await images.pull({ ...access, tag: '2' }, ignore, signal())
  const foreign = await images.pull(accessOf(registry), ignore, signal())
  assert.ok((await images.owners()).includes(organizationId))
  await images.sweep(organizationId, [], 60_000, signal())
  assert.ok(await images.held(organizationId, first.reference, signal()))
  await images.sweep(organizationId, [first.reference], -1, signal())
  assert.ok(await images.held(organizationId, first.reference, signal()))
  assert.equal(await isHeld(second.imageId), false, 'the image itself is gone')
  await images.drop(organizationId, [first.reference], signal())
  assert.equal(await images.held(organizationId, first.reference, signal()), null)
  assert.equal(await isHeld(foreign.imageId), true)
  assert.ok(!(await images.owners()).includes(organizationId))
})

/** The engine's socket over TCP, under a name that is not known to be this machine. */
const startDistantEngine = async (): Promise<string> => {
  const server = createServer((socket) => {
    const behind = connectEngine()
    for (const [from, to] of [[socket, behind] as const, [behind, socket] as const]) {
      from.pipe(to)
      from.on('error', () => to.destroy())
    }
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  open.push(() => server.close())
  return `tcp://[::ffff:127.0.0.1]:${(server.address() as AddressInfo).port}`
}

test('an engine that cannot reach us gets a token and never a password; a registry that wants one is refused there', async () => {
  const distant = await startImages({ dockerHost: await startDistantEngine() })
  const deaf = await startImages()
  open.push(distant.close, deaf.close)
  await deaf.closeServer()
  for (const there of [distant, deaf]) {
    const registry = await start({ token: 'bot:pass' })
    registry.publish('team/app:1', await makeImage())
    const access = accessOf(registry, { login: loginOf('bot', 'pass') })
    const { imageId, reference } = await there.pull(access, ignore, signal())
    assert.deepEqual(await namesOf(imageId), [pulledTag(access.organizationId, reference)])
    const passwords = registry.asked.filter((each) => each.includes(' Basic '))
    assert.ok(passwords.length > 0 && passwords.every((each) => each.startsWith('GET /token')))
    const basic = await start({ basic: 'bot:pass' })
    basic.publish('team/app:1', await makeImage())
    const other = accessOf(basic, { login: loginOf('bot', 'pass') })
    assert.match(await refusal(there.pull(other, ignore, signal())), /^registry_refused .*requires the password/)
  }
})
