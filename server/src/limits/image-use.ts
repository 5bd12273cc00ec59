/**
 * The size of each organization's images on the engine. Their tags name the owner: `slipway/<organization>/…`. Layers
 * shared by several builds of an organization count once; they are found through the parent images that the engine
 * reports.
 */
import type { ListedImage } from '../images/listed-image.ts'

const ownerOf = (tag: string): string | undefined =>
  /^slipway\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\//.exec(tag)?.[1]

/** Counts an image and its ancestors, except those already in `counted`. */
const addImage = (images: ReadonlyMap<string, ListedImage>, start: ListedImage, counted: Set<string>): number => {
  let bytes = 0
  let at: ListedImage | undefined = start
  while (at !== undefined && !counted.has(at.Id)) {
    counted.add(at.Id)
    const parent: ListedImage | undefined = images.get(at.ParentId)
    bytes += Math.max(0, at.Size - (parent?.Size ?? 0))
    at = parent
  }
  return bytes
}

/** Bytes by organization, of all images of the engine, intermediate ones too. */
export const imageUse = (listed: readonly ListedImage[]): Map<string, number> => {
  const images = new Map(listed.map((image) => [image.Id, image]))
  const use = new Map<string, { bytes: number; counted: Set<string> }>()
  for (const image of listed)
    for (const owner of new Set((image.RepoTags ?? []).map(ownerOf))) {
      if (owner === undefined) continue
      const own = use.get(owner) ?? { bytes: 0, counted: new Set() }
      use.set(owner, own)
      own.bytes += addImage(images, image, own.counted)
    }
  return new Map([...use].map(([owner, { bytes }]) => [owner, bytes]))
}
