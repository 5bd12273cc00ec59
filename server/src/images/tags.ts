/** Names of pulled images on the engine: they contain the organization of an image, but not its origin. */
import { createHash } from 'node:crypto'

export const tagPrefix = (organizationId: string): string => `slipway/${organizationId.toLowerCase()}/pulled`

/** `slipway/<organization>/pulled:<32 hex>`. */
export const pulledTag = (organizationId: string, reference: string): string =>
  `${tagPrefix(organizationId)}:${createHash('sha256').update(reference).digest('hex').slice(0, 32)}`

/** The organization of such a name; null for any other. */
export const ownerOf = (tag: string): string | null => /^slipway\/([0-9a-f-]{36})\/pulled:/.exec(tag)?.[1] ?? null
