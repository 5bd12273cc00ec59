/** The log of a service as the API shows it, wherever its lines come from: its operations, and the forms of a line. */
import Type from 'typebox'
import { type Context, type Operation, operation, reading } from '../api/operations/operation.ts'
import { Maybe, Results, Text, Timestamp, Uuid, Whole } from '../api/operations/schema.ts'
import { itemOf, onService, type Self } from './facet.ts'
import type { Labels } from './logql.ts'

export const maxTail = 1000
/** How far back a filtered stream searches for its first lines. */
export const searchedLines = 10_000

/** A line, and the instance, run or deployment that printed it. */
export interface ShownLine {
  at: string
  text: string
  level: 'info' | 'error'
  place: string
  version: string
}

export const LogRecord = Type.Object({
  id: Uuid(),
  created_at: Timestamp(),
  message: Text(),
  pod_name: Text(),
  version: Text(),
})

export const asRecord = (id: string, { at, text, place, version }: ShownLine): Type.Static<typeof LogRecord> => ({
  id,
  created_at: at,
  message: text,
  pod_name: place,
  version,
})

export const labelsOf = (
  { id, name, environmentId }: { id: string; name: string; environmentId: string },
  { level, place, version }: ShownLine,
  deploymentId: string,
): Labels => ({
  qovery_com_service_id: id,
  container: name,
  namespace: environmentId,
  qovery_com_deployment_id: deploymentId,
  level,
  pod: place,
  app: version,
})

/** As server-sent events have it. */
export const asEvent = ({ at, text, place, version, level }: ShownLine): object => ({
  created_at: at,
  message: text,
  pod_name: place,
  version,
  stream: level === 'error' ? 'stderr' : 'stdout',
})

/** As `/service/logs` has it: one object per frame, `created_at` in milliseconds. */
export const asFrame =
  (name: string) =>
  ({ at, text, level, place, version }: ShownLine): object => ({
    created_at: Date.parse(at),
    message: text,
    pod_name: place,
    container_name: name,
    version,
    severity_text: level === 'error' ? 'ERROR' : 'INFO',
    labels: {},
    from_kube: false,
  })

export const tailOf = ({ query }: Pick<Context, 'query'>): number => Math.min(maxTail, Number(query.tail ?? maxTail))

interface LogReads {
  summaries: { list: string; stream: string }
  list(context: Context): Promise<{ results: Type.Static<typeof LogRecord>[] }>
  stream(context: Context): Promise<void>
}

export const logOperations = (self: Self, { summaries, list, stream }: LogReads): Operation[] => {
  const common = {
    ...reading,
    tag: `${self.noun} Logs`,
    ...onService(self),
    query: Type.Object({ tail: Maybe(Whole(0, 1_000_000, { default: maxTail })) }),
  }
  return [
    operation({
      ...common,
      id: `list${self.noun}Log`,
      path: `${itemOf(self)}/log`,
      summary: summaries.list,
      answer: Results(LogRecord),
      run: list,
    }),
    operation({
      ...common,
      id: `stream${self.noun}Log`,
      path: `${itemOf(self)}/log/stream`,
      summary: summaries.stream,
      produces: 'text/event-stream',
      run: stream,
    }),
  ]
}
