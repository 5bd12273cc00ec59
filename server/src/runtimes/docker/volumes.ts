/**
 * Volumes of services, and their sizes. The engine creates a volume with its first container and limits its size if
 * the filesystem of its data has project quotas; only an attempt shows that. It can neither change nor add a limit
 * later.
 */

import { createHash } from 'node:crypto'
import { type Engine, ignoreGone, isEngineError } from '../../lib/docker/docker-engine.ts'
import type { Keep } from '../../lib/foreign-text/keep.ts'
import { type Clock, systemClock } from '../../lib/time/clock.ts'
import type { OwnedVolume } from '../owned.ts'
import { type ContainerBody, labelOf, labels, type Mount, volumeName } from './describe.ts'

export interface VolumeRow {
  Name: string
  Labels: Record<string, string> | null
  Options?: Record<string, string> | null
  /** RFC 3339. */
  CreatedAt?: string
}

const deadlineMs = 10_000
const volumesKeep: Keep = { Volumes: [{ Name: true, CreatedAt: true, Labels: 'any', Options: 'any' }] }

/** The engine lets go of a volume a moment after it has taken its last container from its lists. */
const isInUse = (error: unknown): boolean => isEngineError(error, 409) && /in use/i.test(error.message)
const releasePauseMs = 250
const releaseTries = 20

const isRefusedSize = (error: unknown): boolean =>
  isEngineError(error) && /no quota support|project quota|invalid option/i.test(error.message)

const withoutSizes = (body: ContainerBody): ContainerBody => {
  const mounts = (body.HostConfig.Mounts as Mount[]).map(({ VolumeOptions: { Labels }, ...mount }) => ({
    ...mount,
    VolumeOptions: { Labels },
  }))
  return { ...body, HostConfig: { ...body.HostConfig, Mounts: mounts } }
}

const sizeIn = ({ Options }: VolumeRow): number | null => {
  const [, size] = /^(\d+)G$/.exec(Options?.size ?? '') ?? []
  return size === undefined ? null : Number(size)
}

export const ownedVolume = (row: VolumeRow): OwnedVolume => {
  const { Labels, CreatedAt } = row
  const organizationId = labelOf(Labels, labels.organization)
  const sizeGb = sizeIn(row)
  return {
    id: labelOf(Labels, labels.volume) ?? '',
    environmentId: labelOf(Labels, labels.environment) ?? '',
    serviceId: labelOf(Labels, labels.service) ?? '',
    ...(organizationId === undefined ? {} : { organizationId }),
    ...(CreatedAt === undefined ? {} : { createdAt: CreatedAt }),
    ...(sizeGb === null ? {} : { sizeGb }),
  }
}

export const createVolumes = (engine: Engine, ownerId: string, clock: Pick<Clock, 'sleep'> = systemClock) => {
  let limits: Promise<boolean> | undefined
  // Always the same name: the leftover of a killed process is removed by the next attempt.
  const probe = `slipway-size-probe-${createHash('sha256').update(ownerId).digest('hex').slice(0, 16)}`

  const list = async (labelled: Record<string, string> = {}): Promise<VolumeRow[]> => {
    const wanted = Object.entries({ ...labelled, [labels.owner]: ownerId }).map(([key, value]) => `${key}=${value}`)
    const query = { filters: JSON.stringify({ label: wanted }) }
    return (
      (await engine.call<{ Volumes: VolumeRow[] | null }>('GET', '/volumes', { query, keep: volumesKeep })).Volumes ??
      []
    )
  }
  const removeProbe = () => ignoreGone(engine.call('DELETE', `/volumes/${probe}`))
  const ask = async (): Promise<boolean> => {
    try {
      // A volume of that name would be taken for a new one.
      await removeProbe()
      await engine.call('POST', '/volumes/create', { body: { Name: probe, DriverOpts: { size: '1M' } } })
    } catch (error) {
      // Whatever it refuses, sizes are not limited; the rest of its capacity is known all the same.
      if (!isEngineError(error)) throw error
      return false
    }
    // A leftover is removed by the next attempt.
    await removeProbe().catch(() => {})
    return true
  }
  const askAgain = (): Promise<boolean> => {
    const asked = ask()
    limits = asked
    asked.catch(() => {
      if (limits === asked) limits = undefined
    })
    return asked
  }
  const read = async (id: string): Promise<[string, number | null] | null> => {
    try {
      return [id, sizeIn(await engine.call<VolumeRow>('GET', `/volumes/${volumeName(id)}`, { deadlineMs }))]
    } catch (error) {
      if (isEngineError(error, 404)) return null
      throw error
    }
  }

  const remove = async (name: string, signal: AbortSignal): Promise<void> => {
    for (let tries = 1; ; tries += 1)
      try {
        return await ignoreGone(engine.call('DELETE', `/volumes/${name}`))
      } catch (error) {
        if (!isInUse(error) || tries === releaseTries) throw error
        await clock.sleep(releasePauseMs, signal)
      }
  }

  return {
    list,
    removeOf: async (serviceId: string, signal: AbortSignal): Promise<void> => {
      const rows = await list({ [labels.service]: serviceId })
      await Promise.all(rows.map(({ Name }) => remove(Name, signal)))
    },
    /** Checks once more whether the engine limits sizes. */
    askAgain,
    sizesOf: async (ids: readonly string[]): Promise<Map<string, number | null>> =>
      new Map((await Promise.all(ids.map(read))).filter((each) => each !== null)),
    /** Creates a container whose new volumes have their sizes if the engine can limit them. */
    sized: async <T>(body: ContainerBody, make: (body: ContainerBody) => Promise<T>): Promise<T> => {
      if ((body.HostConfig.Mounts as Mount[]).length === 0) return make(body)
      if (!(await (limits ?? askAgain()))) return make(withoutSizes(body))
      try {
        return await make(body)
      } catch (error) {
        // Its disk was mounted in another way since.
        if (!isRefusedSize(error) || (await askAgain())) throw error
        return make(withoutSizes(body))
      }
    },
  }
}

export type Volumes = ReturnType<typeof createVolumes>
