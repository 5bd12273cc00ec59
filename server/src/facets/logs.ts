/** Logs of services: the last lines, and a stream of events. The websocket of the public API is in log-socket.ts. */
import type { Context } from '../api/operations/operation.ts'
import type { Parts } from '../api/parts.ts'
import { readRef } from '../clusters/refs.ts'
import { createSemaphore } from '../lib/concurrency/semaphore.ts'
import { untilAborted } from '../lib/concurrency/waiting.ts'
import { DeploymentError, notFound, unavailable } from '../lib/errors.ts'
import { idOf } from '../lib/ids.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { LogLine, Runtime, ServiceKey } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'
import { createPace, type Pace } from '../streams/pace.ts'
import { endAway, eventSink, type Sink } from '../streams/sink.ts'
import type { Facet } from './facet.ts'
import { asEvent, asRecord, logOperations, maxTail, type ShownLine, searchedLines, tailOf } from './log-lines.ts'

const retryMs = 1000
/** For all live logs of one organization together; after a pause, a larger number is sent at once. */
const linesPerSecond = 10_000
const mostLinesAtOnce = 100_000
/** Lines sent between two turns of other streams. */
const linesAtOnce = 100
/** A longer line counts as several. */
const charsPerLine = 500
const maxReadMs = 4000

/** The version of a line: the commit of its revision, else the revision. */
export const readVersions = async (db: Queryable, serviceId: string): Promise<Map<string, string>> => {
  const rows = await db.query<{ revision: string; version: string }>(
    `select deployment_id as revision, coalesce(commit ->> 'git_commit_id', image) as version from release
     where service_id = $1 order by created_at desc limit 50`,
    [serviceId],
  )
  return new Map(rows.map((row) => [row.revision, row.version]))
}

export const asShown = (
  { at, text, stream, instance, revision }: LogLine,
  versions: ReadonlyMap<string, string>,
): ShownLine => ({
  at,
  text,
  level: stream === 'stderr' ? 'error' : 'info',
  place: instance,
  version: versions.get(revision) ?? revision,
})

/** A stream forwards what it reads, so it may begin with the oldest line that the engine has. */
export const streamTailOf = ({ query }: Context): number => Number(query.limit ?? query.tail ?? maxTail)

/** Where a service runs, and its name there. */
const placeOf = async ({ clusters, database }: Parts, serviceId: string) => {
  const ref = await readRef(database, serviceId)
  if (ref === null) throw notFound()
  const { runtime } = await clusters.of(ref.clusterId)
  return { runtime, key: ref }
}

/** Waits for as much of the pace as the lines take. */
const createTaker = (pace: Pace, signal: AbortSignal): ((line: LogLine) => Promise<void> | undefined) => {
  let count = 0
  return ({ text }) => {
    count += 1 + Math.floor(text.length / charsPerLine)
    if (count < linesAtOnce) return undefined
    const taken = count
    count = 0
    return pace.take(taken, signal)
  }
}

/** Rejects with a 503 if the engine does not answer in time: a caller must not wait for one that hangs. */
const readTail = async (runtime: Runtime, service: ServiceKey, tail: number, pace?: Pace): Promise<LogLine[]> => {
  const signal = AbortSignal.timeout(maxReadMs)
  const away = (cause: unknown) =>
    unavailable(
      'engine_unavailable',
      "The log is temporarily unavailable: the cluster's engine does not answer. Try again later.",
      5,
      cause,
    )
  const read = async (): Promise<LogLine[]> => {
    const lines: LogLine[] = []
    const take = pace === undefined ? () => undefined : createTaker(pace, signal)
    for await (const line of runtime.logs(service, { tail, signal })) {
      await take(line)
      lines.push(line)
    }
    signal.throwIfAborted()
    return lines
  }
  try {
    return await untilAborted(read(), signal)
  } catch (error) {
    if (signal.aborted || (error instanceof DeploymentError && error.next === 'wait')) throw away(error)
    throw error
  }
}

const lastLines = async (context: Context) => {
  const { parts, db, node } = context
  const tail = tailOf(context)
  if (tail === 0) return { results: [] }
  const versions = await readVersions(db, node.id)
  const { runtime, key } = await placeOf(parts, node.id)
  const lines = await readTail(runtime, key, tail)
  const results = lines.map((line, index) =>
    asRecord(idOf(line.instance, line.at, line.text, String(index)), asShown(line, versions)),
  )
  return { results: results.slice(-tail) }
}

/** Shared by all live logs of one organization. */
interface Shared {
  pace: Pace
  /** The search for the first lines of a filter: one at a time. */
  inTurn: ReturnType<typeof createSemaphore>
}

type Following = Shared & { clock: Clock }

/** Follows lines across restarts and new versions until aborted; begins with the last ones, or after a time. */
async function* follow(
  runtime: Runtime,
  { clock, pace }: Following,
  service: ServiceKey,
  begin: { tail: number } | { since: string },
  signal: AbortSignal,
): AsyncIterable<LogLine> {
  let since: string | undefined
  const take = createTaker(pace, signal)
  while (!signal.aborted) {
    const from = since === undefined ? begin : { since }
    try {
      for await (const line of runtime.logs(service, { ...from, follow: true, signal })) {
        since = line.at
        await take(line)
        yield line
      }
    } catch (error) {
      if (signal.aborted) return
      throw error
    }
    since ??= clock.now().toISOString()
    await clock.sleep(retryMs, signal).catch(() => {})
  }
}

/** The last `tail` lines that match, and all later ones that do. */
async function* followWanted(
  runtime: Runtime,
  following: Following,
  service: ServiceKey,
  tail: number,
  isWanted: (line: LogLine) => boolean,
  signal: AbortSignal,
): AsyncIterable<LogLine> {
  const now = following.clock.now().toISOString()
  const search = (): Promise<LogLine[]> => readTail(runtime, service, searchedLines, following.pace)
  const before = await following.inTurn(service.serviceId, search, { signal })
  yield* before.filter(isWanted).slice(tail === 0 ? before.length : -tail)
  for await (const line of follow(runtime, following, service, { since: before.at(-1)?.at ?? now }, signal))
    if (isWanted(line)) yield line
}

/** Sends lines formatted by `show` until the reader disconnects. */
export const sendLines = async (
  { parts, node, ...context }: Context,
  sink: Sink,
  versions: Map<string, string>,
  show: (line: ShownLine) => object,
  isWanted: ((line: LogLine) => boolean) | null = null,
): Promise<void> => {
  try {
    const tail = streamTailOf(context as Context)
    const { runtime, key } = await placeOf(parts, node.id)
    const { clock } = parts
    const shared = parts.streams.share(
      `lines of ${node.organizationId}`,
      (): Shared => ({ pace: createPace(clock, linesPerSecond, mostLinesAtOnce), inTurn: createSemaphore(1) }),
    )
    const following = { clock, ...shared }
    const lines =
      isWanted === null
        ? follow(runtime, following, key, { tail }, sink.gone)
        : followWanted(runtime, following, key, tail, isWanted, sink.gone)
    for await (const line of lines) await sink.send(JSON.stringify(show(asShown(line, versions))))
    sink.end()
  } catch (error) {
    parts.log.warn({ err: error, serviceId: node.id }, 'a log stream ended early')
    endAway(sink, 'log')
  }
}

const streamLines = async (context: Context) => {
  const versions = await readVersions(context.db, context.node.id)
  await sendLines(context, eventSink(context, 'log lines of this service, oldest first'), versions, asEvent)
}

export const logs: Facet = (self) =>
  logOperations(self, {
    summaries: {
      list: `Read the last lines that ${self.nounWithArticle} printed, oldest first`,
      stream: `Follow what ${self.nounWithArticle} prints, as server-sent events`,
    },
    list: lastLines,
    stream: streamLines,
  })
