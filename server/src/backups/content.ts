/** What a stored backup says: opened, checked and uncompressed, as the program wrote it. */
import { readBackup } from './format/format.ts'
import type { PlaceParts } from './places/open-place.ts'
import { aboutBackup, type BackupRow, placeOfKey } from './records.ts'
import { openStorage } from './storage.ts'

export type StoredBackup = Pick<BackupRow, 'id' | 'organizationId' | 'storageId' | 'object' | 'sealedKey' | 'sha256'>

/** Fails with a sentence for users where the stored bytes are not those that were written. */
export const openContent = async (
  parts: PlaceParts,
  row: StoredBackup,
  signal: AbortSignal,
): Promise<AsyncIterable<Uint8Array>> => {
  const { id, organizationId, object, sealedKey, sha256 } = row
  const key = await parts.sealer.open(organizationId, placeOfKey(id), sealedKey!)
  const stored = await (await openStorage(parts, row)).get(object!, signal)
  return readBackup(Buffer.from(key.reveal(), 'base64'), aboutBackup(row), stored, { sha256: sha256! })
}
