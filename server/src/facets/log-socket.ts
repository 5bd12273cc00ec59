/**
 * `/service/logs` of the public websocket API: the last lines of a service and all later ones, filtered and limited by
 * its arguments.
 */
import Type from 'typebox'
import { type Context, nodeInPath, type Owner, operation, reading } from '../api/operations/operation.ts'
import { Discarded, Maybe, Text, Uuid, Whole } from '../api/operations/schema.ts'
import type { LogLine } from '../runtimes/runtime.ts'
import { endAway, type Sink, socketSink } from '../streams/sink.ts'
import { asFrame, labelsOf, maxTail, type ShownLine } from './log-lines.ts'
import { fits, type LogQuery, readLogQuery } from './logql.ts'
import { asShown, readVersions, sendLines, streamTailOf } from './logs.ts'
import { followOutput, type OutputLine } from './runs/output.ts'

const service = nodeInPath('service', 'service')
const serviceInQuery: Owner = { ...service, inQuery: true }

const fitsLine = (query: LogQuery, { node }: Context, line: ShownLine, deploymentId: string): boolean =>
  fits(query, labelsOf({ ...node, environmentId: node.parentId ?? '' }, line, deploymentId), line.text)

/** Null if every line is wanted. */
const queryOf = ({ query: { query } }: Context): LogQuery | null =>
  typeof query === 'string' ? readLogQuery(query) : null

const sendFrames = async (context: Context, sink: Sink, query: LogQuery | null): Promise<void> => {
  const { parts, db, node } = context
  try {
    const versions = await readVersions(db, node.id)
    const isWanted =
      query === null ? null : (line: LogLine) => fitsLine(query, context, asShown(line, versions), line.revision)
    await sendLines(context, sink, versions, asFrame(node.name), isWanted)
  } catch (error) {
    parts.log.warn({ err: error, serviceId: node.id }, 'a log stream could not start')
    endAway(sink, 'log')
  }
}

/** The programs of jobs and of Terraform end and are removed: their output is read from where it is stored. */
const keepsOutput: ReadonlySet<string> = new Set(['job', 'terraform'])

const sendOutput = (context: Context, sink: Sink, query: LogQuery | null): Promise<void> => {
  const { parts, node } = context
  const tail = Math.min(maxTail, streamTailOf(context))
  const filter = query === null ? {} : { isWanted: (line: OutputLine) => fitsLine(query, context, line, line.place) }
  const wanted = { serviceId: node.id, environmentId: node.parentId!, tail, ...filter }
  return followOutput(parts, sink, wanted, asFrame(node.name))
}

/** `/service/logs`: arguments in the query, the token in the header or as a subprotocol. */
export const serviceLogSocket = operation({
  id: 'handleServiceLogs',
  ...reading,
  path: '/service/logs',
  tag: 'Websocket',
  summary:
    'Follow what a service prints, by websocket; a browser sends the subprotocols `v1` and `auth.bearer.<token>`',
  area: 'projects',
  owner: serviceInQuery,
  query: Type.Object({
    service: Uuid(),
    organization: Maybe(Discarded(Text())),
    cluster: Maybe(Discarded(Text())),
    project: Maybe(Text()),
    environment: Maybe(Text()),
    limit: Maybe(Whole(0, 1_000_000, { description: 'How many existing lines to begin with; the same as `tail`.' })),
    tail: Maybe(Whole(0, 1_000_000, { default: maxTail })),
    query: Maybe(
      Text(2000, {
        description:
          'Which lines: labels, then texts, such as `{qovery_com_service_id="…", level="error"} |= "timeout"`.',
      }),
    ),
  }),
  produces: 'websocket',
  socket(context, socket) {
    const query = queryOf(context)
    void (keepsOutput.has(context.node.kind) ? sendOutput : sendFrames)(context, socketSink(socket), query)
  },
})
