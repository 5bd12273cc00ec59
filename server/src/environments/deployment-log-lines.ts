/** Lines of the table `deployment_log`, as rows with their execution, service and stage. */
import type { Context } from '../api/operations/operation.ts'
import type { Kind } from '../kinds.ts'
import type { Queryable } from '../store/database.ts'

export interface LogRow {
  /** The chunks of an environment become visible in numerical order. */
  chunk: string
  index: string
  at: string
  text: string
  level: string
  step: string
  serviceId: string | null
  name: string | null
  kind: Kind | null
  stageId: string | null
  stageName: string | null
  state: string | null
  action: string | null
  executionId: string
}

const lines = `l.id as chunk, x.index, x.line ->> 'at' as at, x.line ->> 'text' as text, x.line ->> 'level' as level,
      l.step, l.service_id as "serviceId", w.name, w.kind, w.stage_id as "stageId", w.stage_name as "stageName", w.state, w.action,
      d.environment_id || '-' || d.execution_number as "executionId"`

const joined = `cross join lateral jsonb_array_elements(l.lines) with ordinality as x (line, index)
      left join deployment_service w on w.deployment_id = l.deployment_id and w.service_id = l.service_id`

const newestSql = (condition: string): string => `
  with d as (select id, environment_id, execution_number, state from deployment where environment_id = $1 and ${condition}
      order by created_at desc, id desc limit 1)
  select * from (
    select ${lines}
    from d join deployment_log l on l.deployment_id = d.id ${joined}
    order by l.id desc, x.index desc limit $3) newest
  order by chunk, index`

const readOne = newestSql('execution_number = $2')
const readNewest = newestSql('$2::int is null')

/** The execution in the query, null if it has none; `undefined` if it does not belong to this environment. */
export const executionOf = ({ query, node }: Context): number | null | undefined => {
  const { version } = query as { version?: string }
  if (version === undefined) return null
  const number = version.startsWith(`${node.id}-`)
    ? Number(version.slice(node.id.length + 1).split('-')[0])
    : Number.NaN
  return Number.isInteger(number) && number > 0 && number < 2 ** 31 ? number : undefined
}

/** The last lines of an execution; null means the newest one. */
export const readLast = (
  db: Queryable,
  environmentId: string,
  execution: number | null,
  limit: number,
): Promise<LogRow[]> => db.query<LogRow>(execution === null ? readNewest : readOne, [environmentId, execution, limit])

const chunksAtOnce = 100

/**
 * The executions in an environment's log: the given one; else the latest, the running one, and those whose releases are
 * deployed, because output of scheduled jobs is stored with them.
 */
const tellers = `
  select id from deployment where environment_id = $1 and execution_number = $2
  union (select id from deployment where environment_id = $1 and $2::int is null order by created_at desc, id desc limit 20)
  union select id from deployment where environment_id = $1 and $2::int is null and state = 'RUNNING'
  union select r.deployment_id from service_state s join release r on r.id = s.current_release_id
    where s.environment_id = $1 and $2::int is null`

const afterSql = `
  with t as (${tellers}),
  l as (select g.* from t cross join lateral (
      select * from deployment_log c where c.deployment_id = t.id and c.id > $3 order by c.id limit ${chunksAtOnce}) g
    order by g.id limit ${chunksAtOnce})
  select ${lines} from l join deployment d on d.id = l.deployment_id ${joined} order by l.id, x.index`

/** The lines written after a chunk, in whole chunks; of all executions if none is given. */
export const readAfter = (
  db: Queryable,
  environmentId: string,
  execution: number | null,
  chunk: string,
): Promise<LogRow[]> => db.query<LogRow>(afterSql, [environmentId, execution, chunk])

/** The last chunk of a log so far, and whether more is being written. */
export const readEnd = async (
  db: Queryable,
  environmentId: string,
  execution: number | null,
): Promise<{ chunk: string; isOpen: boolean }> => {
  const [row] = await db.query<{ chunk: string; isOpen: boolean }>(
    `with t as (${tellers})
     select coalesce((select max(last.id) from t cross join lateral (
         select max(g.id) as id from deployment_log g where g.deployment_id = t.id) last), 0)::text as chunk,
       exists (select from deployment d where d.environment_id = $1 and d.state = 'RUNNING') as "isOpen"`,
    [environmentId, execution],
  )
  return row!
}
