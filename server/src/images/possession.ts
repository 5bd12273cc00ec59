/**
 * Whether an organization may have what a manifest lists. An engine considers a layer that it already has as fetched,
 * whoever fetched it: a manifest with the digest of another organization's layer, or of its whole image, would get it
 * without its registry having a byte of it. So we read what the engine did not fetch from the registry, once per
 * organization, and accept it only if its bytes have that digest.
 */
import { createHash } from 'node:crypto'
import { forEachParallel } from '../lib/concurrency/parallel.ts'
import type { AskedImage } from './ask-registry.ts'
import { ImageRefused } from './manifest.ts'

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

export const createPossession = () => {
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
