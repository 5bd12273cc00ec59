/**
 * Follows a collection of a Kubernetes cluster: its present objects, then every change. Promises: no change is left
 * out: if the cluster no longer has the version to continue from (410), the collection is read anew, and a connection
 * that is lost, silent, or was ended by the cluster is reopened where it stopped. Never in a tight loop: each failure
 * waits longer, up to half a minute. Ends quietly when aborted; rejects only with errors that waiting does not fix
 * (401, 403, 404 and others of our own making).
 */
import type { Readable } from 'node:stream'
import { readLargeJson } from '../foreign-text/read-json.ts'
import { readLines } from '../foreign-text/read-lines.ts'
import type { Clock } from '../time/clock.ts'
import type { KubernetesApi } from './kubernetes-api.ts'
import { KubernetesError, refusedBy } from './kubernetes-errors.ts'

export type Change<T> =
  /** All objects: at the beginning, and whenever the collection was read anew. */
  { type: 'ALL'; items: T[] } | { type: 'ADDED' | 'MODIFIED' | 'DELETED'; object: T }

interface WatchOptions {
  signal: AbortSignal
  clock: Pick<Clock, 'sleep'>
  query?: Record<string, string>
  /** The most objects of the collection that are followed. Default 10,000. */
  most?: number
}

/** The cluster ends a watch by itself after this. */
const watchSeconds = 240
/** Bookmarks come about once a minute: a connection that is silent for longer was lost without notice. */
const silenceMs = 90_000
const firstPauseMs = 500
const longestPauseMs = 30_000
const longestEvent = 4 << 20
/** The most events a second that are read from a cluster; beyond that, its sender waits. */
const eventsPerSecond = 20_000

interface WireEvent<T> {
  type: string
  object: T & { metadata?: { resourceVersion?: unknown }; code?: unknown }
}

async function* parseLines<T>(stream: Readable): AsyncGenerator<T> {
  const tooLong = (): Error => new KubernetesError(0, 'The cluster sent an event that is too long.')
  const bounds = { mostBytes: 2 * longestEvent, owner: 'events of a cluster' }
  for await (const lines of readLines(stream, { longest: longestEvent, tooLong, mostPerSecond: eventsPerSecond }))
    for (const line of lines) if (line.trim() !== '') yield (await readLargeJson(line, bounds)) as T
}

const passing = new Set([0, 410, 429])

/** Whether asking again later may help. */
export const isPassing = (error: unknown): boolean =>
  !(error instanceof KubernetesError) || passing.has(error.status) || error.status >= 500

const endSilent = (stream: Readable, clock: Pick<Clock, 'sleep'>, ended: AbortSignal): (() => void) => {
  let isHeard = true
  const look = async (): Promise<void> => {
    while (isHeard) {
      isHeard = false
      await clock.sleep(silenceMs, ended, { ref: false })
    }
    stream.destroy(new KubernetesError(0, 'The API server of the cluster is silent.'))
  }
  look().catch(() => {})
  return () => {
    isHeard = true
  }
}

class Interrupted extends Error {
  readonly place: string

  constructor(place: string, options: ErrorOptions) {
    super('the watch was interrupted', options)
    this.place = place
  }
}

/** The changes of one connection; returns where it stopped, or null if the cluster no longer has that version. */
async function* follow<T>(
  api: Pick<KubernetesApi, 'stream'>,
  path: string,
  from: string,
  { signal, clock, query }: WatchOptions,
): AsyncGenerator<Change<T>, string | null> {
  const ended = new AbortController()
  const either = AbortSignal.any([signal, ended.signal])
  let place = from
  try {
    const stream = await api.stream(path, {
      query: { ...query, watch: true, allowWatchBookmarks: true, resourceVersion: from, timeoutSeconds: watchSeconds },
      signal: either,
    })
    const heard = endSilent(stream, clock, either)
    for await (const { type, object } of parseLines<WireEvent<T>>(stream)) {
      heard()
      if (type === 'ERROR') {
        if (object.code === 410) return null
        throw refusedBy(Number(object.code) || 500, object)
      }
      place = String(object.metadata?.resourceVersion ?? place)
      if (type === 'ADDED' || type === 'MODIFIED' || type === 'DELETED') yield { type, object }
    }
    return place
  } catch (error) {
    if (error instanceof KubernetesError && error.status === 410) return null
    if (signal.aborted || isPassing(error)) throw new Interrupted(place, { cause: error })
    throw error
  } finally {
    ended.abort()
  }
}

export async function* watch<T>(
  api: Pick<KubernetesApi, 'stream' | 'read'>,
  path: string,
  options: WatchOptions,
): AsyncGenerator<Change<T>> {
  const { signal, clock, query, most = 10_000 } = options
  let place: string | null = null
  let pauseMs = firstPauseMs
  while (!signal.aborted) {
    try {
      if (place === null) {
        const { items, resourceVersion } = await api.read<T>(path, most, { ...(query && { query }), signal })
        place = resourceVersion
        yield { type: 'ALL', items }
      }
      const before: string = place
      place = yield* follow<T>(api, path, place, options)
      // A connection that ends at once without any event would cause a tight loop.
      if (place !== before && place !== null) pauseMs = firstPauseMs
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof Interrupted) place = error.place === '' ? null : error.place
      else if (!isPassing(error)) throw error
    }
    await clock.sleep(pauseMs, signal).catch(() => {})
    pauseMs = Math.min(pauseMs * 2, longestPauseMs)
  }
}
