/** Lines of pods: history, then live. */
import { setMaxListeners } from 'node:events'
import type { Readable } from 'node:stream'
import { readLines } from '../../../lib/foreign-text/read-lines.ts'
import { KubernetesError } from '../../../lib/kubernetes/kubernetes-errors.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import { normalizeTime } from '../../log-time.ts'
import type { LogLine, LogOptions, ServiceKey } from '../../runtime.ts'
import { followObjects } from '../follow.ts'
import { instanceSelector, labels, namespaceOf } from '../manifests/describe.ts'
import { asDeploymentError, type Found, type Objects, pathOf } from '../objects.ts'
import { mainNameOf, mainOf, type Pod } from '../pods.ts'

interface ReadOptions {
  tail?: number | undefined
  /** Normalized: only later lines. */
  since?: string | undefined
  until?: string | undefined
  follow?: boolean
  /** Lines of the container's previous life. */
  previous?: boolean
  signal?: AbortSignal | undefined
}

const longestLine = 1 << 20
async function* linesOf(stream: Readable): AsyncGenerator<string> {
  for await (const lines of readLines(stream, { longest: longestLine, hasOpenEnd: true })) yield* lines
}

/** `2026-01-02T03:04:05.6Z text`; a line without a time cannot be sorted. */
const parseLine = (line: string, pod: Found): LogLine | null => {
  const space = line.indexOf(' ')
  const at = space === -1 ? line : line.slice(0, space)
  if (Number.isNaN(Date.parse(at))) return null
  const text = space === -1 ? '' : line.slice(space + 1)
  const revision = pod.metadata.labels?.[labels.revision] ?? ''
  return { at: normalizeTime(at), text, stream: 'stdout', instance: pod.metadata.name, revision }
}

interface PodReader {
  /** The lines of one pod; none if it is gone, or has not started. */
  read(pod: Found, options: ReadOptions): AsyncGenerator<LogLine>
  lastLines(pod: Pod, count: number): Promise<string[]>
}

const createReader = ({ api }: Pick<Objects, 'api'>): PodReader => {
  async function* read(pod: Found, options: ReadOptions): AsyncGenerator<LogLine> {
    const { tail, since, until, follow = false, previous = false, signal } = options
    const { name, namespace } = pod.metadata
    const query = {
      container: mainNameOf(pod),
      timestamps: true,
      ...(follow ? { follow } : {}),
      ...(previous ? { previous } : {}),
      ...(tail === undefined ? {} : { tailLines: tail }),
      ...(since === undefined ? {} : { sinceTime: `${since.slice(0, 19)}Z` }),
    }
    try {
      const stream = await api.stream(`${pathOf('Pod', namespace, name)}/log`, { query, signal })
      for await (const text of linesOf(stream)) {
        const line = parseLine(text, pod)
        if (line === null || (since !== undefined && line.at <= since)) continue
        if (until !== undefined && line.at >= until) return
        yield line
      }
    } catch (error) {
      if (signal?.aborted) return
      // 400: it has not started. 404: it is gone, and has no more lines.
      if (error instanceof KubernetesError && (error.status === 400 || error.status === 404)) return
      throw asDeploymentError(error, 'the log')
    }
  }

  const lastLines = async (pod: Pod, count: number): Promise<string[]> => {
    const take = async (previous: boolean): Promise<string[]> => {
      const texts: string[] = []
      for await (const { text } of read(pod, { tail: count, previous })) texts.push(text)
      return texts
    }
    const waits = mainOf(pod)?.state?.running === undefined && mainOf(pod)?.state?.terminated === undefined
    const texts = await take(false)
    return texts.length === 0 || waits ? await take((mainOf(pod)?.restartCount ?? 0) > 0) : texts
  }

  return { read, lastLines }
}

export interface PodLogs extends PodReader {
  ofService(service: ServiceKey, options: LogOptions): AsyncIterable<LogLine>
}

/** Lines of several pods kept for merging. */
const mergedMost = 10_000
/** Lines that wait for a slow reader; the cluster waits then. */
const waitingMost = 1000

const byTime = (a: LogLine, b: LogLine): number => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0)

/** One pod's lines at a time, in the order in which they arrive, for one reader. */
const createQueue = (signal: AbortSignal) => {
  const lines: LogLine[] = []
  let failure: unknown = null
  let [wakeReader, wakeWriters] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const wake = (): void => wakeReader.resolve()
  signal.addEventListener(
    'abort',
    () => {
      wakeReader.resolve()
      wakeWriters.resolve()
    },
    { once: true },
  )
  return {
    async put(line: LogLine): Promise<void> {
      while (lines.length >= waitingMost && !signal.aborted) await wakeWriters.promise
      lines.push(line)
      wake()
    },
    fail(error: unknown): void {
      failure = error
      wake()
    },
    async *take(): AsyncGenerator<LogLine> {
      while (!signal.aborted) {
        const next = lines.shift()
        if (next !== undefined) {
          if (lines.length === 0) {
            wakeWriters.resolve()
            wakeWriters = Promise.withResolvers()
          }
          yield next
          continue
        }
        if (failure !== null) throw failure
        wakeReader = Promise.withResolvers()
        await wakeReader.promise
      }
    },
  }
}

const hasRun = (pod: Pod): boolean => {
  const main = mainOf(pod)
  return main?.state?.running !== undefined || main?.state?.terminated !== undefined || (main?.restartCount ?? 0) > 0
}

export const createPodLogs = (objects: Objects, clock: Clock): PodLogs => {
  const { read, lastLines } = createReader(objects)

  const podsOf = (service: ServiceKey, signal?: AbortSignal) =>
    objects.list<Pod>('Pod', instanceSelector(service), namespaceOf(service.environmentId), signal)

  const history = async (service: ServiceKey, options: LogOptions): Promise<LogLine[]> => {
    const { tail, signal } = options
    const [since, until] = [options.since, options.until].map((at) =>
      at === undefined ? undefined : normalizeTime(at),
    )
    const most = Math.min(tail ?? mergedMost, mergedMost)
    let all: LogLine[] = []
    for (const pod of (await podsOf(service, signal)).filter(hasRun)) {
      // The cluster's own limit counts from the newest line, and these may all be later than wanted.
      const tailed = until === undefined && tail !== undefined ? { tail: most } : {}
      for await (const line of read(pod, { since, until, signal, ...tailed })) {
        all.push(line)
        if (all.length > 2 * mergedMost + 1000) all = all.sort(byTime).slice(-mergedMost)
      }
    }
    all.sort(byTime)
    return tail === undefined ? all : all.slice(Math.max(0, all.length - most))
  }

  /** Each life of each pod is read once; lines already passed on are recognized by their time. */
  async function* follow(service: ServiceKey, options: LogOptions, signal: AbortSignal): AsyncGenerator<LogLine> {
    const told = new Map<string, string>()
    const reading = new Set<string>()
    const queue = createQueue(signal)
    const begun = normalizeTime(clock.now().toISOString())
    let since = options.since === undefined ? undefined : normalizeTime(options.since)
    if (options.tail !== undefined) {
      const past = await history(service, { ...options, follow: false, signal })
      since = past[0]?.at ?? begun
      for (const line of past) {
        told.set(line.instance, line.at)
        yield line
      }
      since = past.at(-1)?.at ?? since
    }
    const readOn = async (pod: Pod): Promise<void> => {
      const { name } = pod.metadata
      try {
        for await (const line of read(pod, { since: told.get(name) ?? since, follow: true, signal })) {
          told.set(name, line.at)
          await queue.put(line)
        }
      } finally {
        reading.delete(name)
      }
    }
    const join = (pod: Pod): void => {
      if (!hasRun(pod) || reading.has(pod.metadata.name)) return
      reading.add(pod.metadata.name)
      readOn(pod).catch(queue.fail)
    }
    const namespace = namespaceOf(service.environmentId)
    followObjects<Pod>(
      objects,
      clock,
      {
        kind: 'Pod',
        namespace,
        wanted: instanceSelector(service),
        onChange: (change) => {
          for (const pod of change.type === 'ALL' ? change.items : [change.object])
            if (change.type !== 'DELETED') join(pod)
        },
      },
      signal,
    ).catch((error: unknown) => queue.fail(asDeploymentError(error, 'the log')))
    yield* queue.take()
  }

  async function* ofService(service: ServiceKey, options: LogOptions): AsyncGenerator<LogLine> {
    if (options.follow !== true) return yield* await history(service, options)
    const left = new AbortController()
    const signal = options.signal === undefined ? left.signal : AbortSignal.any([options.signal, left.signal])
    setMaxListeners(0, signal)
    try {
      yield* follow(service, options, signal)
    } finally {
      left.abort()
    }
  }

  return { read, lastLines, ofService }
}
