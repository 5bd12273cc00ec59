/**
 * One bridge network per environment, created when first needed, with addresses that we choose. If this machine can
 * reach it, we assign the addresses; otherwise (an engine elsewhere, or a network of an earlier version) the engine
 * does, and publishes ports for us.
 */

import { type Engine, ignoreGone, isEngineError } from '../../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import type { Keep } from '../../../lib/foreign-text/keep.ts'
import { labels, networkName } from '../describe.ts'
import { isBridgeGone, isBridgeHere, ownSubnets } from './bridge.ts'
import { freeSubnets, type IpamConfig, layOut, type Subnet, subnetOf } from './subnets.ts'

interface NetworkRow {
  Id: string
  Name: string
  Created: string
  Labels: Record<string, string> | null
  IPAM?: { Config: IpamConfig[] | null }
}

const networksKeep: Keep = [{ Id: true, Name: true, Created: true, Labels: 'any', IPAM: { Config: 'any' } }]

export interface Networks {
  /**
   * Ensures that the environment's network exists; remembers it, so that a redeploy makes no call. Resolves to the
   * addresses at which this machine reaches its containers; null if it cannot reach them.
   */
  ensure(environmentId: string): Promise<Subnet | null>
  /** Forgets the cached network: the engine reported that it is gone. */
  forget(environmentId: string): void
  /** Removes a network whose bridge is gone from this machine: its containers are unreachable until a new one. */
  dropBroken(environmentId: string): Promise<void>
  remove(environmentId: string, signal: AbortSignal): Promise<void>
  list(): Promise<NetworkRow[]>
}

const isPoolEmpty = (error: unknown): boolean =>
  isEngineError(error) && /available.*pool|address pools|fully subnetted/i.test(error.message)
const isOverlap = (error: unknown): boolean => isEngineError(error) && /overlap/i.test(error.message)
const isDuplicate = (error: unknown): boolean => isEngineError(error, 409)

/** False: a container is connected to it. */
const removeIfUnused = async (engine: Engine, id: string): Promise<boolean> => {
  try {
    await ignoreGone(engine.call('DELETE', `/networks/${id}`))
    return true
  } catch (error) {
    if (!isEngineError(error, 403, 409)) throw error
    return false
  }
}

const disconnectAll = async (engine: Engine, id: string): Promise<void> => {
  const { Containers } = await engine.call<{ Containers: object | null }>('GET', `/networks/${id}`)
  for (const Container of Object.keys(Containers ?? {}))
    await ignoreGone(engine.call('POST', `/networks/${id}/disconnect`, { body: { Container, Force: true } }))
}

/** `elsewhere`: an address of the engine's machine, if that is another one. */
export const createNetworks = (engine: Engine, ownerId: string, elsewhere?: string): Networks => {
  const known = new Map<string, Promise<Subnet | null>>()

  const find = (filters: Record<string, string[]>) =>
    engine.call<NetworkRow[]>('GET', '/networks', { query: { filters: JSON.stringify(filters) }, keep: networksKeep })
  const named = async (name: string) => (await find({ name: [name] })).filter((network) => network.Name === name)

  const create = (environmentId: string, subnet?: string) =>
    engine.call<{ Id: string }>('POST', '/networks/create', {
      body: {
        Name: networkName(environmentId),
        CheckDuplicate: true,
        Driver: 'bridge',
        Labels: { [labels.owner]: ownerId, [labels.environment]: environmentId },
        ...(subnet === undefined ? {} : { IPAM: { Config: [layOut(subnet)] } }),
      },
    })

  /** If all of our range is taken, as by a wide route of this machine, the engine has a few networks of its own. */
  const createAnywhere = async (environmentId: string): Promise<void> => {
    try {
      await create(environmentId)
    } catch (error) {
      if (isDuplicate(error)) return
      if (!isPoolEmpty(error)) throw error
      const message =
        'No address range is available for the network of this environment: remove unused Docker networks.'
      throw new DeploymentError('no_free_subnet', message, { cause: error })
    }
  }

  /** Avoids networks of all users of this engine, and other networks of this machine. */
  const createSubnet = async (environmentId: string): Promise<void> => {
    const [all, own] = await Promise.all([find({}), ownSubnets()])
    const taken = all.flatMap((network) => (network.IPAM?.Config ?? []).flatMap(({ Subnet }) => Subnet ?? []))
    // The private network of another machine is not visible here, but its address is in it.
    const around = elsewhere === undefined ? [] : [`${elsewhere}/16`]
    for (const subnet of freeSubnets(environmentId, [...taken, ...own, ...around], 16)) {
      try {
        await create(environmentId, subnet)
        return
      } catch (error) {
        if (isDuplicate(error)) return
        if (!isOverlap(error)) throw error
      }
    }
    await createAnywhere(environmentId)
  }

  const removeUnused = (id: string): Promise<boolean> => removeIfUnused(engine, id)

  const byAge = (a: NetworkRow, b: NetworkRow) => (a.Created + a.Id < b.Created + b.Id ? -1 : 1)

  /** Names are not unique in the engine: of networks created concurrently the oldest is kept, or the one in use. */
  const dropDuplicates = async (name: string): Promise<NetworkRow | undefined> => {
    const [oldest, ...newer] = (await named(name)).sort(byAge)
    if (newer.length === 0) return oldest
    const removed = await Promise.all(newer.map(({ Id }) => removeUnused(Id)))
    if (removed.includes(false)) await removeUnused(oldest!.Id)
    return (await named(name)).sort(byAge)[0]
  }

  /** From before we chose the addresses: it is removed when no container of the environment is left, running or not. */
  const giveWay = async (environmentId: string, { Id, IPAM }: NetworkRow): Promise<boolean> => {
    if (subnetOf(IPAM?.Config) !== null) return false
    const filters = JSON.stringify({ label: [`${labels.environment}=${environmentId}`] })
    const containers = await engine.call<unknown[]>('GET', '/containers/json', {
      query: { all: true, filters },
      keep: [{ Id: true }],
    })
    return containers.length === 0 && (await removeUnused(Id))
  }

  const make = async (environmentId: string): Promise<NetworkRow | undefined> => {
    const name = networkName(environmentId)
    const there = await named(name)
    if (there.length === 1 && !(await giveWay(environmentId, there[0]!))) return there[0]
    if (there.length < 2) await createSubnet(environmentId)
    return dropDuplicates(name)
  }

  const open = async (environmentId: string): Promise<Subnet | null> => {
    const network = await make(environmentId)
    // Reports of another machine's engine about its bridges are not checked on this one.
    const subnet = elsewhere === undefined ? subnetOf(network?.IPAM?.Config) : null
    return subnet !== null && (await isBridgeHere(network!.Id, subnet.gateway)) ? subnet : null
  }

  return {
    ensure: (environmentId) => {
      const running = known.get(environmentId)
      if (running !== undefined) return running
      const made = open(environmentId)
      known.set(environmentId, made)
      made.catch(() => known.delete(environmentId))
      return made
    },
    forget: (environmentId) => void known.delete(environmentId),
    dropBroken: async (environmentId) => {
      known.delete(environmentId)
      if (elsewhere !== undefined) return
      for (const { Id } of await named(networkName(environmentId))) {
        if (!(await isBridgeGone(Id))) continue
        await disconnectAll(engine, Id)
        await removeUnused(Id)
      }
    },
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
