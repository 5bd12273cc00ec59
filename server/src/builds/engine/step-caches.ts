/**
 * The volumes of `RUN --mount=type=cache`: each belongs to one scope of one organization (`BuildRequest.cacheScope`)
 * on one engine. Promises that `locked` and `private` are respected by all servers, and that an organization's caches
 * stay below its limit between builds: the longest unused are removed first, and those that no build has used for some days. If the
 * process dies, a hold expires.
 */
import { createHash } from 'node:crypto'
import { type Engine, ignoreGone, isEngineError, orNull } from '../../lib/docker/docker-engine.ts'
import { newId } from '../../lib/ids.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { CacheStore } from '../cache-store.ts'
import type { ImageOwner } from '../image-store.ts'
import type { CacheMount } from '../preparation/run-mounts.ts'

const holdMs = 60_000
const renewMs = 15_000
const pollMs = 300
const usualIdleDays = 14
/** The most caches of one organization on one engine. */
const maxCaches = 200
const maxPrivate = 20

export interface HeldCache {
  mount: CacheMount
  volume: string
  /** It was just created, and has no owner and mode yet. */
  isNew: boolean
}

export interface HeldCaches {
  caches: HeldCache[]
  release(): Promise<void>
}

interface CacheOwner extends ImageOwner {
  cacheScope: string
}

/** A name that no other organization or scope can have, whatever it calls its cache. */
const volumeOf = (
  { organizationId, clusterId, cacheScope }: CacheOwner,
  { id, uid, gid, mode }: CacheMount,
  copy: number,
): string =>
  `slipway-cache-${createHash('sha256')
    .update(JSON.stringify(['slipway-cache-2', organizationId, clusterId, cacheScope, id, uid, gid, mode, copy]))
    .digest('hex')
    .slice(0, 40)}`

interface StepCacheParts {
  engine: Engine
  store: CacheStore
  clock: Clock
  /** For all caches of one organization together. */
  maxMb: number
  /** Default 14. */
  maxIdleDays?: number | undefined
}

const createUsers = () => {
  const users = new Map<string, number>()
  const count = (volume: string, by: 1 | -1): void => {
    const now = (users.get(volume) ?? 0) + by
    if (now === 0) users.delete(volume)
    else users.set(volume, now)
  }
  return { has: (volume: string): boolean => users.has(volume), count }
}

type Users = ReturnType<typeof createUsers>

/** The holds of one step, renewed until they are released. */
const createHolds = (store: CacheStore, clock: Clock) => {
  const holder = newId()
  const held = new Set<string>()
  const ended = new AbortController()

  const tryHold = async (owner: ImageOwner, volume: string): Promise<boolean> => {
    await store.use(owner, volume)
    if (!(await store.hold(volume, holder, holdMs))) return false
    held.add(volume)
    return true
  }

  const renew = async (): Promise<void> => {
    for (;;) {
      await clock.sleep(renewMs, ended.signal)
      // A hold that could not be renewed expires only after a minute: the next turn may be in time.
      for (const volume of held) await store.hold(volume, holder, holdMs).catch(() => false)
    }
  }
  // Ends with `ended`.
  renew().catch(() => {})

  return {
    async hold(owner: CacheOwner, mount: CacheMount, onWait: () => void, signal: AbortSignal): Promise<string> {
      const volume = volumeOf(owner, mount, 0)
      if (mount.sharing === 'shared' || held.has(volume)) return volume
      for (let turn = 0; mount.sharing === 'locked'; turn += 1) {
        if (await tryHold(owner, volume)) return volume
        if (turn === 0) onWait()
        await clock.sleep(pollMs, signal)
      }
      for (let copy = 0; copy < maxPrivate; copy += 1) {
        const own = volumeOf(owner, mount, copy)
        if (!held.has(own) && (await tryHold(owner, own))) return own
      }
      throw new Error(`more than ${maxPrivate} steps use a private cache at once`)
    },
    async release(): Promise<void> {
      ended.abort()
      await Promise.all([...held].map((volume) => store.free(volume, holder)))
    },
  }
}

const isThere = async (engine: Engine, volume: string): Promise<boolean> =>
  (await orNull(engine.call<object>('GET', `/volumes/${volume}`))) !== null

/** Removes caches that are old, or exceed the limit. */
const createTidy = ({ engine, store, maxMb, maxIdleDays = usualIdleDays }: StepCacheParts, users: Users) => {
  /** False if a container uses it. */
  const remove = async (volume: string): Promise<boolean> => {
    try {
      await ignoreGone(engine.call('DELETE', `/volumes/${volume}`))
    } catch (error) {
      if (isEngineError(error, 409)) return false
      throw error
    }
    await store.forget(volume)
    return true
  }

  return async (clusterId: string): Promise<void> => {
    const byOwner = Map.groupBy(await store.list(clusterId), ({ organizationId }) => organizationId)
    for (const known of byOwner.values()) {
      let total = known.reduce((sum, { sizeKb }) => sum + sizeKb, 0)
      let left = known.length
      for (const { volume, sizeKb, idleDays, isOrphan } of known) {
        const isOld = isOrphan || idleDays > maxIdleDays
        if (!isOld && total <= maxMb * 1024 && left <= maxCaches) continue
        if (users.has(volume) || !(await remove(volume))) continue
        total -= sizeKb
        left -= 1
      }
    }
  }
}

export const createStepCaches = (parts: StepCacheParts) => {
  const { engine, store, clock } = parts
  const users = createUsers()

  const open = async (owner: ImageOwner, mount: CacheMount, volume: string): Promise<HeldCache> => {
    await store.use(owner, volume)
    // The row may be from a killed process that never created the volume.
    const isNew = !(await isThere(engine, volume))
    if (isNew) await engine.call('POST', '/volumes/create', { body: { Name: volume } })
    return { mount, volume, isNew }
  }

  return {
    /** The caches of a step, held exclusively if it asks for that. */
    async take(
      owner: CacheOwner,
      mounts: readonly CacheMount[],
      onWait: (mount: CacheMount) => void,
      signal: AbortSignal,
    ): Promise<HeldCaches> {
      const holds = createHolds(store, clock)
      const used: string[] = []
      const release = async (): Promise<void> => {
        for (const volume of used.splice(0)) users.count(volume, -1)
        await holds.release()
      }
      try {
        const caches: HeldCache[] = []
        // Always in the same order: two steps that wait for each other's would wait forever.
        const order = (mount: CacheMount): string => volumeOf(owner, mount, 0)
        for (const mount of [...mounts].sort((a, b) => (order(a) < order(b) ? -1 : 1))) {
          const volume = await holds.hold(owner, mount, () => onWait(mount), signal)
          users.count(volume, 1)
          used.push(volume)
          caches.push(await open(owner, mount, volume))
        }
        return { caches, release }
      } catch (error) {
        await release()
        throw error
      }
    },
    tidy: createTidy(parts, users),
    /** Notes its size; also for a cache that another server has forgotten meanwhile. */
    async measure(owner: ImageOwner, volume: string, sizeKb: number): Promise<void> {
      await store.use(owner, volume)
      await store.measure(volume, sizeKb)
    },
  }
}

export type StepCaches = ReturnType<typeof createStepCaches>
