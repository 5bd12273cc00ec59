/**
 * Live logs of deployments. Lines are read from the database when there may be new ones: every 250 ms while a
 * deployment of the environment runs, else only when its status changes. Streams at the same position share the reads;
 * a slow one reads at its own pace and misses nothing.
 */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation } from '../api/operations/operation.ts'
import { Maybe, Text, Uuid } from '../api/operations/schema.ts'
import type { Parts } from '../api/parts.ts'
import { eventSink, lastEventId, type Sink, socketSink } from '../streams/sink.ts'
import { createLoop } from '../work/loop.ts'
import { maxLines, readClusterId, toLine } from './deployment-log.ts'
import { executionOf, type LogRow, readAfter, readEnd, readLast } from './deployment-log-lines.ts'
import { StreamQuery } from './stream-query.ts'

const pollMs = 250
const sweepMs = 30_000

interface Follower {
  chunk: string
  send(rows: LogRow[]): Promise<void>
  busy: boolean
  /** There may be new lines since its last read began. */
  behind: boolean
}

interface Tail {
  follow(follower: Follower): () => void
}

type About = { environmentId: string; execution: number | null }

const createTail = (parts: Parts, { environmentId, execution }: About, over: () => void): Tail => {
  const { database, log, streams } = parts
  const followers = new Set<Follower>()
  let reads = new Map<string, Promise<LogRow[]>>()
  let wasOpen = true
  let ending: (() => void) | undefined
  let isOver = false

  const after = (chunk: string): Promise<LogRow[]> => {
    const found = reads.get(chunk) ?? readAfter(database, environmentId, execution, chunk)
    reads.set(chunk, found)
    return found
  }
  const push = async (follower: Follower): Promise<void> => {
    follower.behind = true
    if (follower.busy) return
    follower.busy = true
    try {
      while (followers.has(follower) && follower.behind) {
        follower.behind = false
        const rows = await after(follower.chunk)
        if (rows.length === 0) continue
        follower.behind = true
        follower.chunk = rows.at(-1)!.chunk
        await follower.send(rows)
      }
    } catch (error) {
      log.warn({ err: error, environmentId }, 'a deployment log could not be read; retrying')
    }
    follower.busy = false
  }
  const look = async (): Promise<number | undefined> => {
    ending ??= await streams.changes.subscribe(environmentId, () => loop.wake())
    if (isOver) {
      ending()
      return undefined
    }
    const { isOpen } = await readEnd(database, environmentId, execution)
    reads = new Map()
    for (const follower of followers) void push(follower)
    // Once more after the end: the last lines may have been written concurrently.
    const pause = isOpen || wasOpen ? pollMs : sweepMs
    wasOpen = isOpen
    return pause
  }
  const loop = createLoop(parts, {
    name: 'log streams',
    periodMs: sweepMs,
    waits: true,
    backoff: { firstMs: pollMs * 4, longestMs: pollMs * 4 },
    failed: 'deployment logs could not be read; retrying',
    run: look,
  })
  const close = (): void => {
    isOver = true
    void loop.stop()
    ending?.()
    over()
  }
  return {
    follow(follower) {
      followers.add(follower)
      loop.wake()
      return () => {
        if (followers.delete(follower) && followers.size === 0) close()
      }
    },
  }
}

const tailOf = (parts: Parts, about: About): Tail =>
  parts.streams.share(`log ${about.environmentId} ${about.execution ?? ''}`, (over) => createTail(parts, about, over))

interface Position {
  chunk: string
  index: string
}

const isAfter = (row: Position, from: Position): boolean =>
  row.chunk !== from.chunk ? BigInt(row.chunk) > BigInt(from.chunk) : BigInt(row.index) > BigInt(from.index)

const unknown = 'This environment has no such execution.'

/** Sends existing lines, after the line `from` if given, and then new ones. */
const followLog = async (
  context: Context,
  sink: Sink,
  send: (lines: { id: string; line: object }[]) => Promise<void>,
  from: Position | null,
): Promise<void> => {
  const { parts, node } = context
  const execution = executionOf(context)
  if (execution === undefined) return sink.end(unknown)
  const clusterId = await readClusterId(context)
  const sendRows = (rows: LogRow[]): Promise<void> =>
    send(rows.map((row) => ({ id: `${row.chunk}.${row.index}`, line: toLine(row, context, clusterId) })))
  const { chunk: end } = await readEnd(parts.database, node.id, execution)
  const rows =
    from === null
      ? await readLast(parts.database, node.id, execution, maxLines)
      : await readAfter(parts.database, node.id, execution, String(BigInt(from.chunk) - 1n))
  // Lines that came after the first of the two reads are left to the next.
  const there = rows.filter((row) => BigInt(row.chunk) <= BigInt(end) && (from === null || isAfter(row, from)))
  if (there.length > 0) await sendRows(there)
  const reached =
    from === null ? end : (rows.filter((row) => BigInt(row.chunk) <= BigInt(end)).at(-1)?.chunk ?? from.chunk)
  const follower: Follower = { chunk: reached, busy: false, behind: false, send: sendRows }
  if (sink.gone.aborted) return
  const leave = tailOf(parts, { environmentId: node.id, execution }).follow(follower)
  sink.gone.addEventListener('abort', leave)
}

const begin = (
  context: Context,
  sink: Sink,
  ...rest: [Parameters<typeof followLog>[2], Parameters<typeof followLog>[3]]
) =>
  followLog(context, sink, ...rest).catch((error: unknown) => {
    context.parts.log.warn({ err: error, environmentId: context.node.id }, 'a log stream ended early')
    sink.end('The log is temporarily unavailable: connect again.')
  })

const Version = Maybe(Text(200))

const logEvents = operation({
  id: 'streamEnvironmentLogs',
  method: 'GET',
  path: '/environment/{environmentId}/logs/stream',
  tag: 'Environment Logs',
  summary:
    'Follow the log of a deployment (`version` is its execution_id), by default of the last one and all later ones, as server-sent events',
  scope: 'Read',
  area: 'projects',
  owner: nodeInPath('environment', 'environmentId'),
  query: Type.Object({ version: Version }),
  status: 200,
  produces: 'text/event-stream',
  async run(context) {
    const sink = eventSink(context, "log lines of this environment's deployments, oldest first")
    const [, chunk, index] = /^(\d{1,18})\.(\d{1,9})$/.exec(lastEventId(context) ?? '') ?? []
    const from = chunk === undefined ? null : { chunk, index: index! }
    const send = async (lines: { id: string; line: object }[]): Promise<void> => {
      for (const { id, line } of lines) await sink.send(JSON.stringify(line), id)
    }
    await begin(context, sink, send, from)
  },
})

/** `/deployment/logs`: frames are arrays of lines. */
const logSocket = operation({
  id: 'handleDeploymentLogs',
  method: 'GET',
  path: '/deployment/logs',
  tag: 'Websocket',
  summary:
    'Follow the log of a deployment (`version` is its execution_id), by default of the last one and all later ones',
  scope: 'Read',
  area: 'projects',
  owner: { ...nodeInPath('environment', 'environment'), inQuery: true },
  query: Type.Object({ ...StreamQuery, project: Maybe(Text()), environment: Uuid(), version: Version }),
  status: 200,
  produces: 'websocket',
  socket(context, socket) {
    const sink = socketSink(socket)
    const send = (lines: { line: object }[]): Promise<void> => sink.send(JSON.stringify(lines.map(({ line }) => line)))
    void begin(context, sink, send, null)
  },
})

export const liveLogOperations: Operation[] = [logEvents, logSocket]
