/** Images as an engine lists them. */
import type { Keep } from '../lib/foreign-text/keep.ts'

/** An image as the engine lists it. */
export interface ListedImage {
  Id: string
  /** Empty for one that was pulled, or whose parent no longer exists. */
  ParentId: string
  RepoTags: string[] | null
  /** Including everything it is made from. */
  Size: number
}

/** The fields of the engine's list that are read. */
export const listedImages: Keep = [{ Id: true, ParentId: true, RepoTags: [true], Size: true }]
