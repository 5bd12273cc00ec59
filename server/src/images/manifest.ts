/** Image manifests: which one fits an engine, and its blobs. Pure: bytes in, a verdict out. */
import { createHash } from 'node:crypto'
import { readJson } from '../lib/foreign-text/read-json.ts'
import { words } from '../lib/words.ts'

// JSON that every parser reads in the same way. The engine parses the texts checked here again with its own parser,
// which ignores the case of names and treats duplicate names differently: such texts are refused. Pure.
/** Every name before a colon; strings and names end at their closing quote. */
const countNames = (text: string): number => {
  let count = 0
  for (const [, colon] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"\s*(:?)/g)) if (colon === ':') count += 1
  return count
}

/** The names in a parsed value, and those that another parser could read differently. */
const namesIn = (value: unknown, known: ReadonlyMap<string, string>): { count: number; strange: boolean } => {
  let count = 0
  let strange = false
  const open = [value]
  while (open.length > 0) {
    const each = open.pop()
    if (typeof each !== 'object' || each === null) continue
    if (!Array.isArray(each))
      for (const name of Object.keys(each)) {
        count += 1
        const meant = known.get(name.toLowerCase())
        // Some letters outside ASCII fold to ASCII ones.
        strange ||= !/^[ -~]*$/.test(name) || (meant !== undefined && meant !== name)
      }
    for (const inner of Object.values(each)) open.push(inner)
  }
  return { count, strange }
}

/** Parses a text; null if it is not JSON, has more values than a manifest can need, or `names` in it could be read in two ways. */
export const parsePlainJson = (text: string, names: readonly string[]): unknown => {
  let value: unknown
  try {
    value = readJson(text, { mostValues: 20_000 })
  } catch {
    return null
  }
  const { count, strange } = namesIn(value, new Map(names.map((name) => [name.toLowerCase(), name])))
  return strange || count !== countNames(text) ? null : value
}

export interface Manifest {
  /** `sha256:…` of these bytes, computed by us. */
  digest: string
  mediaType: string
  bytes: Buffer
}

/** Why this image is not used: the end of a sentence that begins with its name; `code` of a `DeploymentError`. */
export class ImageRefused extends Error {
  readonly code: string

  constructor(code: string, why: string) {
    super(why)
    this.name = 'ImageRefused'
    this.code = code
  }
}

/** Digest → size. */
export type Blobs = ReadonlyMap<string, number>

interface Descriptor {
  digest: string
  size: number
}

interface Platform {
  os: string
  architecture: string
  variant: string
}

type Parsed =
  | { kind: 'index'; manifests: (Descriptor & { platform: Platform })[] }
  | { kind: 'image'; config: Descriptor; layers: Descriptor[] }

const indexes = ['application/vnd.oci.image.index.v1+json', 'application/vnd.docker.distribution.manifest.list.v2+json']
const manifests = ['application/vnd.oci.image.manifest.v1+json', 'application/vnd.docker.distribution.manifest.v2+json']
const configs = ['application/vnd.oci.image.config.v1+json', 'application/vnd.docker.container.image.v1+json']

export const acceptedTypes = [...indexes, ...manifests].join(', ')

/** The parts of a manifest that an engine reads. */
const readNames = words(
  'schemaVersion mediaType artifactType config layers manifests digest size urls data platform os architecture',
  'variant subject annotations',
)

export const maxLayers = 256
/** The engine reads it into its memory. */
export const maxConfigBytes = 4 << 20

export const digestOf = (bytes: Buffer): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

export const isDigest = (text: unknown): text is string =>
  typeof text === 'string' && /^sha256:[0-9a-f]{64}$/.test(text)

const refuse = (why: string): never => {
  throw new ImageRefused('image_refused', why)
}

const recordOf = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}

const descriptorOf = (value: unknown): Descriptor => {
  const { digest, size, urls } = recordOf(value)
  // An engine would fetch it from that address by itself.
  if (Array.isArray(urls) && urls.length > 0) refuse('one of its layers is not in its registry')
  if (!isDigest(digest) || !Number.isSafeInteger(size) || (size as number) < 0) refuse('its manifest is not valid')
  return { digest: digest as string, size: size as number }
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')

const platformOf = (value: unknown): Platform => {
  const { os, architecture, variant } = recordOf(value)
  return { os: textOf(os), architecture: textOf(architecture), variant: textOf(variant) }
}

const parseIndex = ({ manifests, layers }: Record<string, unknown>): Parsed => {
  // A manifest that one reader could take for an index and another for an image is refused.
  if (!Array.isArray(manifests) || layers !== undefined) return refuse('its manifest is not valid')
  return {
    kind: 'index',
    manifests: manifests.map((each) => ({ ...descriptorOf(each), platform: platformOf(recordOf(each).platform) })),
  }
}

const parseImage = ({ manifests, layers, config }: Record<string, unknown>): Parsed => {
  if (!Array.isArray(layers) || manifests !== undefined) return refuse('its manifest is not valid')
  if (!configs.includes(textOf(recordOf(config).mediaType))) refuse('it is not a container image')
  return { kind: 'image', config: descriptorOf(config), layers: layers.map(descriptorOf) }
}

export const parseManifest = ({ bytes, mediaType }: Manifest): Parsed => {
  const fields = recordOf(parsePlainJson(bytes.toString('utf8'), readNames))
  if (fields.mediaType !== undefined && fields.mediaType !== mediaType) refuse('its manifest is not valid')
  if (indexes.includes(mediaType)) return parseIndex(fields)
  return manifests.includes(mediaType)
    ? parseImage(fields)
    : refuse('its manifest has a type that engines do not support')
}

/** The engine's own variant first, then the plainest. */
const variantRank: Record<string, readonly string[]> = {
  arm64: ['', 'v8'],
  arm: ['v7', 'v6', 'v5', ''],
}

/** The digest of the image for this architecture in an index. */
export const choosePlatform = (parsed: Parsed & { kind: 'index' }, architecture: string): string => {
  const fitting = parsed.manifests.filter(
    ({ platform }) => platform.os === 'linux' && platform.architecture === architecture,
  )
  const order = variantRank[architecture] ?? ['']
  const rank = (variant: string) => (order.includes(variant) ? order.indexOf(variant) : order.length)
  const [best] = fitting.sort((a, b) => rank(a.platform.variant) - rank(b.platform.variant))
  if (best === undefined)
    throw new ImageRefused('image_missing', `its registry does not have it for linux/${architecture}`)
  return best.digest
}

/** The blobs of an image; throws if they are too large. */
export const blobsOf = ({ config, layers }: Parsed & { kind: 'image' }, maxMb: number): Blobs => {
  if (layers.length > maxLayers) refuse(`it has more than ${maxLayers} layers`)
  if (config.size > maxConfigBytes) refuse(`its configuration is larger than ${maxConfigBytes >> 20} MB`)
  const blobs = new Map<string, number>()
  for (const { digest, size } of [config, ...layers]) {
    if ((blobs.get(digest) ?? size) !== size) refuse('its manifest is not valid')
    blobs.set(digest, size)
  }
  const bytes = [...blobs.values()].reduce((sum, size) => sum + size, 0)
  if (bytes > maxMb * 2 ** 20)
    refuse(`it has ${Math.ceil(bytes / 2 ** 20)} MB, more than SLIPWAY_IMAGE_MAX_MB allows (${maxMb})`)
  return blobs
}
