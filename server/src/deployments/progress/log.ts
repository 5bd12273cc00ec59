/**
 * The log of a deployment, in chunks: one row per flush, never one per line. At most `flushMs` of lines are lost when
 * the process dies; a resumed deployment says that it resumes.
 */

import type { Log } from '../../lib/log.ts'
import { sanitizeText } from '../../lib/sanitize-text.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Database, Queryable } from '../../store/database.ts'

export interface DeploymentLogLine {
  /** RFC 3339 UTC. */
  at: string
  text: string
  level: 'info' | 'error'
}

/** The log of one service in one deployment (`serviceId` null: of the deployment itself). */
export interface DeploymentLog {
  line(step: string, text: string, level?: 'info' | 'error'): void
  /** Raw output of a program: split into lines; an incomplete last one waits for the rest. */
  output(step: string, text: string): void
  flush(): Promise<void>
}

const flushMs = 200
const maxBuffered = 64 * 1024
/** Longer lines are cut. */
export const maxLine = 16 * 1024
const runStep = 'run'

interface Chunk {
  step: string
  lines: DeploymentLogLine[]
}

/** Writers of one environment take turns: readers continue by id, so chunks must become visible in that order. */
const insert = `insert into deployment_log (deployment_id, service_id, step, lines, run_id)
  select $1, $2, c ->> 'step', c -> 'lines', $4
  from (select pg_advisory_xact_lock(hashtextextended('deployment_log ' || environment_id, 0))
      from deployment where id = $1) turn
    cross join json_array_elements($3::json) c`

/** Chunks of lines of a run of a task, which are stored with the deployment of its service's version. */
export const writeRunLines = async (
  tx: Queryable,
  { deploymentId, serviceId, runId }: { deploymentId: string; serviceId: string; runId: string | null },
  chunks: readonly (readonly DeploymentLogLine[])[],
): Promise<void> => {
  const rows = chunks.map((lines) => ({ step: runStep, lines }))
  await tx.query(insert, [deploymentId, serviceId, JSON.stringify(rows), runId])
}

/** Lines about a deployment as a whole, in the transaction that creates it. */
export const writeDeploymentLines = async (
  tx: Queryable,
  deploymentId: string,
  step: string,
  texts: readonly string[],
): Promise<void> => {
  const at = new Date().toISOString()
  const lines = texts.map(
    (text): DeploymentLogLine => ({ at, text: sanitizeText(text.slice(0, maxLine)), level: 'error' }),
  )
  await tx.query(insert, [deploymentId, null, JSON.stringify([{ step, lines }]), null])
}

export const createDeploymentLog = (
  database: Database,
  clock: Clock,
  log: Log,
  deploymentId: string,
  serviceId: string | null,
): DeploymentLog => {
  let chunks: Chunk[] = []
  let size = 0
  let partial = ''
  let timer: NodeJS.Timeout | undefined
  let writing: Promise<void> = Promise.resolve()

  const write = (): Promise<void> => {
    clearTimeout(timer)
    timer = undefined
    if (chunks.length === 0) return writing
    const taken = JSON.stringify(chunks)
    chunks = []
    size = 0
    writing = writing.then(async () => {
      await database.query(insert, [deploymentId, serviceId, taken, null]).catch((error: unknown) => {
        log.warn({ err: error, deploymentId }, 'lines of a deployment log were lost')
      })
    })
    return writing
  }
  const line = (step: string, text: string, level: 'info' | 'error' = 'info'): void => {
    const last = chunks.at(-1)
    const chunk = last?.step === step ? last : { step, lines: [] }
    if (chunk !== last) chunks.push(chunk)
    chunk.lines.push({ at: clock.now().toISOString(), text: sanitizeText(text.slice(0, maxLine)), level })
    size += text.length
    if (size > maxBuffered) void write()
    else timer ??= setTimeout(() => void write(), flushMs)
  }
  return {
    line,
    output(step, text) {
      const lines = (partial + text).split(/\r?\n/)
      partial = lines.pop()!.slice(0, maxLine)
      for (const each of lines) line(step, each)
    },
    flush() {
      if (partial !== '') line('output', partial)
      partial = ''
      return write()
    },
  }
}
