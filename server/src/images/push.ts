/**
 * Pushes an image that an engine built to a registry, by our own client and with the organization's login: the engine
 * sees no credential and chooses no address.
 *
 * Promises: the registry has the whole image, under the digest that is returned, when a push resolves; the password is
 * sent only where a `RegistrySession` sends it; a registry that does not answer, or answers nonsense, ends it.
 * Existing blobs are not sent again. When the process dies, the registry drops unfinished uploads. Does not know:
 * services, clusters and the database.
 */
import { createHash, type Hash } from 'node:crypto'
import { Readable, Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { constants, createGzip } from 'node:zlib'
import {
  createRegistrySession,
  RegistryError,
  type RegistrySession,
  refuseStatus,
} from '../lib/docker/registry-session.ts'
import { DeploymentError } from '../lib/errors.ts'
import type { Outbound } from '../lib/net/outbound.ts'
import type { OutboundStream } from '../lib/net/outbound-stream.ts'
import type { Clock } from '../lib/time/clock.ts'
import { askDigest, explain, nameOf, originOf, splitHost } from './ask-registry.ts'
import { maxTries, pauseMs } from './asking.ts'
import type { ImageAccess } from './images.ts'
import { digestOf, ImageRefused } from './manifest.ts'
import { readSavedImage, type TakenLayer } from './saved-image.ts'

export interface ImagePush {
  /** Whether the registry has what the tag of `image`, a digest, names. Rejects as `push` does. */
  isThere(image: ImageAccess, signal: AbortSignal): Promise<boolean>
  /**
   * Resolves to the digest that the registry has the image under. `open` reads it as its engine saves it, anew for each
   * attempt. Rejects with a `DeploymentError` that names the image: `image_denied`, `image_missing` (the registry has
   * no such repository, and makes none), `image_unreachable`, `image_refused`, `registry_refused`.
   */
  push(
    image: ImageAccess,
    imageId: string,
    open: (signal: AbortSignal) => Promise<Readable>,
    onLog: (line: string) => void,
    signal: AbortSignal,
  ): Promise<string>
}

const manifestType = 'application/vnd.docker.distribution.manifest.v2+json'
const configType = 'application/vnd.docker.container.image.v1+json'
const layerType = 'application/vnd.docker.image.rootfs.diff.tar'

const maxAnswerBytes = 64 << 10
const longestAddress = 4096
const silenceMs = 60_000
/** A forgotten layer is compressed and looked up once more. */
const mostKnown = 10_000

const finish = async <T extends OutboundStream>(answer: T): Promise<T> => {
  answer.body.resume()
  await new Promise<void>((resolve, reject) => answer.body.once('close', resolve).once('error', reject))
  return answer
}

/** Throws unless it was done as asked. */
const accept = async (asked: Promise<OutboundStream>, wanted: readonly number[]): Promise<OutboundStream> => {
  const answer = await finish(await asked)
  if (!wanted.includes(answer.status)) {
    refuseStatus(answer)
    throw new RegistryError('failed', `The registry answered with status ${answer.status}.`)
  }
  return answer
}

/** Where the registry wants the next part: one of its own addresses. */
const nextPlace = ({ headers }: OutboundStream): string => {
  const place = headers.location ?? ''
  if (place !== '' && place.length <= longestAddress) return place
  throw new RegistryError('failed', 'The registry does not say where to send a layer.')
}

const withDigest = (place: string, digest: string): string =>
  `${place}${place.includes('?') ? '&' : '?'}digest=${encodeURIComponent(digest)}`

const common = { maxBytes: maxAnswerBytes, silenceMs }

const createRepository = (session: RegistrySession, name: string) => {
  const base = `/v2/${name}`
  const begin = async (): Promise<string> => {
    return nextPlace(await accept(session.open('POST', `${base}/blobs/uploads/`, common), [202]))
  }
  const hasBlob = async (digest: string): Promise<boolean> => {
    const answer = await finish(await session.open('HEAD', `${base}/blobs/${digest}`, common))
    if (answer.status !== 404) refuseStatus(answer)
    return answer.status === 200
  }
  return {
    hasBlob,
    /** `body` is read before its digest is known. */
    async sendBlob(body: Readable, digest: () => string): Promise<void> {
      const headers = { 'content-type': 'application/octet-stream' }
      const sent = session.open('PATCH', await begin(), { ...common, headers, body })
      const place = nextPlace(await accept(sent, [202]))
      if (!body.readableEnded) throw new RegistryError('failed', 'The registry did not read a layer to its end.')
      await accept(session.open('PUT', withDigest(place, digest()), common), [201])
    },
    async sendBytes(bytes: Buffer): Promise<string> {
      const digest = digestOf(bytes)
      if (await hasBlob(digest)) return digest
      const headers = { 'content-type': 'application/octet-stream' }
      await accept(session.open('PUT', withDigest(await begin(), digest), { ...common, headers, body: bytes }), [201])
      return digest
    },
    async sendManifest(tag: string, bytes: Buffer): Promise<string> {
      const headers = { 'content-type': manifestType }
      const answer = await accept(
        session.open('PUT', `${base}/manifests/${tag}`, { ...common, headers, body: bytes }),
        [201, 202],
      )
      const digest = digestOf(bytes)
      const told = answer.headers['docker-content-digest']
      if (told !== undefined && told !== digest)
        throw new ImageRefused('image_refused', 'its registry keeps something else than was sent')
      return digest
    },
  }
}

type Repository = ReturnType<typeof createRepository>

/** Passes bytes on and counts them. */
const counting = (hash: Hash, onBytes: (count: number) => void = () => {}): Transform =>
  new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk)
      onBytes(chunk.length)
      done(null, chunk)
    },
  })

/** Returns the first bytes, and a stream of all of them. */
const lookInto = async (bytes: AsyncIterable<Buffer>): Promise<{ head: Buffer; all: AsyncIterable<Buffer> }> => {
  const reader = bytes[Symbol.asyncIterator]()
  const first = await reader.next()
  const head: Buffer = first.done === true ? Buffer.alloc(0) : first.value
  const all = async function* () {
    yield head
    yield* { [Symbol.asyncIterator]: () => reader }
  }
  return { head, all: all() }
}

const compressions: [Buffer, string][] = [
  [Buffer.from([0x1f, 0x8b]), `${layerType}.gzip`],
  [Buffer.from([0x28, 0xb5, 0x2f, 0xfd]), 'application/vnd.oci.image.layer.v1.tar+zstd'],
]

/** A layer as it is stored: compressed, if it was not. `digest` and `size` are known after it was read. */
const storedForm = async (bytes: AsyncIterable<Buffer>, signal: AbortSignal) => {
  const { head, all } = await lookInto(bytes)
  const compressed = compressions.find(([mark]) => head.subarray(0, mark.length).equals(mark))
  const [own, stored] = [createHash('sha256'), createHash('sha256')]
  let size = 0
  const out = counting(stored, (count) => {
    size += count
  })
  const parts = compressed === undefined ? [counting(own), createGzip({ level: constants.Z_BEST_SPEED })] : []
  // The reader of `out` gets the failure from it.
  pipeline([Readable.from(all), ...parts, out], { signal }).catch(() => {})
  let digest: string | undefined
  const digestNow = (): string => {
    digest ??= `sha256:${stored.digest('hex')}`
    return digest
  }
  const taken = (): TakenLayer => ({
    digest: digestNow(),
    size,
    mediaType: compressed?.[1] ?? `${layerType}.gzip`,
    diffId: compressed === undefined ? `sha256:${own.digest('hex')}` : null,
  })
  return { out, digest: digestNow, taken }
}

const inMb = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MB`

const createTakeLayer =
  (
    known: Map<string, TakenLayer>,
    organizationId: string,
    to: Repository,
    onLog: (line: string) => void,
    signal: AbortSignal,
  ) =>
  async (name: string, bytes: AsyncIterable<Buffer>): Promise<TakenLayer> => {
    const key = `${organizationId} ${name}`
    const before = known.get(key)
    if (before !== undefined && (await to.hasBlob(before.digest))) {
      for await (const _ of bytes);
      onLog('A layer exists already.')
      return before
    }
    const { out, digest, taken } = await storedForm(bytes, signal)
    await to.sendBlob(out, digest)
    const layer = taken()
    onLog(`Pushed a layer of ${inMb(layer.size)}.`)
    known.set(key, layer)
    for (const oldest of known.keys()) {
      if (known.size <= mostKnown) break
      known.delete(oldest)
    }
    return layer
  }

const manifestOf = (config: Buffer, layers: readonly TakenLayer[]): Buffer =>
  Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: manifestType,
      config: { mediaType: configType, size: config.length, digest: digestOf(config) },
      layers: layers.map(({ mediaType, size, digest }) => ({ mediaType, size, digest })),
    }),
  )

const isPassing = (error: unknown): boolean => {
  const { code } = error as { code?: string }
  return code === 'connection' || code === 'timeout' || (error instanceof RegistryError && code === 'failed')
}

export const createImagePush = ({ outbound, clock }: { outbound: Outbound; clock: Clock }): ImagePush => {
  const known = new Map<string, TakenLayer>()
  return {
    async isThere(image, signal) {
      try {
        await askDigest(outbound, image, signal)
        return true
      } catch (error) {
        signal.throwIfAborted()
        if (error instanceof RegistryError && error.code === 'missing') return false
        throw explain(image, error, 'pushed')
      }
    },
    async push(image, imageId, open, onLog, signal) {
      const { name } = splitHost(image.repository)
      const once = async (): Promise<string> => {
        const session = createRegistrySession(outbound, { url: originOf(image), login: image.login }, signal)
        const to = createRepository(session, name)
        const archive = await open(signal)
        try {
          const take = createTakeLayer(known, image.organizationId, to, onLog, signal)
          const { config, layers } = await readSavedImage(archive, imageId, take)
          await to.sendBytes(config)
          return await to.sendManifest(image.tag, manifestOf(config, layers))
        } finally {
          archive.destroy()
        }
      }
      onLog(`Pushing the image to ${nameOf(image)}.`)
      for (let tried = 1; ; tried += 1)
        try {
          return await once()
        } catch (error) {
          signal.throwIfAborted()
          if (error instanceof DeploymentError) throw error
          if (tried === maxTries || !isPassing(error)) throw explain(image, error, 'pushed')
          onLog('The registry did not take all of it: trying again.')
          await clock.sleep(pauseMs * tried, signal)
        }
    },
  }
}
