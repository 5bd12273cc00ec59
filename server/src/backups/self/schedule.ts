/**
 * Backups of this installation by a schedule. Promises one at a time over all servers of a database, that one backup
 * makes up for missed times, that a failure is reported and followed by further attempts until one succeeds, and that
 * only backups that this server has made by its schedule are removed. When the process dies, the time stays due.
 */
import type { Log } from '../../lib/log.ts'
import type { Clock } from '../../lib/time/clock.ts'
import { parseCron } from '../../lib/time/cron.ts'
import { nextTime } from '../../lib/time/next-time.ts'
import type { Database } from '../../store/database.ts'
import { createLoop, type Loop } from '../../work/loop.ts'
import type { WorkRegistry } from '../../work/registry.ts'
import type { Place } from '../places/place.ts'
import { BackupRunning, type MadeBackup } from './make-backup.ts'
import { beyondKept, nameOf } from './names.ts'
import { type OwnBackupState, readOwnBackupState, writeOwnBackupState } from './state.ts'

export interface ScheduleParts {
  database: Database
  clock: Clock
  log: Log
  work: WorkRegistry
  /** Five fields, in UTC. */
  cron: string
  /** So many of this server's are kept; 0: all. */
  keep: number
  /** The id of this server, in the names of its backups. */
  writer: string
  place: Place
  make(name: string, signal: AbortSignal): Promise<MadeBackup>
}

const lookMs = 60_000
const backoff = { firstMs: 60_000, longestMs: 3_600_000 }

const dueAfter = (cron: string, at: Date): string =>
  nextTime(parseCron(cron)!, 'UTC', at)?.toISOString() ?? '9999-12-31'

/** The first time of a schedule is the next one; a changed schedule begins again. */
const settle = async ({ database, cron, clock }: ScheduleParts): Promise<OwnBackupState> => {
  const found = await readOwnBackupState(database)
  if (found?.cron === cron) return found
  const state = {
    ...(found ?? { madeAt: null, name: null, failedAt: null, error: null }),
    cron,
    due: dueAfter(cron, clock.now()),
  }
  await writeOwnBackupState(database, state)
  return state
}

/** Removed only when a newer one is there. */
const removeOld = async ({ place, writer, keep, log }: ScheduleParts, signal: AbortSignal): Promise<void> => {
  const names: string[] = []
  for await (const { name } of place.list('slipway-', signal)) names.push(name)
  for (const name of beyondKept(names, writer, keep)) {
    await place.remove(name, signal)
    log.info({ backup: name }, 'an old backup of Slipway was removed: SLIPWAY_BACKUP_KEEP newer ones are there')
  }
}

/** False while another server makes it, or this one ends. */
const makeDue = async (parts: ScheduleParts, state: OwnBackupState, signal: AbortSignal): Promise<boolean> => {
  const { database, clock, log, cron, writer } = parts
  const at = clock.now()
  try {
    const made = await parts.make(nameOf(at, writer), signal)
    const due = dueAfter(cron, clock.now())
    const name = made.name
    await writeOwnBackupState(database, { ...state, due, madeAt: at.toISOString(), name, failedAt: null, error: null })
    log.info(made, 'Slipway was backed up, and the backup was read back')
  } catch (error) {
    if (error instanceof BackupRunning || signal.aborted) return false
    const message = (error as Error).message.slice(0, 500)
    await writeOwnBackupState(database, { ...state, failedAt: at.toISOString(), error: message })
    log.error({ err: error }, 'Slipway could not be backed up; there will be another attempt within the hour')
    throw error
  }
  await removeOld(parts, signal)
  return true
}

export const startOwnBackups = (parts: ScheduleParts): Loop =>
  createLoop(parts, {
    name: 'backup of Slipway',
    periodMs: lookMs,
    backoff,
    failed: 'the backup of Slipway has failed',
    async run(signal) {
      const state = await settle(parts)
      const waitMs = new Date(state.due).getTime() - parts.clock.now().getTime()
      if (waitMs > 0) return waitMs
      return (await makeDue(parts, state, signal)) ? 0 : lookMs
    },
  })
