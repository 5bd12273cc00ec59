/**
 * Disk space. Images are counted per organization: a deployment that would build or pull more is refused when it is
 * requested, and again before it does. Free space on the disks of the engine and of the data directory is reported in
 * /metrics and, if it is less than the reserve, in the log. Volumes are not measured: their engines limit them, or
 * cannot. If the engine cannot report the size of its images, nothing is refused.
 */
import { statfs } from 'node:fs/promises'
import type { ListedImage } from '../images/listed-image.ts'
import { waitAtMost } from '../lib/concurrency/waiting.ts'
import { DeploymentError } from '../lib/errors.ts'
import { createLoop, type Loop, type WorkParts } from '../work/loop.ts'
import { imageUse } from './image-use.ts'
import { limitCode, limitReached, limitSentence } from './limits.ts'

const gb = 1e9
const leastAgeMs = 5000
/** If an engine has so many images that listing them takes long, the list is cached longer. */
const ageFactor = 20
const listTimeoutMs = 20_000
const lookMs = 60_000
/** How long a reader of metrics waits for an engine. */
const patienceMs = 2000

interface FreeSpace {
  place: 'data' | 'engine'
  freeBytes: number
  isLow: boolean
}

export interface Disk {
  /** Throws a 409 for an organization known to be above its limit; uses cached data, so that no request waits. */
  refuseDeploy(organizationId: string): void
  /** Rejects with a `DeploymentError` for an organization that is above its limit now. */
  refuseImage(organizationId: string, signal: AbortSignal): Promise<void>
  /** Null if the engine does not say. */
  usedGb(organizationId: string): Promise<number | null>
  free(): Promise<FreeSpace[]>
  /** The space to keep free (`SLIPWAY_DISK_RESERVE_MB`). */
  reserveBytes: number
  close(): Promise<void>
}

export interface DiskParts extends WorkParts {
  /** All images of the engine; null without an engine. */
  images: ((signal: AbortSignal) => Promise<ListedImage[]>) | null
  folders(): Promise<Partial<Record<FreeSpace['place'], string>>>
  /** 0: no limit. */
  diskGb: number
  reserveMb: number
}

type Use = ReadonlyMap<string, number>

/** The size of the images, some seconds old; one request to the engine at a time. */
const createUse = ({ images, clock, log }: DiskParts) => {
  let known: Use | null = null
  let goodUntilMs = 0
  let asking: Promise<Use | null> | undefined
  const ask = async (): Promise<Use | null> => {
    const beganMs = clock.monotonicMs()
    try {
      known = images === null ? null : imageUse(await images(AbortSignal.timeout(listTimeoutMs)))
    } catch (error) {
      log.debug({ err: error }, 'the engine does not report the size of its images')
    }
    const nowMs = clock.monotonicMs()
    goodUntilMs = nowMs + Math.max(leastAgeMs, ageFactor * (nowMs - beganMs))
    return known
  }
  const read = async (): Promise<Use | null> => {
    if (known !== null && clock.monotonicMs() < goodUntilMs) return known
    asking ??= ask().finally(() => {
      asking = undefined
    })
    return asking
  }
  return {
    read,
    /** The cached value; refreshes it for the next caller. */
    known(): Use | null {
      if (images !== null) void read()
      return known
    },
  }
}

const freeBytesOf = async (folder: string): Promise<number | null> => {
  try {
    const { bavail, bsize } = await statfs(folder)
    return bavail * bsize
  } catch {
    return null
  }
}

const readFree = async ({ folders, reserveMb }: DiskParts): Promise<FreeSpace[]> => {
  const found = Object.entries(await folders()) as [FreeSpace['place'], string][]
  const all = await Promise.all(
    found.map(async ([place, folder]) => ({ place, folder, freeBytes: await freeBytesOf(folder) })),
  )
  return all.flatMap(({ place, freeBytes }) =>
    freeBytes === null ? [] : [{ place, freeBytes, isLow: freeBytes < reserveMb * 2 ** 20 }],
  )
}

/** Logs once when a disk becomes nearly full, and once when it no longer is. */
const watchFree = (parts: DiskParts): Loop => {
  const low = new Set<string>()
  const look = async (): Promise<void> => {
    for (const { place, freeBytes, isLow } of await readFree(parts)) {
      const figures = { place, freeMb: Math.floor(freeBytes / 2 ** 20), reserveMb: parts.reserveMb }
      if (isLow && !low.has(place))
        parts.log.error(figures, 'the disk is nearly full: less than SLIPWAY_DISK_RESERVE_MB is free')
      if (!isLow && low.has(place)) parts.log.info(figures, 'the disk has enough free space again')
      if (isLow) low.add(place)
      else low.delete(place)
    }
  }
  return createLoop(parts, { name: 'free disk', periodMs: lookMs, failed: 'the free disk space is unknown', run: look })
}

export const createDisk = (parts: DiskParts): Disk => {
  const { diskGb, clock } = parts
  const use = createUse(parts)
  const watch = watchFree(parts)
  const tooMuch = (all: Use | null, organizationId: string): number | null => {
    const bytes = all?.get(organizationId) ?? 0
    return diskGb > 0 && bytes >= diskGb * gb ? Math.round((bytes / gb) * 10) / 10 : null
  }
  return {
    refuseDeploy(organizationId) {
      if (diskGb === 0) return
      const has = tooMuch(use.known(), organizationId)
      if (has !== null) throw limitReached('diskGb', diskGb, has)
    },
    async refuseImage(organizationId, signal) {
      if (diskGb === 0) return
      const has = tooMuch(await use.read(), organizationId)
      signal.throwIfAborted()
      if (has !== null) throw new DeploymentError(limitCode, limitSentence('diskGb', diskGb, has))
    },
    async usedGb(organizationId) {
      const read = await waitAtMost(clock, patienceMs, use.read())
      const all = read === undefined ? use.known() : read
      return all === null ? null : Math.round(((all.get(organizationId) ?? 0) / gb) * 1000) / 1000
    },
    free: () => readFree(parts),
    reserveBytes: parts.reserveMb * 2 ** 20,
    close: watch.stop,
  }
}
