/** The JSON of a delivery, which any owner of a webhook can send. */
import { ForeignTextError, readLargeJson, usualBounds } from '../../lib/foreign-text/read-json.ts'

/** Real ones have some kilobytes; a push of many commits has some ten thousand values. */
const mostBytes = 5 << 20

/** Undefined for a body that cannot be read. `formField`: the form field that contains the JSON. */
export const readDelivery = (body: Buffer, owner: string, formField?: string): Promise<unknown> =>
  readLargeJson(body, { ...usualBounds, mostBytes, owner, formField }).catch((error: unknown) => {
    if (error instanceof ForeignTextError) return undefined
    throw error
  })
