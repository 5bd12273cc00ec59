/**
 * Past lines of services with filters, in the form of Loki that clients of the public API use. Nothing is stored for
 * it: lines come from the existing containers, and for jobs from the stored output. Bounded: by the time of one
 * answer, its lines and its bytes.
 */
import Type from 'typebox'
import type { Mode } from '../../api/auth/permissions.ts'
import { mayReadAt } from '../../api/operations/access.ts'
import { type Context, nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { Maybe, OneOf, Text, Whole } from '../../api/operations/schema.ts'
import { untilAborted } from '../../lib/concurrency/waiting.ts'
import { badRequest, DeploymentError, notFound, unavailable } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import { labelsOf, type ShownLine } from '../log-lines.ts'
import { fits, type LabelName, type Labels, type LogQuery, labelNames, readLogQuery } from '../logql.ts'
import { asShown, readVersions } from '../logs.ts'
import { readOutputBetween } from '../runs/output.ts'
import { readTimeRange, type TimeRange, toNanoseconds, toRfc3339 } from './time-range.ts'

const usualLines = 100
const maxLines = 5000
const maxBytes = 4 * 1024 * 1024
const maxReadMs = 8000
const maxValues = 500

interface Line {
  ns: bigint
  text: string
  labels: Labels
}

interface Wanted {
  query: LogQuery
  range: TimeRange
  limit: number
  newest: boolean
}

interface ServiceRow {
  id: string
  name: string
  kind: string
  environmentId: string
  projectId: string
  mode: Mode | null
}

const serviceSql = `select n.id, n.name, n.kind, e.id as "environmentId", e.parent_id as "projectId",
    e.spec ->> 'mode' as mode
  from service_state s join node n on n.id = s.service_id join node e on e.id = s.environment_id
  where s.service_id = $1 and s.cluster_id = $2 and n.organization_id = $3`

/** 404 for a service that is not on this cluster, not of this organization, or that the caller may not see. */
const findService = async ({ db, node, principal }: Context, id: string): Promise<ServiceRow> => {
  const [row] = isUuid(id) ? await db.query<ServiceRow>(serviceSql, [id, node.id, node.organizationId]) : []
  if (row === undefined) throw notFound()
  const { projectId, mode } = row
  if (!mayReadAt(principal, { projectId, mode, clusterId: node.id })) throw notFound()
  return row
}

const asLine = (service: ServiceRow, line: ShownLine, deploymentId: string): Line => ({
  ns: toNanoseconds(line.at),
  text: line.text,
  labels: labelsOf(service, line, deploymentId),
})

/** Keeps the first or the last lines, as many as are wanted and fit into an answer. */
const createKeeper = ({ limit, newest }: Pick<Wanted, 'limit' | 'newest'>) => {
  const kept: Line[] = []
  let bytes = 0
  let from = 0
  return {
    /** False once nothing more can be kept. */
    add(line: Line): boolean {
      kept.push(line)
      bytes += line.text.length + 40
      while (kept.length - from > limit || bytes > maxBytes) {
        if (!newest) {
          kept.pop()
          return false
        }
        bytes -= kept[from]!.text.length + 40
        from += 1
        if (from > 2 * maxLines) {
          kept.splice(0, from)
          from = 0
        }
      }
      return newest || kept.length < limit
    },
    lines: (): Line[] => kept.slice(from),
  }
}

async function* fromContainers(
  context: Context,
  service: ServiceRow,
  { from, to }: TimeRange,
  signal: AbortSignal,
): AsyncGenerator<Line> {
  const { runtime } = await context.parts.clusters.of(context.node.id)
  const versions = await readVersions(context.db, service.id)
  // Later than `since`: the first nanosecond belongs to it.
  const times = { since: toRfc3339(from > 0n ? from - 1n : 0n), until: toRfc3339(to) }
  const key = { environmentId: service.environmentId, serviceId: service.id }
  for await (const line of runtime.logs(key, { ...times, signal }))
    yield asLine(service, asShown(line, versions), line.revision)
}

const maxKeptOutput = 20_000

async function* fromOutput({ db }: Context, service: ServiceRow, { range, newest }: Wanted): AsyncGenerator<Line> {
  const times = { from: new Date(toRfc3339(range.from)), to: new Date(toRfc3339(range.to)) }
  const lines = await readOutputBetween(db, service.id, { ...times, limit: maxKeptOutput, newest })
  for (const line of lines) yield asLine(service, line, '')
}

const isTask = ({ kind }: ServiceRow): boolean => kind === 'job' || kind === 'terraform'

const tooSlow = (cause?: unknown) =>
  unavailable(
    'log_unavailable',
    'The lines could not be read in time: ask for a shorter time, or try again later.',
    5,
    cause,
  )

const collect = async (context: Context, service: ServiceRow, wanted: Wanted, use: (line: Line) => boolean) => {
  const done = new AbortController()
  const signal = AbortSignal.any([AbortSignal.timeout(maxReadMs), done.signal])
  const lines = isTask(service)
    ? fromOutput(context, service, wanted)
    : fromContainers(context, service, wanted.range, signal)
  const read = async (): Promise<void> => {
    for await (const line of lines) if (fits(wanted.query, line.labels, line.text) && !use(line)) return
    if (signal.aborted) throw tooSlow()
  }
  try {
    await untilAborted(read(), signal)
  } catch (error) {
    if (signal.aborted || (error instanceof DeploymentError && error.next === 'wait')) throw tooSlow(error)
    throw error
  } finally {
    done.abort()
  }
}

const asStreams = (lines: readonly Line[], newest: boolean) => {
  const streams = new Map<string, { stream: object; values: [string, string][] }>()
  for (const { ns, text, labels } of newest ? lines.toReversed() : lines) {
    const key = JSON.stringify(labels)
    const found = streams.get(key) ?? { stream: { job: 'slipway', ...labels }, values: [] }
    streams.set(key, found)
    found.values.push([String(ns), text])
  }
  return { resultType: 'streams', result: [...streams.values()] }
}

const readRange = async (context: Context, service: ServiceRow, wanted: Wanted) => {
  const keeper = createKeeper(wanted)
  await collect(context, service, wanted, keeper.add)
  return asStreams(keeper.lines(), wanted.newest)
}

const readValues = async (context: Context, service: ServiceRow, wanted: Wanted, label: LabelName) => {
  const values = new Set<string>()
  await collect(context, service, wanted, ({ labels }) => {
    if (labels[label] !== '') values.add(labels[label])
    return values.size < maxValues
  })
  return [...values].sort()
}

const endpoints = /^\/loki\/api\/v1\/(?:(query_range|query)|label\/([A-Za-z_]{1,60})\/values)$/

const endpointIn = (endpoint: string): { label: LabelName | null } => {
  const [, range, label] = endpoints.exec(endpoint) ?? []
  if (range === 'query_range') return { label: null }
  const name = labelNames.find((each) => each === label)
  if (name !== undefined) return { label: name }
  if (label !== undefined) throw badRequest(`endpoint: unknown label: use one of ${labelNames.join(', ')}`)
  throw badRequest('endpoint: must be /loki/api/v1/query_range or /loki/api/v1/label/{name}/values')
}

const Query = Type.Object({
  endpoint: Text(200, { description: '`/loki/api/v1/query_range`, or `/loki/api/v1/label/{name}/values`.' }),
  query: Text(4096, {
    description:
      '`{qovery_com_service_id="…"}`, with further labels, and the filters `|= "text"`, `!= "text"` and `| label="value"`.',
  }),
  start: Maybe(Text(40)),
  end: Maybe(Text(40)),
  since: Maybe(Text(10)),
  limit: Maybe(Whole(1, maxLines, { default: usualLines })),
  direction: Maybe(OneOf(['forward', 'backward', 'FORWARD', 'BACKWARD'], { default: 'backward' })),
})

const history: Operation = operation({
  id: 'get-cluster-logs',
  ...reading,
  path: '/cluster/{clusterId}/logs',
  tag: 'Clusters',
  summary:
    'Read past lines of a service with filters, or the values of a label of them, from the containers that there are and the kept output of jobs',
  area: 'clusters',
  cluster: 'VIEWER',
  owner: nodeInPath('cluster', 'clusterId'),
  query: Query,
  answer: Type.Object({ response: Text() }),
  async run(context) {
    const { endpoint, query: text, limit = usualLines, direction, ...times } = context.query
    const { label } = endpointIn(endpoint)
    const query = readLogQuery(text)
    const service = await findService(context as Context, query.serviceId)
    const range = readTimeRange(label === null ? times : { since: '7d', ...times }, context.parts.clock.now())
    const wanted = { query, range, limit, newest: direction?.toLowerCase() !== 'forward' }
    const data =
      label === null
        ? await readRange(context as Context, service, wanted)
        : await readValues(context as Context, service, wanted, label)
    return { response: JSON.stringify({ status: 'success', data }) }
  },
})

export const logHistoryOperations: Operation[] = [history]
