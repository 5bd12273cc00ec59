/** The place of a backup: the storage that its request named, or a folder of this server. */
import { Secret } from '../lib/secret.ts'
import { openPlace, type PlaceParts, placeFor } from './places/open-place.ts'
import type { Place } from './places/place.ts'

/** Rejects with `missing` if the storage was deleted. */
export const openStorage = async (
  parts: PlaceParts,
  { organizationId, storageId }: { organizationId: string; storageId: string | null },
): Promise<Place> =>
  storageId === null
    ? placeFor(parts, organizationId, { kind: 'FOLDER', folder: 'backups' }, new Secret(''))
    : openPlace(parts, organizationId, storageId)
