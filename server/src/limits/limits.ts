/**
 * Limits per organization, set by the operator, so that none uses up what others need. Promises one error for every
 * limit, which names the limit, its value and its setting. Does not know the caller.
 */
import { ApiError } from '../lib/errors.ts'
import type { Queryable } from '../store/database.ts'
import { textLockSql } from '../store/locks.ts'

/** 0: no limit. */
export interface Limits {
  services: number
  /** Memory and CPU of all instances that its services may have. */
  memoryMb: number
  cpuMillicores: number
  volumes: number
  volumeGb: number
  queued: number
  diskGb: number
  /** Streams open at once, for the whole organization and for one token or account. */
  streams: number
  streamsPerToken: number
  /** Clusters with a Docker engine of their own. */
  engines: number
  certificates: number
  /** Repositories pushed to this server: the largest one, and all of the organization. */
  repositoryMb: number
  repositoriesMb: number
  /** Mirrors of git repositories, on each server. */
  mirrorsMb: number
  /** Environments made for pull requests, per project. */
  previews: number
  /** Ports of this machine that its services use. */
  ports: number
}

/** The default for a range of ports: a tenth, and at least ten. */
export const usualPorts = ({ first, last }: { first: number; last: number }): number =>
  Math.max(10, Math.floor((last - first + 1) / 10))

export const usualLimits: Limits = Object.freeze({
  services: 2000,
  memoryMb: 1_048_576,
  cpuMillicores: 1_000_000,
  volumes: 1000,
  volumeGb: 10_000,
  queued: 2000,
  diskGb: 200,
  streams: 400,
  streamsPerToken: 100,
  engines: 10,
  certificates: 200,
  repositoryMb: 1024,
  repositoriesMb: 10_240,
  mirrorsMb: 20_480,
  previews: 5,
  // For the default range; the settings compute it for theirs.
  ports: 276,
})

export const limitSettings: Readonly<Record<keyof Limits, string>> = Object.freeze({
  services: 'SLIPWAY_LIMIT_SERVICES',
  memoryMb: 'SLIPWAY_LIMIT_MEMORY_MB',
  cpuMillicores: 'SLIPWAY_LIMIT_CPU_MILLICORES',
  volumes: 'SLIPWAY_LIMIT_VOLUMES',
  volumeGb: 'SLIPWAY_LIMIT_VOLUME_GB',
  queued: 'SLIPWAY_LIMIT_QUEUED',
  diskGb: 'SLIPWAY_LIMIT_DISK_GB',
  streams: 'SLIPWAY_LIMIT_STREAMS',
  streamsPerToken: 'SLIPWAY_LIMIT_STREAMS_PER_TOKEN',
  engines: 'SLIPWAY_LIMIT_ENGINES',
  certificates: 'SLIPWAY_LIMIT_CERTIFICATES',
  repositoryMb: 'SLIPWAY_LIMIT_REPOSITORY_MB',
  repositoriesMb: 'SLIPWAY_LIMIT_REPOSITORIES_MB',
  mirrorsMb: 'SLIPWAY_LIMIT_MIRRORS_MB',
  previews: 'SLIPWAY_LIMIT_PREVIEWS',
  ports: 'SLIPWAY_LIMIT_PORTS',
})

export const limitNames = Object.keys(limitSettings) as (keyof Limits)[]

/** What each limit counts, and how to stay below it besides raising it. */
const words: Readonly<Record<keyof Limits, readonly [what: string, way: string]>> = {
  services: ['services in an organization', 'Delete some'],
  memoryMb: ['MB of memory for all instances of an organization', 'Lower memory or max_running_instances'],
  cpuMillicores: ['millicores for all instances of an organization', 'Lower cpu or max_running_instances'],
  volumes: ['volumes in an organization', 'Delete some'],
  volumeGb: ['GB in all volumes of an organization', 'Request less storage'],
  queued: ['queued deployments in an organization', 'Cancel some'],
  diskGb: ['GB of images in an organization', 'Delete unused services'],
  streams: ['open streams in an organization', 'Close some'],
  streamsPerToken: ['open streams of one token or account', 'Close some'],
  engines: ['Docker engines and Kubernetes clusters connected by an organization', 'Disconnect some'],
  certificates: ['certificates in an organization', 'Remove some domains'],
  repositoryMb: ['MB in one repository on this server', 'Push less'],
  repositoriesMb: ['MB in all repositories of an organization on this server', 'Delete applications'],
  mirrorsMb: [
    'MB in the copies of all git repositories of an organization on this server',
    'Use fewer or smaller ones',
  ],
  previews: ['previews of pull requests in a project', 'Close some'],
  ports: ['public TCP and UDP ports of deployed services in an organization', 'Delete some'],
}

/** `wanted` is the resulting usage; for the disk, the current one. */
export const limitSentence = (limit: keyof Limits, most: number, wanted: number): string => {
  const [what, way] = words[limit]
  const verb = limit === 'diskGb' ? 'it now has' : 'this would bring it to'
  return `The limit is ${most} ${what}; ${verb} ${wanted}. ${way}, or ask the operator to raise ${limitSettings[limit]}.`
}

export const limitCode = 'limit_reached'

export const limitReached = (limit: keyof Limits, most: number, wanted: number): ApiError =>
  new ApiError(409, limitCode, limitSentence(limit, most, wanted))

/**
 * Serializes an organization's changes that a limit counts until the end of the transaction: of two that need the last
 * place, the second sees the first. Take it last in a transaction, to avoid deadlocks.
 */
export const takeTurns = async (
  tx: Queryable,
  organizationId: string,
  about: 'services' | 'queue' | 'engines' | 'repositories' | 'certificates' | 'ports',
): Promise<void> => {
  await tx.query(textLockSql, [`limit ${about} ${organizationId}`])
}
