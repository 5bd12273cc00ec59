/** Live logs of deployments: the lines so far, and new ones as they are written. */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation, reading } from '../api/operations/operation.ts'
import { Maybe, Text, Uuid } from '../api/operations/schema.ts'
import { readClusterId } from '../clusters/refs.ts'
import { followTail } from '../streams/log-tail.ts'
import { endAway, eventSink, lastEventId, type Sink, socketSink } from '../streams/sink.ts'
import { maxLines, toLine } from './deployment-log.ts'
import { executionOf, type LogRow, readAfter, readEnd, readLast } from './deployment-log-lines.ts'
import { StreamQuery } from './stream-query.ts'

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
  const clusterId = await readClusterId(context.db, context.node.id)
  // The environment was deleted meanwhile.
  if (clusterId === null) return sink.end(unknown)
  const sendRows = (rows: LogRow[]): Promise<void> =>
    send(rows.map((row) => ({ id: `${row.chunk}.${row.index}`, line: toLine(row, context, clusterId) })))
  const { chunk: end } = await readEnd(parts.database, node.id, execution)
  const rows =
    from === null
      ? await readLast(parts.database, node.id, execution, maxLines)
      : await readAfter(parts.database, node.id, execution, String(BigInt(from.chunk) - 1n))
  // Lines that were written after the first of the two reads are left to the next.
  const there = rows.filter((row) => BigInt(row.chunk) <= BigInt(end) && (from === null || isAfter(row, from)))
  if (there.length > 0) await sendRows(there)
  const reached =
    from === null ? end : (rows.filter((row) => BigInt(row.chunk) <= BigInt(end)).at(-1)?.chunk ?? from.chunk)
  const environmentId = node.id
  const source = {
    key: `log ${environmentId} ${execution ?? ''}`,
    environmentId,
    after: (chunk: string) => readAfter(parts.database, environmentId, execution, chunk),
    isOpen: async () => (await readEnd(parts.database, environmentId, execution)).isOpen,
  }
  followTail(parts, sink, source, { chunk: reached, send: sendRows })
}

const begin = (
  context: Context,
  sink: Sink,
  ...rest: [Parameters<typeof followLog>[2], Parameters<typeof followLog>[3]]
) =>
  followLog(context, sink, ...rest).catch((error: unknown) => {
    context.parts.log.warn({ err: error, environmentId: context.node.id }, 'a log stream ended early')
    endAway(sink, 'log')
  })

const Version = Maybe(Text(200))

const logEvents = operation({
  id: 'streamEnvironmentLogs',
  ...reading,
  path: '/environment/{environmentId}/logs/stream',
  tag: 'Environment Logs',
  summary:
    'Follow the log of a deployment (`version` is its execution_id), by default of the last one and all later ones, as server-sent events',
  area: 'projects',
  owner: nodeInPath('environment', 'environmentId'),
  query: Type.Object({ version: Version }),
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
  ...reading,
  path: '/deployment/logs',
  tag: 'Websocket',
  summary:
    'Follow the log of a deployment (`version` is its execution_id), by default of the last one and all later ones',
  area: 'projects',
  owner: { ...nodeInPath('environment', 'environment'), inQuery: true },
  query: Type.Object({ ...StreamQuery, project: Maybe(Text()), environment: Uuid(), version: Version }),
  produces: 'websocket',
  socket(context, socket) {
    const sink = socketSink(socket)
    const send = (lines: { line: object }[]): Promise<void> => sink.send(JSON.stringify(lines.map(({ line }) => line)))
    void begin(context, sink, send, null)
  },
})

export const liveLogOperations: Operation[] = [logEvents, logSocket]
