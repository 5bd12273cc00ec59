// Runs alone: it measures, or takes what the machine has.
import assert from 'node:assert/strict'
import { tmpdir } from 'node:os'
import { test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../test/support/docker/busybox-image.ts'
import { createFakeClock } from '../../test/support/fake-clock.ts'
import { standIn } from '../../test/support/stand-in.ts'
import { until } from '../../test/support/until.ts'
import type { ListedImage } from '../images/listed-image.ts'
import { createEngine } from '../lib/docker/docker-engine.ts'
import { ApiError, DeploymentError } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import { createLog } from '../lib/log.ts'
import { systemClock } from '../lib/time/clock.ts'
import { createWorkRegistry } from '../work/registry.ts'
import { createDisk, type DiskParts } from './disk.ts'
import { imageUse } from './image-use.ts'

const gb = 1e9
const [ours, theirs] = [newId(), newId()]
const image = (id: string, size: number, parent = '', ...tags: string[]): ListedImage => ({
  Id: id,
  ParentId: parent,
  RepoTags: tags.length === 0 ? null : tags,
  Size: size,
})

test('images count for the organization that their tags name', () => {
  const use = imageUse([
    image('a', 10, '', `slipway/${ours}/${newId()}:0123456789abcdef`),
    image('b', 20, '', `slipway/${ours}/pulled:00`, `slipway/${theirs}/pulled:00`),
    image('c', 40, '', 'busybox:1', 'slipway/tool-tofu:1', `registry.test/slipway/${ours}/x:1`, `slipway/${ours}:1`),
    image('d', 80),
  ])
  assert.deepEqual(Object.fromEntries(use), { [ours]: 30, [theirs]: 20 })
})

test('what builds of one organization have in common counts once, also the image that they start from', () => {
  const tag = (name: string) => `slipway/${ours}/${name}:1`
  const base = image('base', 100, '', tag('pulled'))
  const step = image('step', 130, 'base')
  const use = imageUse([base, step, image('one', 135, 'step', tag('one')), image('two', 150, 'step', tag('two'))])
  assert.equal(use.get(ours), 100 + 30 + 5 + 20)
  // A parent that no longer exists has an unknown size: all of the image counts.
  assert.equal(imageUse([image('one', 135, 'step', tag('one'))]).get(ours), 135)
})

const log = createLog('silent')
const diskOf = (more: Partial<DiskParts>) => {
  const folders = async () => ({ data: tmpdir() })
  const work = createWorkRegistry(systemClock)
  return createDisk({ images: null, folders, diskGb: 0, reserveMb: 0, clock: systemClock, log, work, ...more })
}
const never = new AbortController().signal

test('too much is refused with limit, value and setting; what is known is known to requests without asking', async () => {
  let asked = 0
  const images = async () => {
    asked += 1
    return [image('a', 2.54 * gb, '', `slipway/${ours}/pulled:1`), image('b', gb, '', `slipway/${theirs}/pulled:1`)]
  }
  const disk = diskOf({ images, diskGb: 2 })
  disk.refuseDeploy(ours)
  const sentence = /^The limit is 2 GB of images in an organization; it now has 2\.5\. .*SLIPWAY_LIMIT_DISK_GB\.$/
  await assert.rejects(
    disk.refuseImage(ours, never),
    (error) => error instanceof DeploymentError && error.code === 'limit_reached' && sentence.test(error.message),
  )
  assert.throws(
    () => disk.refuseDeploy(ours),
    (error) => error instanceof ApiError && error.status === 409 && sentence.test(error.message),
  )
  disk.refuseDeploy(theirs)
  await disk.refuseImage(theirs, never)
  await disk.refuseImage(newId(), never)
  assert.equal(await disk.usedGb(ours), 2.54)
  assert.equal(asked, 1)
  await disk.close()
})

test('an engine that does not answer prevents nothing, and without a limit no engine is asked', async () => {
  const images = () => Promise.reject(new Error('away'))
  const disk = diskOf({ images, diskGb: 1 })
  await disk.refuseImage(ours, never)
  disk.refuseDeploy(ours)
  assert.equal(await disk.usedGb(ours), null)
  await disk.close()
  const free = diskOf({ images: () => assert.fail('asked'), diskGb: 0 })
  await free.refuseImage(ours, never)
  free.refuseDeploy(ours)
  await free.close()
})

test('who reads the figures does not wait for an engine that hangs', async () => {
  const hanging = Promise.withResolvers<ListedImage[]>()
  const clock = createFakeClock()
  const disk = diskOf({ images: () => hanging.promise, diskGb: 1, clock })
  const used = disk.usedGb(ours)
  await clock.advance(2000)
  assert.equal(await used, null)
  hanging.resolve([])
  await disk.close()
})

test('a disk with less left than the reserve is logged, once', async () => {
  const lines: [object, string][] = []
  const listening = { ...log, error: (about: object, text: string) => void lines.push([about, text]) }
  const disk = diskOf({ reserveMb: 1e12, log: standIn<typeof log>(listening) })
  await until(() => lines.length > 0, { what: 'the line' })
  const [[about, text]] = lines as [[{ place: string; reserveMb: number }, string]]
  assert.deepEqual([about.place, about.reserveMb], ['data', 1e12])
  assert.match(text, /nearly full.*SLIPWAY_DISK_RESERVE_MB/)
  const [data] = await disk.free()
  assert.ok(data!.isLow && data!.freeBytes > 0)
  await disk.close()
  const roomy = diskOf({ reserveMb: 1, folders: async () => ({ data: tmpdir(), engine: '/not/on/this/machine' }) })
  assert.deepEqual(
    (await roomy.free()).map(({ place, isLow }) => [place, isLow]),
    [['data', false]],
  )
  await roomy.close()
})

test('images that a Docker engine has under the tags of an organization are what it uses', async (context) => {
  await ensureBusybox()
  const engine = createEngine()
  const organization = newId()
  const tags = [`slipway/${organization}/${newId()}:0123456789abcdef`, `slipway/${organization}/pulled:01`]
  context.after(async () => {
    for (const tag of tags) await engine.call('DELETE', `/images/${tag}`).catch(() => {})
    await engine.close()
  })
  for (const tag of tags) {
    const [repo, name] = tag.split(':')
    await engine.call('POST', `/images/${busyboxImage}/tag`, { query: { repo, tag: name } })
  }
  const images = (signal: AbortSignal) =>
    engine.call<ListedImage[]>('GET', '/images/json', { query: { all: true }, signal })
  const { Size: size } = await engine.call<{ Size: number }>('GET', `/images/${busyboxImage}/json`)
  const disk = diskOf({ images, diskGb: 1 })
  // One image under two tags takes its room once.
  assert.equal(await disk.usedGb(organization), Math.round(size / 1e6) / 1000)
  await disk.close()
})
