/** One bridge network per environment, made when first needed. */
import { createHash } from 'node:crypto'
import { networkInterfaces } from 'node:os'
import { type Engine, ignoreGone, isEngineError } from '../../lib/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { labels, networkName } from './describe.ts'

export interface NetworkRow {
  Id: string
  Name: string
  Created: string
  Labels: Record<string, string> | null
  IPAM?: { Config: { Subnet?: string }[] | null }
}

export interface Networks {
  /** Makes sure that the environment's network is there; remembers it, so that a redeploy asks nothing. */
  ensure(environmentId: string): Promise<void>
  /** Forgets what it remembered: the engine said that the network is gone. */
  forget(environmentId: string): void
  remove(environmentId: string, signal: AbortSignal): Promise<void>
  list(): Promise<NetworkRow[]>
}

interface Range {
  first: number
  last: number
}

export const rangeOf = (subnet: string): Range | null => {
  const match = /^(\d+)\.(\d+)\.(\d+)\.(\d+)\/(\d+)$/.exec(subnet)
  if (match === null) return null
  const [a, b, c, d, prefix] = match.slice(1).map(Number) as [number, number, number, number, number]
  const size = 2 ** (32 - prefix)
  const address = a * 2 ** 24 + b * 2 ** 16 + c * 2 ** 8 + d
  const start = address - (address % size)
  return { first: start, last: start + size - 1 }
}

const subnetCount = 2 ** 14

/** The /24 networks of 10.192.0.0/10, from a place that differs per environment, without those that are taken. */
export const freeSubnets = (environmentId: string, taken: readonly string[], wanted: number): string[] => {
  const ranges = taken.flatMap((subnet) => rangeOf(subnet) ?? [])
  const start = createHash('sha256').update(environmentId).digest().readUInt16BE(0)
  const found: string[] = []
  for (let step = 0; step < subnetCount && found.length < wanted; step += 1) {
    const number = (start + step) % subnetCount
    const subnet = `10.${192 + (number >> 8)}.${number & 255}.0/24`
    const range = rangeOf(subnet)!
    if (!ranges.some((other) => other.first <= range.last && range.first <= other.last)) found.push(subnet)
  }
  return found
}

const isPoolEmpty = (error: unknown): boolean =>
  isEngineError(error) && /available.*pool|address pools|fully subnetted/i.test(error.message)
const isOverlap = (error: unknown): boolean => isEngineError(error) && /overlap/i.test(error.message)
const isDuplicate = (error: unknown): boolean => isEngineError(error, 409)

const ownAddresses = (): string[] =>
  Object.values(networkInterfaces()).flatMap((all) => (all ?? []).flatMap(({ cidr }) => cidr ?? []))

export const createNetworks = (engine: Engine, ownerId: string): Networks => {
  const known = new Map<string, Promise<void>>()

  const find = (filters: Record<string, string[]>) =>
    engine.call<NetworkRow[]>('GET', '/networks', { query: { filters: JSON.stringify(filters) } })
  const named = async (name: string) => (await find({ name: [name] })).filter((network) => network.Name === name)

  const create = (environmentId: string, subnet?: string) =>
    engine.call<{ Id: string }>('POST', '/networks/create', {
      body: {
        Name: networkName(environmentId),
        CheckDuplicate: true,
        Driver: 'bridge',
        Labels: { [labels.owner]: ownerId, [labels.environment]: environmentId },
        ...(subnet === undefined ? {} : { IPAM: { Config: [{ Subnet: subnet }] } }),
      },
    })

  /** The engine's own pools hold about thirty networks; past that we choose the addresses. */
  const createSubnet = async (environmentId: string): Promise<void> => {
    const all = await find({})
    const taken = all.flatMap((network) => (network.IPAM?.Config ?? []).flatMap(({ Subnet }) => Subnet ?? []))
    for (const subnet of freeSubnets(environmentId, [...taken, ...ownAddresses()], 16)) {
      try {
        await create(environmentId, subnet)
        return
      } catch (error) {
        if (isDuplicate(error)) return
        if (!isOverlap(error)) throw error
      }
    }
    throw new DeploymentError('no_free_subnet', 'No range of addresses is free for the network of this environment.')
  }

  const removeUnused = async (id: string): Promise<boolean> => {
    try {
      await ignoreGone(engine.call('DELETE', `/networks/${id}`))
      return true
    } catch (error) {
      if (!isEngineError(error, 403, 409)) throw error
      return false
    }
  }

  /** Names are not unique in the engine: of racing creators' networks the oldest stays, or the one in use. */
  const dropDuplicates = async (name: string): Promise<void> => {
    const same = await named(name)
    same.sort((a, b) => (a.Created + a.Id < b.Created + b.Id ? -1 : 1))
    const [oldest, ...newer] = same
    const removed = await Promise.all(newer.map(({ Id }) => removeUnused(Id)))
    if (removed.includes(false)) await removeUnused(oldest!.Id)
  }

  const make = async (environmentId: string): Promise<void> => {
    const name = networkName(environmentId)
    const there = await named(name)
    if (there.length === 1) return
    try {
      if (there.length === 0) await create(environmentId)
    } catch (error) {
      if (isDuplicate(error)) return
      if (!isPoolEmpty(error)) throw error
      await createSubnet(environmentId)
    }
    await dropDuplicates(name)
  }

  return {
    ensure: (environmentId) => {
      const running = known.get(environmentId)
      if (running !== undefined) return running
      const made = make(environmentId)
      known.set(environmentId, made)
      made.catch(() => known.delete(environmentId))
      return made
    },
    forget: (environmentId) => void known.delete(environmentId),
    remove: async (environmentId, signal) => {
      known.delete(environmentId)
      const filters = { label: [`${labels.owner}=${ownerId}`, `${labels.environment}=${environmentId}`] }
      const networks = await find(filters)
      signal.throwIfAborted()
      for (const { Id } of networks) await ignoreGone(engine.call('DELETE', `/networks/${Id}`, { signal }))
    },
    list: () => find({ label: [`${labels.owner}=${ownerId}`] }),
  }
}
