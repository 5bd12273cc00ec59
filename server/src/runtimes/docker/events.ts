/** One stream of the engine's events about our containers, shared by all listeners, open only while there is one. */
import type { Readable } from 'node:stream'
import { createInbox } from '../../lib/concurrency/inbox.ts'
import { type Engine, engineUnavailable } from '../../lib/docker/docker-engine.ts'
import type { Keep } from '../../lib/foreign-text/keep.ts'
import { readLargeJson } from '../../lib/foreign-text/read-json.ts'
import { readLines } from '../../lib/foreign-text/read-lines.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { LastExit, RuntimeEvent } from '../runtime.ts'
import { isOwnName, labels, taskIdIn } from './describe.ts'

export interface ContainerEvent extends RuntimeEvent {
  name: string
  isTask: boolean
  /** For `died`, else null. */
  exitCode: number | null
  /** RFC 3339. */
  at: string
}

/** The events about a container since the stream was opened. */
export interface Seen {
  startedAt: string | null
  exits: number
  /** It ended, and did not start again since. */
  down: boolean
  /** The kernel ended something in it since it started. */
  oom: boolean
  lastExit: LastExit | null
}

export interface Events {
  /** Resolves when every later event reaches `onEvent`; `onEnd` reports that the stream is lost. */
  listen(onEvent: (event: ContainerEvent) => void, onEnd?: (error: Error) => void): Promise<() => void>
  seen(id: string): Seen | undefined
  /** An event that we found out ourselves, for all listeners. */
  notify(event: RuntimeEvent): void
  close(): void
}

interface Listener {
  onEvent: (event: ContainerEvent) => void
  onEnd: (error: Error) => void
}

interface WireEvent {
  Action: string
  Actor: { ID: string; Attributes: Record<string, string> }
  timeNano: number
}

// A deployment listens several times in a row; the stream outlives the pauses between.
const lingerMs = 10_000

/** The most containers that are remembered; an engine may name more than can exist. */
const mostSeen = 20_000
/** The latest time that a date can represent. */
const latestMs = 8.64e15
/** For one engine; further events wait there. */
const eventsPerSecond = 5000

const kinds: Record<string, RuntimeEvent['kind']> = { start: 'started', die: 'died', oom: 'oom', destroy: 'removed' }

/** An engine elsewhere may report anything: names that cannot be of our containers are skipped. */
const longestName = 255
const isPlain = (text: unknown): text is string => typeof text === 'string' && text.length <= longestName

const toEvent = ({ Action, Actor, timeNano }: Partial<WireEvent>): ContainerEvent | null => {
  const kind = Object.hasOwn(kinds, Action ?? '') ? kinds[Action!] : undefined
  const { ID, Attributes = {} } = Actor ?? {}
  const told = [ID, Attributes.name, Attributes[labels.service], Attributes[labels.revision]]
  if (kind === undefined || !told.every((each) => each === undefined || isPlain(each))) return null
  if (ID === undefined || !isOwnName(Attributes.name ?? '') || !Number.isFinite(timeNano)) return null
  return {
    kind,
    instanceId: ID,
    name: Attributes.name ?? '',
    serviceId: Attributes[labels.service] ?? '',
    revision: Attributes[labels.revision] ?? '',
    isTask: taskIdIn(Attributes.name ?? '', Attributes) !== undefined,
    exitCode: kind === 'died' ? Number(Attributes.exitCode) : null,
    at: new Date(Math.min(Math.max(0, timeNano! / 1e6), latestMs)).toISOString(),
  }
}

/** Labels of a container are in its events. */
const maxEventLength = 8 << 20

const attributes: Keep = Object.fromEntries(['name', 'exitCode', ...Object.values(labels)].map((name) => [name, true]))
const keep: Keep = { Action: true, timeNano: true, Actor: { ID: true, Attributes: attributes } }

/** Events of the engine, however the bytes are cut; of a large one only the needed parts. */
export async function* readEvents<T = WireEvent>(stream: Readable, kept: Keep = keep): AsyncGenerator<T> {
  const tooLong = (): Error => new Error('the engine sent an event that is too long')
  const bounds = { mostBytes: 2 * maxEventLength, mostValues: 1_000_000, owner: 'events of an engine', keep: kept }
  for await (const lines of readLines(stream, { longest: maxEventLength, tooLong, mostPerSecond: eventsPerSecond }))
    for (const line of lines) if (line.trim() !== '') yield (await readLargeJson(line, bounds)) as T
}

export const createEvents = (engine: Engine, ownerId: string, clock: Clock): Events => {
  const listeners = new Set<Listener>()
  const seen = new Map<string, Seen>()
  let open: { flowing: Promise<void>; abort: AbortController } | null = null
  let lingering: NodeJS.Timeout | undefined

  const remember = (event: ContainerEvent): void => {
    if (event.kind === 'removed') return void seen.delete(event.instanceId)
    const known = seen.get(event.instanceId) ?? { startedAt: null, exits: 0, down: false, oom: false, lastExit: null }
    if (event.kind === 'started') Object.assign(known, { startedAt: event.at, down: false, oom: false })
    if (event.kind === 'died') {
      const lastExit = { exitCode: event.exitCode ?? 0, oomKilled: known.oom, at: event.at }
      Object.assign(known, { exits: known.exits + 1, down: true, lastExit })
    }
    if (event.kind === 'oom') {
      known.oom = true
      if (known.down && known.lastExit !== null) known.lastExit.oomKilled = true
    }
    const [oldest] = seen.size < mostSeen || seen.has(event.instanceId) ? [] : seen.keys()
    if (oldest !== undefined) seen.delete(oldest)
    seen.set(event.instanceId, known)
  }

  const end = (error: Error): void => {
    open = null
    seen.clear()
    const lost = [...listeners]
    listeners.clear()
    for (const listener of lost) listener.onEnd(error)
  }

  const pump = async (stream: Readable, abort: AbortController): Promise<void> => {
    try {
      for await (const wire of readEvents(stream)) {
        const event = toEvent(wire)
        if (event === null) continue
        remember(event)
        for (const listener of [...listeners]) listener.onEvent(event)
      }
      throw new Error('the event stream ended')
    } catch (error) {
      if (!abort.signal.aborted) end(engineUnavailable(error))
    }
  }

  const start = () => {
    const abort = new AbortController()
    // The engine answers just before it subscribes: `since` includes events in between.
    const since = (clock.now().getTime() / 1000).toFixed(3)
    const filters = { type: ['container'], event: Object.keys(kinds), label: [`${labels.owner}=${ownerId}`] }
    const query = { since, filters: JSON.stringify(filters) }
    const flowing = engine.stream('GET', '/events', { query, signal: abort.signal }).then((stream) => {
      void pump(stream, abort)
    })
    flowing.catch(() => {
      if (open?.abort === abort) open = null
    })
    return { flowing, abort }
  }

  const close = (): void => {
    clearTimeout(lingering)
    open?.abort.abort()
    open = null
    seen.clear()
  }

  const leave = (listener: Listener): void => {
    if (!listeners.delete(listener) || listeners.size > 0) return
    clearTimeout(lingering)
    lingering = setTimeout(() => listeners.size === 0 && close(), lingerMs)
    lingering.unref()
  }

  return {
    listen: async (onEvent, onEnd = () => {}) => {
      const listener = { onEvent, onEnd }
      open ??= start()
      listeners.add(listener)
      try {
        await open.flowing
      } catch (error) {
        leave(listener)
        throw error
      }
      return () => leave(listener)
    },
    seen: (id) => seen.get(id),
    notify: (event) => {
      const own = { ...event, name: '', isTask: false, exitCode: null, at: clock.now().toISOString() }
      for (const listener of [...listeners]) listener.onEvent(own)
    },
    close: () => {
      close()
      end(new Error('the runtime is closed'))
    },
  }
}

/** Our events as they arrive, without those of tasks; ends when aborted, rejects when the engine disconnects. */
export const watchEvents = (events: Events, signal: AbortSignal): AsyncIterable<RuntimeEvent> => {
  const inbox = createInbox<RuntimeEvent>()
  const listening = events.listen(({ serviceId, revision, instanceId, kind, isTask }) => {
    if (!isTask) inbox.put({ serviceId, revision, instanceId, kind })
  }, inbox.fail)
  listening.catch(() => {})
  return (async function* () {
    try {
      await listening
      yield* inbox.read(signal)
    } finally {
      listening.then(
        (leave) => leave(),
        () => {},
      )
    }
  })()
}

interface NetworkEvent {
  Actor?: { Attributes?: { container?: string } }
}

const keptOfNetwork: Keep = { Actor: { Attributes: { container: true } } }

/** Containers that are disconnected from a network, also at each end: until aborted; rejects when the events end. */
export const watchDisconnects = async (
  engine: Pick<Engine, 'stream'>,
  onDisconnect: (containerId: string) => void,
  signal: AbortSignal,
): Promise<void> => {
  // These events cannot be filtered by our labels.
  const filters = JSON.stringify({ type: ['network'], event: ['disconnect'] })
  const stream = await engine.stream('GET', '/events', { query: { filters }, signal })
  for await (const { Actor } of readEvents<NetworkEvent>(stream, keptOfNetwork)) {
    const id = Actor?.Attributes?.container
    if (typeof id === 'string') onDisconnect(id)
  }
  throw new Error('the stream of network events ended')
}
