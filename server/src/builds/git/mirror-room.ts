/**
 * Limits the disk space of mirrors on this server: for each organization together, and on the disk, which is usually
 * the database's. Promises that a fetch stops within moments at a limit, and that mirrors unused for an hour make room
 * first: they can be fetched again. Counts the sizes that this process sees on disk, so nothing is lost with it.
 */
import { lstat, readdir, statfs } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { type ApiError, conflict, DeploymentError, unavailable } from '../../lib/errors.ts'
import { mirrorSize } from './mirror-folder.ts'
import { hash } from './names.ts'
import type { Git } from './process.ts'

const mb = 2 ** 20
const pollMs = 250
/** How long the sizes of mirrors without a fetch in progress are cached. */
const freshMs = 60_000
/** A build finishes reading a mirror well before that. */
const unusedMs = 3_600_000

export interface RoomLimits {
  /** For all mirrors of one organization; 0: no limit. */
  organizationMb: number
  /** The space to keep free on the disk; 0: none. */
  reserveMb: number
  /** The message at the limit of an organization. */
  sentence(wantedMb: number): string
}

export interface MirrorRoom {
  /**
   * Runs work that adds to a mirror. Rejects with `limit_reached` or `disk_full`, before it or while it runs; `check`
   * may throw for the size of the mirror itself.
   */
  during<T>(
    mirror: string,
    signal: AbortSignal,
    work: (signal: AbortSignal) => Promise<T>,
    check?: (bytes: number) => void,
  ): Promise<T>
  usedMb(organizationId: string): Promise<number>
}

/** The same for a caller of the API; null for any other error. */
export const roomRefusal = (error: unknown): ApiError | null => {
  if (!(error instanceof DeploymentError)) return null
  if (error.code === 'limit_reached') return conflict(error.code, error.message)
  return error.code === 'disk_full' ? unavailable(error.code, error.message, 60) : null
}

interface RoomParts {
  git: Pick<Git, 'remove'>
  folder: string
  limits: RoomLimits
  /** Bytes that are free on the disk of a folder; for tests. */
  free?: ((folder: string) => Promise<number>) | undefined
}

/** Mirrors are named after their owners. */
export const ownerOf = (mirror: string): string => basename(mirror).split('-')[0]!

export const ownerKey = (organizationId: string): string => hash(organizationId).slice(0, 32)

const freeBytes = async (folder: string): Promise<number> => {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize
}

/** Sizes of mirrors by owner, read from the disk when they are old. */
const createSizes = (folder: string) => {
  const known = new Map<string, { sizes: Map<string, number>; readAtMs: number }>()
  const read = async (owner: string): Promise<Map<string, number>> => {
    const entries = (await readdir(folder)).filter((entry) => entry.startsWith(`${owner}-`))
    const sizes = new Map<string, number>()
    for (const entry of entries) sizes.set(entry, await mirrorSize(join(folder, entry)))
    known.set(owner, { sizes, readAtMs: performance.now() })
    return sizes
  }
  const total = (sizes: ReadonlyMap<string, number>): number => [...sizes.values()].reduce((sum, size) => sum + size, 0)
  return {
    async all(owner: string, isFresh = false): Promise<number> {
      const last = known.get(owner)
      const isOld = isFresh || last === undefined || performance.now() - last.readAtMs > freshMs
      return total(isOld ? await read(owner) : last.sizes)
    },
    /** Measures one mirror again; the bytes of all mirrors of its owner, and of itself. */
    async measure(mirror: string): Promise<{ all: number; own: number }> {
      const own = await mirrorSize(mirror)
      const sizes = known.get(ownerOf(mirror))?.sizes ?? (await read(ownerOf(mirror)))
      sizes.set(basename(mirror), own)
      return { all: total(sizes), own }
    },
  }
}

export const createMirrorRoom = ({ git, folder, limits, free = freeBytes }: RoomParts): MirrorRoom => {
  const { organizationMb, reserveMb } = limits
  const most = organizationMb === 0 ? Number.POSITIVE_INFINITY : organizationMb * mb
  const sizes = createSizes(folder)

  const refuseFullDisk = async (): Promise<void> => {
    if (reserveMb === 0 || (await free(folder)) >= reserveMb * mb) return
    throw new DeploymentError(
      'disk_full',
      `There is no room for git repositories: the disk of this server has less than ${reserveMb} MB left (SLIPWAY_DISK_RESERVE_MB).`,
    )
  }

  const refuseTooMuch = (bytes: number): void => {
    if (bytes > most) throw new DeploymentError('limit_reached', limits.sentence(Math.ceil(bytes / mb)))
  }

  /**
   * Removes mirrors that have been unused for a while, the longest unused first, until the owner has half of its room.
   */
  const makeRoom = async (owner: string, kept: string): Promise<void> => {
    let left = await sizes.all(owner, true)
    if (left < most) return
    const found = []
    for (const entry of await readdir(folder)) {
      if (!entry.startsWith(`${owner}-`) || entry === basename(kept)) continue
      const usedMs = (await lstat(join(folder, entry)).catch(() => null))?.mtimeMs ?? Date.now()
      if (usedMs < Date.now() - unusedMs) found.push({ path: join(folder, entry), usedMs })
    }
    for (const { path } of found.sort((a, b) => a.usedMs - b.usedMs)) {
      if (left < most / 2) break
      left -= await mirrorSize(path)
      await git.remove([path])
    }
    await sizes.all(owner, true)
  }

  /** Calls `onFull` with the reason once there is no more room. */
  const watch = (mirror: string, check: (bytes: number) => void, onFull: (reason: unknown) => void) => {
    let isLooking = false
    const look = async (): Promise<void> => {
      if (isLooking) return
      isLooking = true
      try {
        const { all, own } = await sizes.measure(mirror)
        check(own)
        if (all > most) await makeRoom(ownerOf(mirror), mirror)
        refuseTooMuch(await sizes.all(ownerOf(mirror)))
        await refuseFullDisk()
      } catch (error) {
        onFull(error)
      } finally {
        isLooking = false
      }
    }
    const timer = setInterval(look, pollMs)
    return { [Symbol.dispose]: () => clearInterval(timer) }
  }

  return {
    async during(mirror, signal, work, check = () => {}) {
      const owner = ownerOf(mirror)
      await refuseFullDisk()
      if (most < Number.POSITIVE_INFINITY && (await sizes.all(owner)) >= most) {
        await makeRoom(owner, mirror)
        refuseTooMuch((await sizes.all(owner)) + 1)
      }
      const full = new AbortController()
      using _ = watch(mirror, check, (reason) => full.abort(reason))
      try {
        return await work(AbortSignal.any([signal, full.signal]))
      } finally {
        await sizes.measure(mirror).catch(() => {})
      }
    },
    usedMb: async (organizationId) => Math.ceil((await sizes.all(ownerKey(organizationId))) / mb),
  }
}
