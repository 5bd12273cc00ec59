/** Names that pulled images have on the engine: they tell whose an image is, and nothing of where it came from. */
import { createHash } from 'node:crypto'

export const tagPrefix = (organizationId: string): string => `slipway/${organizationId.toLowerCase()}/pulled`

/** `slipway/<organization>/pulled:<32 hex>`. */
export const pulledTag = (organizationId: string, reference: string): string =>
  `${tagPrefix(organizationId)}:${createHash('sha256').update(reference).digest('hex').slice(0, 32)}`

/** The organization of such a name; null for any other. */
export const ownerOf = (tag: string): string | null => /^slipway\/([0-9a-f-]{36})\/pulled:/.exec(tag)?.[1] ?? null
