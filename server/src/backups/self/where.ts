/**
 * Where backups are, from what the operator writes: the path of a folder, or `s3://bucket/prefix`. The operator has
 * chosen the storage, so it may be anywhere.
 */
import { basename, dirname, resolve } from 'node:path'
import { createOutbound } from '../../lib/net/outbound.ts'
import type { Secret } from '../../lib/secret.ts'
import { systemClock } from '../../lib/time/clock.ts'
import { createFolderPlace } from '../places/folder-place.ts'
import type { Place } from '../places/place.ts'
import { createS3Place } from '../places/s3-place.ts'
import { parseBucket } from './bucket-address.ts'

/** How an S3-compatible storage is reached. */
export interface S3Access {
  /** An origin; absent: that of Amazon. */
  endpoint: string | undefined
  region: string
  accessKeyId: string | undefined
  secretAccessKey: Secret | undefined
}

const hostAndPort = (endpoint: string): string => {
  const { hostname, port, protocol } = new URL(endpoint)
  return `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`
}

const openBucket = ({ bucket, prefix }: { bucket: string; prefix: string }, access: S3Access): Place => {
  const { region, accessKeyId, secretAccessKey } = access
  if (accessKeyId === undefined || secretAccessKey === undefined)
    throw new Error('a bucket needs SLIPWAY_BACKUP_S3_ACCESS_KEY_ID and SLIPWAY_BACKUP_S3_SECRET_ACCESS_KEY')
  const endpoint = access.endpoint ?? `https://s3.${region}.amazonaws.com`
  // Other storages than Amazon's seldom have a host name for each bucket.
  const isPathStyle = access.endpoint !== undefined
  const outbound = createOutbound({ allow: [hostAndPort(endpoint)] })
  return createS3Place(
    { outbound, clock: systemClock },
    { endpoint, region, bucket, prefix, accessKeyId, secretAccessKey, isPathStyle },
  )
}

/** Throws one sentence for what is neither. */
export const openPlace = (to: string, access: S3Access): Place => {
  const found = parseBucket(to)
  return found === null ? createFolderPlace(resolve(to)) : openBucket(found, access)
}

/** The place and the name of one backup. */
export const openOne = (from: string, access: S3Access): { place: Place; name: string } => {
  if (parseBucket(from) === null) {
    const path = resolve(from)
    return { place: createFolderPlace(dirname(path)), name: basename(path) }
  }
  const at = from.lastIndexOf('/')
  return { place: openPlace(from.slice(0, at), access), name: from.slice(at + 1) }
}
