/**
 * Asks a registry what an image name refers to now, and opens its blobs, with our own client and the organization's
 * login.
 */

import { joinTag } from '../lib/docker/image-name.ts'
import {
  createRegistrySession,
  isHub,
  RegistryError,
  type RegistrySession,
  readAll,
  refuseStatus,
} from '../lib/docker/registry-session.ts'
import { DeploymentError } from '../lib/errors.ts'
import { type Outbound, OutboundFailed, OutboundRefused } from '../lib/net/outbound.ts'
import type { OutboundStream } from '../lib/net/outbound-stream.ts'
import type { ImageAccess } from './images.ts'
import {
  acceptedTypes,
  type Blobs,
  blobsOf,
  choosePlatform,
  digestOf,
  ImageRefused,
  isDigest,
  type Manifest,
  parseManifest,
} from './manifest.ts'

/** Parsed on the main thread: real ones have a few kilobytes. */
const maxManifestBytes = 1 << 20
const namePattern = /^[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*$/
const tagPattern = /^(?:\w[\w.-]{0,127}|sha256:[0-9a-f]{64})$/

export interface AskedImage {
  /** The registry's digest of the tag: that of an index if the name has several platforms. */
  digest: string
  /** The one for the engine. */
  manifest: Manifest
  blobs: Blobs
  /** The bytes of a blob of this image, starting at `from` if the registry supports that. */
  open(digest: string, from: number, signal: AbortSignal): Promise<OutboundStream>
  /** See `RegistrySession.token`. */
  token(): ReturnType<RegistrySession['token']>
}

export const nameOf = ({ repository, tag }: Pick<ImageAccess, 'repository' | 'tag'>): string => joinTag(repository, tag)

/** Host, and the name within its registry. */
export const splitHost = (repository: string): { host: string; name: string } => {
  const slash = repository.indexOf('/')
  return { host: repository.slice(0, Math.max(slash, 0)), name: repository.slice(slash + 1) }
}

type Refusal = (
  access: Pick<ImageAccess, 'repository' | 'tag'>,
  code: string,
  why: string,
  cause?: unknown,
) => DeploymentError

const refusalOf =
  (done: 'pulled' | 'pushed'): Refusal =>
  (access, code, why, cause) =>
    new DeploymentError(code, `Image ${nameOf(access)} cannot be ${done}: ${why}.`, { cause })

const refusal = refusalOf('pulled')

const deniedTo = (access: ImageAccess, error: RegistryError, refusal: Refusal): DeploymentError => {
  // Our own refusals say what to do.
  if (/plain http/.test(error.message)) return refusal(access, 'image_denied', error.message.replace(/\.$/, ''), error)
  if (access.login !== null) return refusal(access, 'image_denied', 'its registry rejected this login', error)
  // The public registry responds this way for names that it does not have.
  return isHub(splitHost(access.repository).host)
    ? refusal(access, 'image_missing', 'its registry has no such image, or it is private', error)
    : refusal(access, 'image_denied', 'its registry requires a login', error)
}

const reasonOf = ({ message }: OutboundRefused): string => message.replace(/^this address cannot be used: /, '')

const missing = {
  pulled: 'its registry has no such image',
  pushed:
    'its registry has no such repository: create it there, or choose a registry that makes repositories by itself',
}

/** A failure of a registry as one sentence that names the image. */
export const explain = (access: ImageAccess, error: unknown, done: 'pulled' | 'pushed' = 'pulled'): unknown => {
  const refusal = refusalOf(done)
  if (error instanceof ImageRefused) return refusal(access, error.code, error.message, error)
  if (error instanceof OutboundRefused)
    return refusal(access, 'registry_refused', `an address of its registry is not allowed (${reasonOf(error)})`, error)
  if (error instanceof OutboundFailed)
    return refusal(access, 'image_unreachable', `its registry does not answer (${error.message})`, error)
  if (!(error instanceof RegistryError)) return error
  if (error.code === 'denied') return deniedTo(access, error, refusal)
  return error.code === 'missing'
    ? refusal(access, 'image_missing', missing[done], error)
    : refusal(access, 'image_unreachable', `its registry cannot be used (${error.message.replace(/\.$/, '')})`, error)
}

/** Throws for a name whose URL could be anything other than a manifest's. */
export const originOf = (access: ImageAccess): URL => {
  const { host, name } = splitHost(access.repository)
  const origin = access.origin ?? URL.parse(`https://${host}`)
  if (host === '' || origin === null || !namePattern.test(name) || !tagPattern.test(access.tag))
    throw refusal(access, 'image_missing', 'it is not a valid image name')
  return origin
}

const typeOf = ({ headers }: OutboundStream): string => (headers['content-type'] ?? '').split(';')[0]!.trim()

const fetchManifest = async (session: RegistrySession, name: string, tag: string): Promise<Manifest> => {
  const headers = { accept: acceptedTypes }
  const answer = await session.open('GET', `/v2/${name}/manifests/${tag}`, { maxBytes: maxManifestBytes, headers })
  const bytes = await readAll(answer)
  refuseStatus(answer)
  const digest = digestOf(bytes)
  const told = answer.headers['docker-content-digest']
  if ((isDigest(tag) && tag !== digest) || (isDigest(told) && told !== digest))
    throw new ImageRefused('image_refused', 'the content from its registry does not match its digest')
  return { digest, mediaType: typeOf(answer), bytes }
}

/** The digest without the manifest, which some registries count as a pull; null if the answer has none. */
const headDigest = async (session: RegistrySession, name: string, tag: string): Promise<string | null> => {
  const headers = { accept: acceptedTypes }
  const answer = await session.open('HEAD', `/v2/${name}/manifests/${tag}`, { maxBytes: maxManifestBytes, headers })
  answer.body.destroy()
  const told = answer.headers['docker-content-digest']
  return answer.status === 200 && isDigest(told) ? told : null
}

/** Only the digest, regardless of the engine's platform. Whatever is pulled later is checked against its own. */
export const askDigest = async (outbound: Outbound, access: ImageAccess, signal: AbortSignal): Promise<string> => {
  const session = createRegistrySession(outbound, { url: originOf(access), login: access.login }, signal)
  const { name } = splitHost(access.repository)
  const told = isDigest(access.tag) ? null : await headDigest(session, name, access.tag)
  return told ?? (await fetchManifest(session, name, access.tag)).digest
}

export const askRegistry = async (
  outbound: Outbound,
  access: ImageAccess,
  platform: { architecture: string; maxMb: number },
  signal: AbortSignal,
): Promise<AskedImage> => {
  const place = { url: originOf(access), login: access.login }
  const { name } = splitHost(access.repository)
  const asking = createRegistrySession(outbound, place, signal)
  const named = await fetchManifest(asking, name, access.tag)
  const first = parseManifest(named)
  const manifest =
    first.kind === 'image' ? named : await fetchManifest(asking, name, choosePlatform(first, platform.architecture))
  const parsed = parseManifest(manifest)
  if (parsed.kind !== 'image') throw new ImageRefused('image_refused', 'its manifest is not valid')
  const blobs = blobsOf(parsed, platform.maxMb)
  // Others may wait for the same pull: it continues even if the first one does not.
  const fetching = createRegistrySession(outbound, place)
  return {
    digest: named.digest,
    manifest,
    blobs,
    token: () => fetching.token(`/v2/${name}/manifests/${manifest.digest}`),
    open(digest, from, ended) {
      const headers = from === 0 ? undefined : { range: `bytes=${from}-` }
      return fetching.open('GET', `/v2/${name}/blobs/${digest}`, {
        maxBytes: blobs.get(digest)!,
        headers,
        signal: ended,
      })
    },
  }
}
