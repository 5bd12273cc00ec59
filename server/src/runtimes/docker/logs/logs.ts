/** Lines of a service's containers: history merged by time, then live, including instances that join later. */
import { type Engine, isEngineError } from '../../../lib/docker/docker-engine.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import { normalizeTime } from '../../log-time.ts'
import type { LogLine, LogOptions, ServiceKey } from '../../runtime.ts'
import { type ContainerRow, type Containers, toInstance } from '../containers.ts'
import { labels } from '../describe.ts'
import type { Events } from '../events.ts'
import { readLines } from './log-frames.ts'
import { createLogJoiner, type LogSource } from './log-joiner.ts'

// Drops lines that the engine sends twice: it starts a rotated file again at its first line if it is followed at the
// moment of rotation. The lines of one stream of a container have increasing timestamps, so an older one is a repeat.
interface Seen {
  last: string
  /** In the middle of a repeat, which ends with the last line returned. */
  rewound: boolean
}

/** A last timestamp later than `now` (ISO) means a clock set back, not a repeat: then no line is dropped. */
export const createRepeatFilter = (now: () => string): ((line: LogLine) => boolean) => {
  const seen: Record<LogLine['stream'], Seen> = {
    stdout: { last: '', rewound: false },
    stderr: { last: '', rewound: false },
  }
  return ({ at, stream }) => {
    const before = seen[stream]
    if (at > before.last) before.rewound = false
    else if (at < before.last && !before.rewound) before.rewound = before.last <= now()
    if (before.rewound) return false
    before.last = at
    return true
  }
}

type Batches = AsyncGenerator<LogLine[]>

interface ReadOptions {
  tail?: number
  /** Normalized by `normalizeTime`. */
  since?: string
  until?: string
  follow?: boolean
  signal?: AbortSignal
}

export interface Logs {
  /** The lines of one container; empty when it is gone. Task containers are read this way too. */
  read(source: LogSource, options: ReadOptions): Batches
  /** Texts of the last lines of one container. */
  lastLines(source: LogSource, count: number): Promise<string[]>
  /** Those of a service. */
  ofService(service: ServiceKey, options: LogOptions): AsyncIterable<LogLine>
}

// Lines that may be written between reading the history and following: more may be lost.
const handoverLines = 20_000

/** Seconds and nanoseconds, as the engine requires them. */
const toEngineTime = (normalized: string): string =>
  `${Math.floor(new Date(normalized).getTime() / 1000)}${normalized.slice(19, 29)}`

const sourceOf = (row: ContainerRow): LogSource => {
  const { id, name, revision } = toInstance(row)
  return { id, name, revision }
}

/** Merges sorted sources by time, in batches; keeps one batch of each. */
async function* mergeByTime(sources: Batches[]): Batches {
  if (sources.length === 1) return yield* sources[0]!
  const heads: { lines: LogLine[]; next: number; from: Batches }[] = []
  for (const from of sources) {
    const { value, done } = await from.next()
    if (!done) heads.push({ lines: value, next: 0, from })
  }
  let merged: LogLine[] = []
  while (heads.length > 0) {
    let first = heads[0]!
    for (const head of heads) if (head.lines[head.next]!.at < first.lines[first.next]!.at) first = head
    merged.push(first.lines[first.next++]!)
    if (first.next < first.lines.length) continue
    yield merged
    merged = []
    const { value, done } = await first.from.next()
    if (done) heads.splice(heads.indexOf(first), 1)
    else Object.assign(first, { lines: value, next: 0 })
  }
}

/** Lines of several containers kept for merging: a longer tail comes from one container alone. */
const mergedMost = 10_000

const keepLast = async (batches: Batches, count: number): Promise<LogLine[]> => {
  let last: LogLine[] = []
  for await (const lines of batches) {
    for (const line of lines) last.push(line)
    if (last.length > 2 * count + 1000) last = last.slice(-count)
  }
  return count === 0 ? [] : last.slice(-count)
}

async function* flatten(batches: Batches, signal?: AbortSignal): AsyncGenerator<LogLine> {
  for await (const lines of batches)
    for (const line of lines) {
      if (signal?.aborted) return
      yield line
    }
}

export const createLogs = (engine: Engine, containers: Containers, events: Events, clock: Clock): Logs => {
  async function* read(source: LogSource, { tail, since, until, follow = false, signal }: ReadOptions): Batches {
    const query = {
      stdout: true,
      stderr: true,
      timestamps: true,
      follow,
      tail: tail ?? 'all',
      since: since && toEngineTime(since),
      until: until && toEngineTime(until),
    }
    try {
      const stream = await engine.stream('GET', `/containers/${source.id}/logs`, { query, signal })
      const isNew = createRepeatFilter(() => clock.now().toISOString())
      for await (const lines of readLines(stream, source.name, source.revision)) {
        const later = lines.filter(
          ({ at }, index) =>
            (since === undefined || at > since) &&
            (until === undefined || at < until) &&
            (!follow || isNew(lines[index]!)),
        )
        if (later.length > 0) yield later
      }
    } catch (error) {
      // Gone, or being removed: it has no more lines.
      if (!signal?.aborted && !isEngineError(error, 404, 409)) throw error
    }
  }

  const rowsOf = (serviceId: string) => containers.list({ [labels.service]: serviceId })

  async function* history(sources: LogSource[], { tail, since, until, signal }: LogOptions): Batches {
    const times = {
      since: since === undefined ? undefined : normalizeTime(since),
      until: until === undefined ? undefined : normalizeTime(until),
    }
    const all = mergeByTime(sources.map((source) => read(source, { tail, ...times, signal })))
    if (tail === undefined) yield* all
    else yield await keepLast(all, Math.min(tail, mergedMost))
  }

  /** One container alone needs no merge: the engine continues seamlessly from history to live lines. */
  async function* follow(serviceId: string, options: LogOptions, signal: AbortSignal): Batches {
    const { tail } = options
    const begun = normalizeTime(clock.now().toISOString())
    let since = options.since === undefined ? undefined : normalizeTime(options.since)
    const firstSince = since
    const joiner = createLogJoiner((source, from) =>
      read(source, {
        since: from,
        follow: true,
        signal,
        tail: from === firstSince ? firstTail.get(source.id) : handover,
      }),
    )
    const firstTail = new Map<string, number | undefined>()
    const handover = tail === undefined ? undefined : handoverLines
    const joins: LogSource[] = []
    let join = (source: LogSource): void => void joins.push(source)
    const leave = await events.listen(
      ({ serviceId: of, isTask, kind, instanceId: id, name, revision }) => {
        if (of === serviceId && !isTask && kind === 'started') join({ id, name, revision })
      },
      (error) => joiner.fail(error),
    )
    try {
      const sources = (await rowsOf(serviceId)).map(sourceOf)
      if (sources.length === 1) firstTail.set(sources[0]!.id, tail)
      else
        for await (const lines of history(sources, options)) {
          // Lines cut off by the tail are older than its first line, also those of containers that are not in it.
          if (tail !== undefined) since = lines[0]?.at ?? begun
          for (const line of lines) joiner.remember(line)
          if (lines.length > 0) yield lines
        }
      for (const source of sources) joiner.join(source, since)
      join = (source) => joiner.join(source)
      for (const source of joins) join(source)
      yield* joiner.batches(signal)
    } finally {
      leave()
    }
  }

  /** Ends all streams when the reader leaves. */
  async function* followUntilLeft(serviceId: string, options: LogOptions): Batches {
    const left = new AbortController()
    const signal = options.signal ? AbortSignal.any([options.signal, left.signal]) : left.signal
    try {
      yield* follow(serviceId, { ...options, signal }, signal)
    } finally {
      left.abort()
    }
  }

  async function* present(serviceId: string, options: LogOptions): Batches {
    yield* history((await rowsOf(serviceId)).map(sourceOf), options)
  }

  return {
    read,
    lastLines: async (source, count) => {
      const lines = await keepLast(read(source, { tail: count }), count)
      return lines.map((line) => line.text)
    },
    ofService: ({ serviceId }, options) =>
      flatten((options.follow ? followUntilLeft : present)(serviceId, options), options.signal),
  }
}
