/**
 * How the engine gets an image: through our own registry on loopback, without a credential and from no other address.
 * An engine that cannot reach our loopback (on another machine, in a virtual one) asks the registry itself, with a
 * token that is valid only for this image; it never gets a password, so a registry that requires one is refused.
 */
import { createHash } from 'node:crypto'
import { forEachParallel } from '../lib/concurrency/parallel.ts'
import type { AskedImage } from './ask-registry.ts'
import { type EngineImages, registryAuth } from './engine-images.ts'
import type { ImageAccess } from './images.ts'
import { ImageRefused } from './manifest.ts'
import type { PullThrough } from './pull-through.ts'

/** A forgotten entry is simply checked again. */
const maxKnown = 100_000
const atOnce = 4

const readDigest = async ({ blobs, open }: AskedImage, digest: string, signal: AbortSignal): Promise<string> => {
  const { body } = await open(digest, 0, signal)
  const hash = createHash('sha256')
  let left = blobs.get(digest)!
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      left -= chunk.length
      if (left < 0) break
      hash.update(chunk)
    }
  } finally {
    body.destroy()
  }
  return left === 0 ? `sha256:${hash.digest('hex')}` : ''
}

/**
 * Whether an organization may have the blobs that a manifest lists. An engine skips layers that it already has, even
 * if another organization pulled them: a manifest with the digest of another organization's layer, or of its whole
 * image, would get it without its registry having a byte of it. So blobs that the engine did not fetch are read from
 * the registry here, once per organization, and accepted only if their bytes have that digest.
 */
const createPossession = () => {
  const known = new Set<string>()
  const keyOf = (organizationId: string, digest: string): string => `${organizationId} ${digest}`

  const note = (organizationId: string, digests: Iterable<string>): void => {
    for (const digest of digests) known.add(keyOf(organizationId, digest))
    for (const oldest of known) {
      if (known.size <= maxKnown) break
      known.delete(oldest)
    }
  }

  return {
    /** Records that the organization's registry sent these, and the engine verified their digests. */
    note,
    /** Rejects with `ImageRefused` for a blob that the registry does not have. */
    async prove(organizationId: string, asked: AskedImage, signal: AbortSignal): Promise<void> {
      const open = [...asked.blobs.keys()].filter((digest) => !known.has(keyOf(organizationId, digest)))
      await forEachParallel(atOnce, open, async (digest) => {
        if ((await readDigest(asked, digest, signal)) !== digest)
          throw new ImageRefused('image_refused', 'its registry does not have all parts of its manifest')
        note(organizationId, [digest])
      })
    },
  }
}

/** The engine could not connect to us at all. */
class EngineCannotConnect extends Error {}

export const createEnginePull = (engine: EngineImages, pullThrough: PullThrough, isLocal: boolean) => {
  const possession = createPossession()

  /** Gives what was pulled the name of its organization, and removes its temporary name. */
  const take = async (pulled: string, name: string, pull: () => Promise<void>): Promise<string> => {
    try {
      await pull()
      const found = await engine.find(pulled)
      if (found === null) throw new Error('it was pulled and then removed')
      await engine.tag(found.Id, name)
      return found.Id
    } finally {
      await engine.untag(pulled, false)
    }
  }

  const through = async (
    { organizationId }: ImageAccess,
    asked: AskedImage,
    name: string,
    signal: AbortSignal,
  ): Promise<string> => {
    const ticket = pullThrough.offer(asked)
    const { digest } = asked.manifest
    const either = AbortSignal.any([signal, ticket.failed])
    try {
      return await take(`${ticket.repository}@${digest}`, name, async () => {
        await engine.pull(ticket.repository, digest, either)
        possession.note(organizationId, ticket.served)
        await possession.prove(organizationId, asked, either)
      })
    } catch (error) {
      signal.throwIfAborted()
      if (ticket.failed.aborted) throw ticket.failed.reason
      const { message } = error as Error
      const unreachable =
        !ticket.wasAsked() && /dial tcp|connection refused|no route to host|i\/o timeout/i.test(message)
      throw unreachable ? new EngineCannotConnect(message, { cause: error }) : error
    } finally {
      ticket.end()
    }
  }

  const direct = async (
    { organizationId, repository }: ImageAccess,
    asked: AskedImage,
    name: string,
    signal: AbortSignal,
  ) => {
    const told = await asked.token()
    if (told.kind === 'basic')
      throw new ImageRefused(
        'registry_refused',
        'its registry requires the password, which is not given to an engine that cannot reach this server',
      )
    // Without one the engine would follow the registry to any token service.
    const headers = registryAuth({ registrytoken: told.kind === 'token' ? told.token : 'none' })
    const { digest } = asked.manifest
    // Blobs that the engine fetches by itself cannot be seen here.
    await possession.prove(organizationId, asked, signal)
    return take(`${repository}@${digest}`, name, () => engine.pull(repository, digest, signal, headers))
  }

  /** Returns the engine's id of the image that is now named `name`. */
  return async (access: ImageAccess, asked: AskedImage, name: string, signal: AbortSignal): Promise<string> => {
    if (!isLocal) return direct(access, asked, name, signal)
    try {
      return await through(access, asked, name, signal)
    } catch (error) {
      if (!(error instanceof EngineCannotConnect)) throw error
      return direct(access, asked, name, signal)
    }
  }
}
