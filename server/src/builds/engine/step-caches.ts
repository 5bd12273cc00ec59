/**
 * The volumes of `RUN --mount=type=cache`: each belongs to one organization on one engine. Promises that `locked` and
 * `private` hold between all servers, and that what an organization keeps stays below its limit between builds: the
 * longest unused go first, and those that nobody used for two weeks. If the process dies, a hold ends by itself.
 */
import { createHash } from 'node:crypto'
import { type Engine, ignoreGone, isEngineError } from '../../lib/docker/docker-engine.ts'
import { newId } from '../../lib/ids.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { CacheStore } from '../cache-store.ts'
import type { ImageOwner } from '../image-store.ts'
import type { CacheMount } from '../preparation/run-mounts.ts'

const holdMs = 60_000
const renewMs = 15_000
const pollMs = 300
const maxIdleDays = 14
/** Of one organization on one engine. */
const maxCaches = 200
const maxPrivate = 20

export interface HeldCache {
  mount: CacheMount
  volume: string
  /** It has just been made, and has no owner and mode yet. */
  isNew: boolean
}

export interface HeldCaches {
  caches: HeldCache[]
  release(): Promise<void>
}

/** A name that no other organization can have, whatever it calls its cache. */
const volumeOf = (
  { organizationId, clusterId }: ImageOwner,
  { id, uid, gid, mode }: CacheMount,
  copy: number,
): string =>
  `slipway-cache-${createHash('sha256')
    .update(JSON.stringify(['slipway-cache-1', organizationId, clusterId, id, uid, gid, mode, copy]))
    .digest('hex')
    .slice(0, 40)}`

export interface StepCacheParts {
  engine: Engine
  store: CacheStore
  clock: Clock
  /** Of all caches of one organization together. */
  maxMb: number
}

export const createStepCaches = ({ engine, store, clock, maxMb }: StepCacheParts) => {
  /** Steps of this process that use a volume. */
  const users = new Map<string, number>()
  const count = (volume: string, by: 1 | -1): void => {
    const now = (users.get(volume) ?? 0) + by
    if (now === 0) users.delete(volume)
    else users.set(volume, now)
  }

  const open = async (owner: ImageOwner, mount: CacheMount, volume: string): Promise<HeldCache> => {
    await store.use(owner, volume)
    // What a killed process wrote down was perhaps never made.
    const isThere = await isHeld(volume)
    if (!isThere) await engine.call('POST', '/volumes/create', { body: { Name: volume } })
    return { mount, volume, isNew: !isThere }
  }

  const isHeld = async (volume: string): Promise<boolean> => {
    try {
      await engine.call('GET', `/volumes/${volume}`)
      return true
    } catch (error) {
      if (isEngineError(error, 404)) return false
      throw error
    }
  }

  const awaitHold = async (
    owner: ImageOwner,
    volume: string,
    holder: string,
    onWait: () => void,
    signal: AbortSignal,
  ): Promise<void> => {
    await store.use(owner, volume)
    for (let turn = 0; !(await store.hold(volume, holder, holdMs)); turn += 1) {
      if (turn === 0) onWait()
      await clock.sleep(pollMs, signal)
    }
  }

  /** The first copy that nobody has. */
  const holdPrivate = async (owner: ImageOwner, mount: CacheMount, holder: string): Promise<string> => {
    for (let copy = 0; copy < maxPrivate; copy += 1) {
      const volume = volumeOf(owner, mount, copy)
      await store.use(owner, volume)
      if (await store.hold(volume, holder, holdMs)) return volume
    }
    throw new Error(`more than ${maxPrivate} steps use a private cache at once`)
  }

  const take = async (
    owner: ImageOwner,
    mounts: readonly CacheMount[],
    onWait: (mount: CacheMount) => void,
    signal: AbortSignal,
  ): Promise<HeldCaches> => {
    const holder = newId()
    const held = new Set<string>()
    const ended = new AbortController()
    const counted: string[] = []
    const release = async (): Promise<void> => {
      ended.abort()
      for (const volume of counted.splice(0)) count(volume, -1)
      await Promise.all([...held].map((volume) => store.free(volume, holder)))
    }
    const renew = async (): Promise<void> => {
      for (;;) {
        await clock.sleep(renewMs, ended.signal)
        for (const volume of held) await store.hold(volume, holder, holdMs)
      }
    }
    const name = async (mount: CacheMount): Promise<string> => {
      const volume = volumeOf(owner, mount, 0)
      if (mount.sharing === 'shared' || held.has(volume)) return volume
      if (mount.sharing === 'private') {
        const own = await holdPrivate(owner, mount, holder)
        held.add(own)
        return own
      }
      await awaitHold(owner, volume, holder, () => onWait(mount), signal)
      held.add(volume)
      return volume
    }
    // Ends with `ended`; a hold that could not be renewed is somebody else's problem only after a minute.
    renew().catch(() => {})
    try {
      const caches: HeldCache[] = []
      // Always in the same order: two steps that wait for each other's would wait forever.
      const order = (mount: CacheMount): string => volumeOf(owner, mount, 0)
      for (const mount of [...mounts].sort((a, b) => (order(a) < order(b) ? -1 : 1))) {
        const volume = await name(mount)
        count(volume, 1)
        counted.push(volume)
        caches.push(await open(owner, mount, volume))
      }
      return { caches, release }
    } catch (error) {
      await release()
      throw error
    }
  }

  /** Removes a volume that no container has; false if one has. */
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

  /** Removes what is old, or too much. */
  const tidy = async (clusterId: string): Promise<void> => {
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

  /** Notes its size; also one that another server has forgotten meanwhile. */
  const measure = async (owner: ImageOwner, volume: string, sizeKb: number): Promise<void> => {
    await store.use(owner, volume)
    await store.measure(volume, sizeKb)
  }

  return { take, tidy, measure }
}

export type StepCaches = ReturnType<typeof createStepCaches>
