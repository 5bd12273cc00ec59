/** Idle connections for reuse, by destination. Promises that an unused one is closed within seconds. */
import type { Client } from 'undici'

const idleMs = 4000
const perPlace = 64

interface Kept {
  client: Client
  closing: NodeJS.Timeout
}

export interface KeptConnections {
  /** An idle connection to a destination; it belongs to the caller from now on. */
  take(place: string): Client | undefined
  /** Returns a connection for the next request. */
  give(place: string, client: Client): void
}

export const createKeptConnections = (): KeptConnections => {
  const places = new Map<string, Kept[]>()

  const forget = (place: string, client: Client): void => {
    const left = (places.get(place) ?? []).filter((kept) => kept.client !== client)
    if (left.length === 0) places.delete(place)
    else places.set(place, left)
    client.destroy().catch(() => {})
  }
  return {
    take(place) {
      const kept = places.get(place)?.pop()
      if (kept === undefined) return undefined
      clearTimeout(kept.closing)
      if (places.get(place)?.length === 0) places.delete(place)
      return kept.client
    },
    give(place, client) {
      const there = places.get(place) ?? []
      if (there.length >= perPlace) return void client.destroy().catch(() => {})
      const closing = setTimeout(forget, idleMs, place, client).unref()
      places.set(place, [...there, { client, closing }])
    },
  }
}
