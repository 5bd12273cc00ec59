/**
 * The place of a backup storage, as its organization named it. Each organization has a folder, or a prefix, of its own in
 * it, named by its id: what one stores is never listed, read or removed by another, also where two name the same bucket.
 */
import { join } from 'node:path'
import type { Outbound } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Queryable } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import { createFolderPlace } from './folder-place.ts'
import { type Place, PlaceError } from './place.ts'
import { createS3Place } from './s3-place.ts'

export interface PlaceParts {
  database: Queryable
  sealer: Pick<Sealer, 'open'>
  outbound: Pick<Outbound, 'request' | 'open'>
  clock: Pick<Clock, 'now' | 'sleep'>
  /** Space that stays free on the disks of this server. */
  disk?: { reserveBytes: number } | undefined
  settings: { dataDir: string; backupFolder?: string | undefined }
}

/** The configuration of a backup storage, without its secret. */
export type StorageConfig =
  | { kind: 'FOLDER'; folder: string }
  | {
      kind: 'S3'
      endpoint: string
      region: string
      bucket: string
      prefix: string
      access_key_id: string
      path_style: boolean
    }

/** Where backups in folders of this server are, unless SLIPWAY_BACKUP_FOLDER says otherwise. */
export const backupFolderOf = ({ dataDir, backupFolder }: PlaceParts['settings']): string =>
  backupFolder ?? join(dataDir, 'backups')

export type PlaceOptions = Omit<PlaceParts, 'database' | 'sealer'> & {
  /** How often a request to an S3 storage is tried; default 5. */
  attempts?: number
}

export const placeFor = (
  { settings, disk, outbound, clock, attempts }: PlaceOptions,
  organizationId: string,
  config: StorageConfig,
  secretAccessKey: Secret<string>,
): Place => {
  if (config.kind === 'FOLDER') {
    const options = { reserveBytes: disk?.reserveBytes ?? 0, now: () => clock.now() }
    return createFolderPlace(join(backupFolderOf(settings), organizationId, config.folder), options)
  }
  const { endpoint, region, bucket, prefix, access_key_id: accessKeyId, path_style: isPathStyle } = config
  const own = `${prefix === '' ? '' : `${prefix}/`}${organizationId}/`
  const place = { endpoint, region, bucket, prefix: own, accessKeyId, secretAccessKey, isPathStyle }
  return createS3Place({ outbound, clock, ...(attempts === undefined ? {} : { attempts }) }, place)
}

interface StorageRow {
  spec: StorageConfig
  secret: string | null
}

/** The configuration of a storage, and its secret key; empty for a folder. */
export const readStorage = async (
  { database, sealer }: Pick<PlaceParts, 'database' | 'sealer'>,
  organizationId: string,
  storageId: string,
): Promise<{ config: StorageConfig; secretAccessKey: Secret<string> }> => {
  const [row] = await database.query<StorageRow>(
    `select spec, sealed ->> 'secret_access_key' as secret from node
     where id = $1 and organization_id = $2 and kind = 'backup_storage'`,
    [storageId, organizationId],
  )
  if (row === undefined) throw new PlaceError('missing', 'The backup storage has been deleted.')
  const place = { table: 'node', row: storageId, column: 'secret_access_key' }
  const secretAccessKey = row.secret === null ? new Secret('') : await sealer.open(organizationId, place, row.secret)
  return { config: row.spec, secretAccessKey }
}

/** Rejects with `missing` if the organization has no such storage. */
export const openPlace = async (
  parts: PlaceParts & { attempts?: number },
  organizationId: string,
  storageId: string,
): Promise<Place> => {
  const { config, secretAccessKey } = await readStorage(parts, organizationId, storageId)
  return placeFor(parts, organizationId, config, secretAccessKey)
}
