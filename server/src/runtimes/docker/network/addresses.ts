/**
 * Addresses of instances on the networks of their environments: chosen by us, so that they stay the same across
 * restarts of a container, of the engine or of the machine. Promises: no two containers have the same one, even while
 * one of them is down; a released one rests, because requests may still be in progress to it.
 */
import type { Clock } from '../../../lib/time/clock.ts'
import { addressAt, type Subnet } from './subnets.ts'

export interface Addresses {
  /** Keeps a free address for `name` until released; null when all are taken. */
  take(subnet: Subnet, name: string): string | null
  /** Updates from all addresses that containers have now, by their names, including changes by other control planes. */
  learn(held: ReadonlyMap<string, string>): void
  release(name: string): void
}

const restMs = 60_000
/** For pulling an image again before its container becomes visible. */
const unseenMs = 10 * 60_000

interface Holder {
  /** Null: released. */
  name: string | null
  sinceMs: number
}

export const createAddresses = (clock: Pick<Clock, 'monotonicMs'>): Addresses => {
  const holders = new Map<string, Holder>()
  const places = new Map<string, string>()

  const hold = (address: string, name: string): void => {
    const before = places.get(name)
    if (before !== undefined && before !== address) rest(before)
    holders.set(address, { name, sinceMs: clock.monotonicMs() })
    places.set(name, address)
  }
  const rest = (address: string): void => void holders.set(address, { name: null, sinceMs: clock.monotonicMs() })

  const isFree = (address: string): boolean => {
    const holder = holders.get(address)
    return holder === undefined || (holder.name === null && clock.monotonicMs() - holder.sinceMs >= restMs)
  }

  const release = (name: string): void => {
    const address = places.get(name)
    places.delete(name)
    if (address !== undefined && holders.get(address)?.name === name) rest(address)
  }

  return {
    take: ({ first, last }, name) => {
      const count = last - first + 1
      // From a random position: another control plane that chooses at the same time rarely chooses the same.
      const start = Math.floor(Math.random() * count)
      for (let step = 0; step < count; step += 1) {
        const address = addressAt(first + ((start + step) % count))
        if (!isFree(address)) continue
        hold(address, name)
        return address
      }
      return null
    },
    learn: (held) => {
      const now = clock.monotonicMs()
      for (const [name, address] of [...places])
        if (!held.has(name) && now - holders.get(address)!.sinceMs > unseenMs) release(name)
      for (const [name, address] of held) if (places.get(name) !== address) hold(address, name)
      for (const [address, { name, sinceMs }] of holders)
        if (name === null && now - sinceMs >= restMs) holders.delete(address)
    },
    release,
  }
}
