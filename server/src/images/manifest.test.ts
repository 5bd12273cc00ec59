import assert from 'node:assert/strict'
import { test } from 'node:test'
import { blobsOf, choosePlatform, ImageRefused, type Manifest, parseManifest, parsePlainJson } from './manifest.ts'
import { fallbackName } from './organization-images.ts'
import { rangeStart } from './pull-through.ts'
import { ownerOf, pulledTag } from './tags.ts'

const digest = (letter: string) => `sha256:${letter.repeat(64)}`
const image = 'application/vnd.docker.distribution.manifest.v2+json'
const index = 'application/vnd.oci.image.index.v1+json'
const config = { mediaType: 'application/vnd.oci.image.config.v1+json', digest: digest('c'), size: 100 }
const layer = { mediaType: 'x', digest: digest('a'), size: 1 << 20 }

const manifest = (body: unknown, mediaType = image): Manifest => ({
  digest: digest('0'),
  mediaType,
  bytes: Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)),
})

const refused = (work: () => unknown): string => {
  try {
    work()
  } catch (error) {
    assert.ok(error instanceof ImageRefused, String(error))
    return `${error.code}: ${error.message}`
  }
  return assert.fail('it was taken')
}

test('anything but a manifest of a container image is refused', () => {
  const cases: [string, Manifest, RegExp][] = [
    ['no JSON', manifest('<html>'), /not valid/],
    ['another type than it says', manifest({ mediaType: index, config, layers: [] }), /not valid/],
    ['an image and an index at once', manifest({ config, layers: [], manifests: [] }), /not valid/],
    ['an index and an image at once', manifest({ manifests: [], layers: [] }, index), /not valid/],
    ['the first version', manifest({ fsLayers: [] }, 'application/vnd.docker.distribution.manifest.v1+json'), /type/],
    [
      'a chart',
      manifest({ config: { ...config, mediaType: 'application/vnd.cncf.helm' }, layers: [] }),
      /not a container image/,
    ],
    [
      'a layer from elsewhere',
      manifest({ config, layers: [{ ...layer, urls: ['http://10.0.0.1/'] }] }),
      /not in its registry/,
    ],
    ['a path as a digest', manifest({ config, layers: [{ ...layer, digest: '../../etc' }] }), /not valid/],
    ['another hash', manifest({ config, layers: [{ ...layer, digest: `sha512:${'a'.repeat(128)}` }] }), /not valid/],
    ['a negative size', manifest({ config, layers: [{ ...layer, size: -1 }] }), /not valid/],
    ['a size as a text', manifest({ config, layers: [{ ...layer, size: '1' }] }), /not valid/],
  ]
  for (const [what, given, why] of cases)
    assert.match(
      refused(() => parseManifest(given)),
      why,
      what,
    )
})

const parseImage = (body: object) => {
  const parsed = parseManifest(manifest(body))
  assert.equal(parsed.kind, 'image')
  return parsed as typeof parsed & { kind: 'image' }
}

test('the sizes of an image are summed from its manifest, each blob once, and refused over the limit', () => {
  const twice = parseImage({ config, layers: [layer, layer, { ...layer, digest: digest('b') }] })
  assert.deepEqual([...blobsOf(twice, 3).entries()].sort(), [
    [digest('a'), 1 << 20],
    [digest('b'), 1 << 20],
    [digest('c'), 100],
  ])
  assert.match(
    refused(() => blobsOf(twice, 1)),
    /image_refused: it has 3 MB.*SLIPWAY_IMAGE_MAX_MB allows \(1\)/,
  )
  const many = Array.from({ length: 257 }, (_, at) => ({ ...layer, digest: `sha256:${String(at).padStart(64, '0')}` }))
  assert.match(
    refused(() => blobsOf(parseImage({ config, layers: many }), 1e6)),
    /more than 256 layers/,
  )
  assert.match(
    refused(() => blobsOf(parseImage({ config: { ...config, size: 5 << 20 }, layers: [] }), 99)),
    /4 MB/,
  )
  const unequal = parseImage({ config, layers: [layer, { ...layer, size: 5 }] })
  assert.match(
    refused(() => blobsOf(unequal, 99)),
    /not valid/,
  )
})

test('of an index the image of the engine’s platform is taken', () => {
  const at = (letter: string, os: string, architecture: string, variant?: string) => ({
    digest: digest(letter),
    size: 1,
    platform: { os, architecture, variant },
  })
  const parsed = parseManifest(
    manifest(
      {
        manifests: [
          { digest: digest('e'), size: 1 },
          at('1', 'windows', 'amd64'),
          at('2', 'linux', 'amd64', 'v3'),
          at('3', 'linux', 'amd64'),
          at('4', 'linux', 'arm', 'v5'),
          at('5', 'linux', 'arm', 'v7'),
          at('6', 'linux', 'arm64', 'v8'),
        ],
      },
      index,
    ),
  ) as ReturnType<typeof parseManifest> & { kind: 'index' }
  assert.equal(choosePlatform(parsed, 'amd64'), digest('3'))
  assert.equal(choosePlatform(parsed, 'arm'), digest('5'))
  assert.equal(choosePlatform(parsed, 'arm64'), digest('6'))
  assert.match(
    refused(() => choosePlatform(parsed, 's390x')),
    /image_missing: .*linux\/s390x/,
  )
})

test('only official names that the operator lists may be replaced, and only for the public registry', () => {
  const cases: [string, string, string[], string | null][] = [
    ['docker.io/library/redis', '7', ['redis'], 'redis:7'],
    ['docker.io/library/redis', '7', ['redis:7'], 'redis:7'],
    ['docker.io/library/redis', '6', ['redis:7'], null],
    ['docker.io/library/redis', '7', ['*'], 'redis:7'],
    ['docker.io/library/redis', digest('a'), ['redis'], `redis@${digest('a')}`],
    ['docker.io/library/redis', '7', ['postgres'], null],
    ['docker.io/team/redis', '7', ['*', 'redis'], null],
    ['docker.io/library/slipway/x', '7', ['*'], null],
    ['registry.example/library/redis', '7', ['*', 'redis'], null],
    ['slipway/0190aa/pulled', 'x', ['*'], null],
  ]
  for (const [repository, tag, allowed, name] of cases) assert.equal(fallbackName({ repository, tag }, allowed), name)
})

test('the name of a pulled image reveals its organization, and another name reveals nothing', () => {
  const id = '01980000-0000-7000-8000-000000000001'
  assert.equal(ownerOf(pulledTag(id.toUpperCase(), 'a@sha256:1')), id)
  for (const other of ['redis:7', `slipway/${id}/service:1`, `x/slipway/${id}/pulled:1`, 'slipway/x/pulled:1'])
    assert.equal(ownerOf(other), null)
})

test('a range that is wanted begins where it says and ends with the blob', () => {
  const cases: [string | undefined, number | null][] = [
    [undefined, 0],
    ['bytes=0-', 0],
    ['bytes=7-', 7],
    ['bytes=7-9', 7],
    ['bytes=7-8', null],
    ['bytes=10-', null],
    ['bytes=-5', null],
    ['bytes=1-2,4-5', null],
    ['bytes=1e1-', null],
    ['lines=1-', null],
  ]
  for (const [header, start] of cases) assert.equal(rangeStart(header, 10), start, header)
})

const names = ['layers', 'digest', 'mediaType']

test('JSON that is read in one way only is parsed as it is', () => {
  for (const text of [
    '{"layers":[{"digest":"a"},{"digest":"b"}],"mediaType":"x"}',
    '{ "annotations" : { "org.example/Name": "\\"layers\\": [1]", "a": {} } }',
    '{"layers": [], "text": "a \\\\", "digest": "}"}',
    '[]',
  ])
    assert.deepEqual(parsePlainJson(text, names), JSON.parse(text), text)
})

test('a name in another case, outside of ASCII or twice is refused, for the engine could read another one', () => {
  for (const text of [
    '{"layers":[],"Layers":[{"urls":["http://127.0.0.1/"]}]}',
    '{"LAYERS":[]}',
    '{"layer\\u017f":[]}',
    '{"layerſ":[]}',
    '{"layers":[1],"layers":[]}',
    '{"layers":[],"layer\\u0073":[]}',
    '{"a":{"digest":"x","digest":"y"}}',
    '{"layers":[{"Digest":"x"}]}',
    'nothing',
  ])
    assert.equal(parsePlainJson(text, names), null, text)
})

test('texts with more or deeper values than a manifest has are refused', () => {
  const deep = `${'['.repeat(5000)}${']'.repeat(5000)}`
  assert.equal(parsePlainJson(deep, names), null)
  assert.equal(parsePlainJson(`{"a":[${'1,'.repeat(300_000)}1]}`, names), null)
  assert.ok(parsePlainJson(`{"a":[${'1,'.repeat(10_000)}1]}`, names) !== null)
})
