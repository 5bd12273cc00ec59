/**
 * An image as an engine saves it (`docker save`), read once from beginning to end: layers are passed on while they are
 * read, because engines write them before the list of those that belong to the image.
 *
 * Promises: the configuration is that of the requested image, and its layers are those that it names. Safe for engines
 * on untrusted machines too: memory is bounded, and inconsistent archives are refused.
 */
import { posix } from 'node:path'
import type { Readable } from 'node:stream'
import { extract } from 'tar-stream'
import { readJson } from '../lib/foreign-text/read-json.ts'
import { digestOf, ImageRefused, maxConfigBytes, maxLayers } from './manifest.ts'

export interface TakenLayer {
  /** `sha256:…` of the stored bytes, and their size. */
  digest: string
  size: number
  mediaType: string
  /** `sha256:…` of the layer's own archive; null for one that the engine keeps compressed. */
  diffId: string | null
}

interface SavedImage {
  config: Buffer
  /** The lowest first. */
  layers: readonly TakenLayer[]
}

/** Reads the bytes of one layer to their end. The name identifies the content. */
type TakeLayer = (name: string, bytes: AsyncIterable<Buffer>) => Promise<TakenLayer>

const mostEntries = 2000
/** Small entries, kept until the archive lists what they are. */
const mostKeptBytes = 64 << 20

const refuse = (what: string): never => {
  throw new ImageRefused('image_refused', `its engine saved ${what}`)
}

const readAll = async (bytes: AsyncIterable<Buffer>): Promise<Buffer> => {
  const chunks: Buffer[] = []
  for await (const chunk of bytes) chunks.push(chunk)
  return Buffer.concat(chunks)
}

async function* only(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes
}

interface Contents {
  small: Map<string, Buffer>
  large: Map<string, TakenLayer>
  links: Map<string, string>
}

/** Older engines have a folder for each layer, newer ones a file with the name of its digest. */
const mayBeLayer = (name: string): boolean => name.endsWith('/layer.tar') || name.startsWith('blobs/sha256/')

const readContents = async (archive: Readable, take: TakeLayer): Promise<Contents> => {
  const contents: Contents = { small: new Map(), large: new Map(), links: new Map() }
  const entries = archive.pipe(extract())
  archive.on('error', (error) => entries.destroy(error))
  let left = mostKeptBytes
  let count = 0
  for await (const entry of entries) {
    const { name, type, size = 0, linkname } = entry.header
    const bytes = entry as AsyncIterable<Buffer>
    count += 1
    if (count > mostEntries) refuse('too many files')
    if (type === 'symlink') contents.links.set(name, linkname ?? '')
    if (type === 'file' && size <= Math.min(left, maxConfigBytes)) {
      left -= size
      contents.small.set(name, await readAll(bytes))
    } else if (type === 'file' && mayBeLayer(name)) contents.large.set(name, await take(name, bytes))
    else entry.resume()
  }
  return contents
}

const jsonOf = <T>(bytes: Buffer | undefined): T | null => {
  try {
    return readJson(bytes?.toString() ?? '') as T
  } catch {
    return null
  }
}

const readList = ({ small }: Contents): { config: string; layers: string[] } => {
  const list = jsonOf<{ Config?: unknown; Layers?: unknown }[]>(small.get('manifest.json'))
  const first = Array.isArray(list) ? list[0] : undefined
  const layers = first?.Layers
  if (typeof first?.Config !== 'string' || !Array.isArray(layers) || layers.length > maxLayers)
    return refuse('no list of its layers')
  return { config: first.Config, layers: layers.map(String) }
}

/** Whether the digest is that of the configuration or of a manifest in the archive: see `pinnedReference`. */
const isOf = ({ small }: Contents, imageId: string, config: Buffer): boolean => {
  const manifest = small.get(`blobs/${imageId.replace(':', '/')}`)
  return digestOf(config) === imageId || (manifest !== undefined && digestOf(manifest) === imageId)
}

/** `imageId`: the engine's. Rejects as `take` and the archive do, and with `ImageRefused` for another image. */
export const readSavedImage = async (archive: Readable, imageId: string, take: TakeLayer): Promise<SavedImage> => {
  const contents = await readContents(archive, take)
  const { small, large, links } = contents
  const list = readList(contents)
  const config = small.get(list.config) ?? refuse('no configuration')
  if (!isOf(contents, imageId, config)) refuse('a different image than requested')
  const layers: TakenLayer[] = []
  for (const listed of list.layers) {
    const target = links.get(listed)
    const name = target === undefined ? listed : posix.join(posix.dirname(listed), target)
    const bytes = small.get(name)
    const taken = large.get(name) ?? (bytes && (await take(name, only(bytes))))
    layers.push(taken ?? refuse('less than it lists'))
  }
  const diffIds = jsonOf<{ rootfs?: { diff_ids?: unknown[] } }>(config)?.rootfs?.diff_ids ?? []
  const fits =
    layers.length === diffIds.length && layers.every(({ diffId }, at) => diffId === null || diffId === diffIds[at])
  return fits ? { config, layers } : refuse('other layers than its configuration names')
}
