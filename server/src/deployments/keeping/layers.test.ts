import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ListedImage } from '../../images/listed-image.ts'
import { judgeLayers, type Layer } from './layers.ts'

const mb = 2 ** 20

const image = (Id: string, ParentId: string, sizeMb: number, tag?: string): ListedImage => ({
  ...{ Id, ParentId, Size: sizeMb * mb, RepoTags: tag === undefined ? ['<none>:<none>'] : [tag] },
})

const layer = (imageId: string, more: Partial<Layer> = {}): Layer => ({
  ...{ key: `key of ${imageId}`, organizationId: 'o', imageId, idleDays: 0, mayBeInUse: false },
  ...more,
})

/** A base; an image on two layers; and the stage of an earlier build, of two layers too. */
const listed = [
  image('base', '', 100, 'base:1'),
  image('a1', 'base', 110),
  image('a2', 'a1', 150, 'slipway/o/s:1'),
  image('b1', 'base', 130),
  image('b2', 'b1', 170),
]
const all = ['b1', 'b2', 'a1', 'a2'].map((id) => layer(id))
const keeping = { buildCacheDays: 14, buildCacheMb: 1000 }

test('layers of a named image stay and cost nothing, others stay up to the limit of their organization', () => {
  assert.deepEqual(judgeLayers(all, listed, keeping), { old: [], lost: [] })
  const old = (buildCacheMb: number) =>
    judgeLayers(all, listed, { ...keeping, buildCacheMb }).old.map(({ imageId, bytes, why }) => [
      imageId,
      bytes / mb,
      why,
    ])
  assert.deepEqual(old(70), [])
  assert.deepEqual(old(50), [['b1', 30, 'too much']])
  assert.deepEqual(old(0), [
    ['b1', 30, 'too much'],
    ['b2', 40, 'too much'],
  ])
})

test('a layer that no build has used for days goes, one that a deployment may use stays, a lost one is forgotten', () => {
  const layers = [
    layer('b1', { idleDays: 15 }),
    layer('b2', { idleDays: 15, mayBeInUse: true }),
    layer('a1', { idleDays: 15 }),
    layer('removed'),
  ]
  const { old, lost } = judgeLayers(layers, listed, keeping)
  assert.deepEqual(
    old.map(({ imageId, why }) => [imageId, why]),
    [['b1', 'unused']],
  )
  assert.deepEqual(lost, ['key of removed'])
})

test('the layers of one organization do not count for another', () => {
  const layers = [layer('b1', { organizationId: 'p' }), layer('b2')]
  const { old } = judgeLayers(layers, listed, { ...keeping, buildCacheMb: 35 })
  assert.deepEqual(
    old.map(({ organizationId, imageId }) => [organizationId, imageId]),
    [['o', 'b2']],
  )
})
