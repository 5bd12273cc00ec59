/**
 * Bytes that the images of each organization take on the engine. Their tags say whose they are:
 * `slipway/<organization>/…`. Layers that several of an organization's builds have in common count once; the engine
 * tells them by the images that each was made from.
 */

/** An image as the engine lists it. */
export interface ListedImage {
  Id: string
  /** Empty for one that was pulled, or whose parent is gone. */
  ParentId: string
  RepoTags: string[] | null
  /** With all it is made from. */
  Size: number
}

const ownerOf = (tag: string): string | undefined =>
  /^slipway\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\//.exec(tag)?.[1]

/** Counts an image and what it was made from, as far as `counted` does not have it yet. */
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
