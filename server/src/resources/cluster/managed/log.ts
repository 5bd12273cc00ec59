/**
 * The log of a cluster's runs: kept for its last runs, each up to 2,000 lines, and shown in the form that clients
 * know.
 */
import { sanitizeText } from '../../../lib/sanitize-text.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { Database, Queryable } from '../../../store/database.ts'
import { holdLease } from '../../../work/lease.ts'
import { managedLeases, type RunClaim } from './rows.ts'

interface Line {
  at: string
  level: 'info' | 'error'
  step: string
  text: string
  isOutput: boolean
}

export interface ClusterLog {
  add(step: string, text: string, level?: Line['level']): void
  output(step: string, text: string): void
  forget(): Promise<void>
  flush(): Promise<void>
}

const flushMs = 500
const mostLines = 2000
const longestLine = 4000
const keptRuns = 5

const insert = `insert into cluster_log (cluster_id, run_id, at, level, step, text, is_output)
  select $1, $2, (l ->> 'at')::timestamptz, l ->> 'level', l ->> 'step', l ->> 'text', (l ->> 'isOutput')::boolean
  from jsonb_array_elements($3::jsonb) with ordinality a(l, place) order by place`

/** Removes the logs of earlier runs. */
export const trimLog = async (tx: Queryable, clusterId: string): Promise<void> => {
  await tx.query(
    `delete from cluster_log where cluster_id = $1 and run_id not in (
       select run_id from cluster_log where cluster_id = $1 group by run_id order by max(id) desc limit ${keptRuns})`,
    [clusterId],
  )
}

/** The log of a run, for the holder of its lease; the tool's earlier output is read again, so it is deleted first. */
export const createClusterLog = (database: Database, clock: Clock, claim: RunClaim): ClusterLog => {
  let waiting: Line[] = []
  let written = 0
  let timer: NodeJS.Timeout | undefined
  let writing: Promise<void> = Promise.resolve()
  const inTurn = (work: (tx: Queryable) => Promise<unknown>): Promise<void> => {
    writing = writing
      .then(() => holdLease(database, managedLeases, claim, work))
      .then(() => {})
      // The run itself detects a lost lease, and must not fail because of its log.
      .catch(() => {})
    return writing
  }
  const flush = (): Promise<void> => {
    clearTimeout(timer)
    timer = undefined
    const lines = waiting
    waiting = []
    if (lines.length === 0) return writing
    return inTurn((tx) => tx.query(insert, [claim.id, claim.runId, JSON.stringify(lines)]))
  }
  const add = (step: string, text: string, level: Line['level'], isOutput: boolean): void => {
    written += 1
    if (isOutput && written > mostLines) return
    const shown = isOutput && written === mostLines ? 'More output of this run is left out.' : text
    waiting.push({
      at: clock.now().toISOString(),
      level,
      step,
      text: sanitizeText(shown.slice(0, longestLine)),
      isOutput,
    })
    timer ??= setTimeout(() => void flush(), flushMs)
  }
  return {
    add: (step, text, level = 'info') => add(step, text, level, false),
    output: (step, text) => add(step, text, 'info', true),
    async forget() {
      await flush()
      await inTurn((tx) => tx.query('delete from cluster_log where run_id = $1 and is_output', [claim.runId]))
      written = 0
    },
    flush,
  }
}

interface Shown {
  at: Date
  level: Line['level']
  step: string
  text: string
  runId: string
}

/** The last 1000 lines, the oldest first. */
export const readClusterLog = async (db: Queryable, clusterId: string): Promise<object[]> => {
  const rows = await db.query<Shown>(
    `select at, level, step, text, run_id as "runId" from (
       select * from cluster_log where cluster_id = $1 order by id desc limit 1000) l order by id`,
    [clusterId],
  )
  return rows.map(({ at, level, step, text, runId }) => ({
    type: level.toUpperCase(),
    timestamp: at.toISOString(),
    step,
    execution_id: runId,
    message: { safe_message: text },
    ...(level === 'error' ? { error: { tag: 'UNKNOWN', user_log_message: text } } : {}),
  }))
}
