/**
 * Output of the programs of a service that run to their end, in scheduled runs, manual runs and deployments: lines of
 * the table `deployment_log`, which are written while they run.
 */
import type { Parts } from '../../api/parts.ts'
import type { Queryable } from '../../store/database.ts'
import { followTail } from '../../streams/log-tail.ts'
import { endAway, type Sink } from '../../streams/sink.ts'
import { type ShownLine, searchedLines } from '../log-lines.ts'

/** Its place is the run, or the deployment that ran it. */
export interface OutputLine extends ShownLine {
  /** The chunks of a service become visible in numerical order. */
  chunk: string
  index: string
}

const shown = `l.id::text as chunk, x.index::text, x.line ->> 'at' as at, x.line ->> 'text' as text,
  x.line ->> 'level' as level, coalesce('run-' || l.run_id, 'deployment-' || l.deployment_id) as place,
  coalesce(r.commit ->> 'git_commit_id', r.image, '') as version`

const joined = `cross join lateral jsonb_array_elements(l.lines) with ordinality as x (line, index)
  left join release r on r.deployment_id = l.deployment_id and r.service_id = l.service_id`

const ofService = `l.service_id = $1 and l.step in ('run', 'task')`

/** The last lines of a service, or of one of its runs; oldest first. */
export const readLastOutput = async (
  db: Queryable,
  serviceId: string,
  { runId = null, limit }: { runId?: string | null; limit: number },
): Promise<OutputLine[]> => {
  const rows = await db.query<OutputLine>(
    `select ${shown} from (select * from deployment_log l where ${ofService} and ($2::uuid is null or l.run_id = $2)
       order by l.id desc limit $3) l ${joined} order by l.id desc, x.index desc limit $3`,
    [serviceId, runId, limit],
  )
  return rows.reverse()
}

/** Lines of a time, `from` included and `to` not; the newest, or the oldest. */
export const readOutputBetween = async (
  db: Queryable,
  serviceId: string,
  { from, to, limit, newest }: { from: Date; to: Date; limit: number; newest: boolean },
): Promise<OutputLine[]> => {
  const order = newest ? 'desc' : 'asc'
  const rows = await db.query<OutputLine>(
    `select ${shown} from deployment_log l ${joined}
     where ${ofService} and l.created_at >= $2 and (x.line ->> 'at')::timestamptz >= $2
       and (x.line ->> 'at')::timestamptz < $3
     order by l.id ${order}, x.index ${order} limit $4`,
    [serviceId, from, to, limit],
  )
  return newest ? rows.reverse() : rows
}

const readAfter = (db: Queryable, serviceId: string, chunk: string): Promise<OutputLine[]> =>
  db.query<OutputLine>(
    `select ${shown} from (select * from deployment_log l where ${ofService} and l.id > $2 order by l.id limit 100) l
       ${joined} order by l.id, x.index`,
    [serviceId, chunk],
  )

/** Whether more lines may be written: a run, or a deployment of the environment, is in progress. */
const openSql = `select exists (select from task_run where service_id = $1 and state = 'RUNNING')
  or exists (select from deployment where environment_id = $2 and state = 'RUNNING') as "isOpen"`

interface Followed {
  serviceId: string
  environmentId: string
  /** How many lines of the past to begin with. */
  tail: number
  /** Default every line. */
  isWanted?(line: OutputLine): boolean
}

/** Sends the last lines of a service and then new ones, until the reader disconnects. */
export const followOutput = async (
  parts: Parts,
  sink: Sink,
  { serviceId, environmentId, tail, isWanted }: Followed,
  show: (line: ShownLine) => object,
): Promise<void> => {
  const { database } = parts
  try {
    const send = async (lines: readonly OutputLine[]): Promise<void> => {
      for (const line of lines)
        if (isWanted?.(line) !== false) await sink.send(JSON.stringify(show(line)), `${line.chunk}.${line.index}`)
    }
    const last = await readLastOutput(database, serviceId, { limit: isWanted ? searchedLines : Math.max(1, tail) })
    if (tail > 0) await send(isWanted ? last.filter(isWanted).slice(-tail) : last)
    const source = {
      key: `output ${serviceId}`,
      environmentId,
      after: (chunk: string) => readAfter(database, serviceId, chunk),
      isOpen: async () => {
        const [row] = await database.query<{ isOpen: boolean }>(openSql, [serviceId, environmentId])
        return row!.isOpen
      },
    }
    followTail(parts, sink, source, { chunk: last.at(-1)?.chunk ?? '0', send })
  } catch (error) {
    parts.log.warn({ err: error, serviceId }, 'a log stream ended early')
    endAway(sink, 'log')
  }
}
