/**
 * The log of a scheduled or manual run: the last 256 KB of its output, readable while it is in progress. A worker that
 * takes over the run joins its execution and reads its output again from the beginning: the log begins anew then.
 */
import { sanitizeText } from '../../lib/sanitize-text.ts'
import type { Queryable } from '../../store/database.ts'
import { holdLease } from '../../work/lease.ts'
import { type RunClaim, runLeases } from '../../work/schedule.ts'
import type { DeploymentParts } from '../parts.ts'
import { type DeploymentLogLine, maxLine, writeRunLines } from '../progress/log.ts'

export interface RunLog {
  add(text: string, level?: DeploymentLogLine['level']): void
  /** Writes pending lines; nothing more is written if the run is no longer ours. */
  flush(): Promise<void>
}

const flushMs = 500
const maxBytes = 256 * 1024
/** Trimmed when this much more has been written, not at every write. */
const slackBytes = 128 * 1024
/** Approximate size of one row. */
const chunkBytes = 32 * 1024

const trim = `delete from deployment_log where id in (
  select id from (
    select id, sum(octet_length(lines::text)) over (order by id desc) as total, row_number() over (order by id desc) as place
    from deployment_log where run_id = $1) sized
  where total > $2 and place > 1)`

const sizeOf = ({ text }: DeploymentLogLine): number => text.length + 60

const toChunks = (lines: readonly DeploymentLogLine[]): DeploymentLogLine[][] => {
  const chunks: DeploymentLogLine[][] = []
  let size = chunkBytes
  for (const line of lines) {
    if (size >= chunkBytes) {
      chunks.push([])
      size = 0
    }
    chunks.at(-1)!.push(line)
    size += sizeOf(line)
  }
  return chunks
}

export const createRunLog = (
  { database, clock, log }: Pick<DeploymentParts, 'database' | 'clock' | 'log'>,
  run: RunClaim,
  deploymentId: string,
): RunLog => {
  let waiting: DeploymentLogLine[] = []
  let waitingBytes = 0
  let written = 0
  let isNew = true
  let timer: NodeJS.Timeout | undefined
  let writing: Promise<void> = Promise.resolve()

  const store = async (tx: Queryable, lines: readonly DeploymentLogLine[]): Promise<void> => {
    if (isNew) await tx.query('delete from deployment_log where run_id = $1', [run.id])
    await writeRunLines(tx, { deploymentId, serviceId: run.serviceId, runId: run.id }, toChunks(lines))
    written += lines.reduce((sum, line) => sum + sizeOf(line), 0)
    if (written <= maxBytes + slackBytes) return
    await tx.query(trim, [run.id, maxBytes])
    written = maxBytes
  }
  const write = (): Promise<void> => {
    clearTimeout(timer)
    timer = undefined
    const lines = waiting
    waiting = []
    waitingBytes = 0
    if (lines.length === 0) return writing
    writing = writing.then(async () => {
      try {
        await holdLease(database, runLeases, run, (tx) => store(tx, lines))
        isNew = false
      } catch (error) {
        log.debug({ err: error, serviceId: run.serviceId }, 'lines of a run were not written')
      }
    })
    return writing
  }
  return {
    add(text, level = 'info') {
      const line = { at: clock.now().toISOString(), text: sanitizeText(text.slice(0, maxLine)), level }
      waiting.push(line)
      waitingBytes += sizeOf(line)
      // Older lines than are kept are not even written.
      if (waitingBytes > 2 * maxBytes) {
        while (waitingBytes > maxBytes) waitingBytes -= sizeOf(waiting.shift()!)
      }
      timer ??= setTimeout(() => void write(), flushMs)
    },
    flush: write,
  }
}
