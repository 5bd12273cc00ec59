/** Metrics of this process, in the Prometheus text format. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { readOwnBackupState } from '../backups/self/state.ts'
import { readLongTurns } from '../lib/loop-turns.ts'
import type { Disk } from '../limits/disk.ts'
import type { Database } from '../store/database.ts'
import type { WorkRegistry } from '../work/registry.ts'

export interface Metrics {
  observe(operation: string, status: number, seconds: number): void
  text(): Promise<string>
  contentType: string
}

const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

const diskGauges = (registers: Registry[]) => {
  const labelNames = ['place']
  const free = new Gauge({ name: 'slipway_disk_free_bytes', help: 'Free bytes on a disk.', labelNames, registers })
  const low = new Gauge({
    name: 'slipway_disk_low',
    help: '1 if less than SLIPWAY_DISK_RESERVE_MB is free.',
    labelNames,
    registers,
  })
  return async (disk: Pick<Disk, 'free'>): Promise<void> => {
    for (const { place, freeBytes, isLow } of await disk.free()) {
      free.set({ place }, freeBytes)
      low.set({ place }, isLow ? 1 : 0)
    }
  }
}

/**
 * Objects on clusters that the database does not know, and the clusters on which nothing is changed because of them.
 */
const orphanGauges = (registers: Registry[]) => {
  const orphans = new Gauge({
    name: 'slipway_orphans',
    help: 'Services and environments on a cluster that the database does not know, without those that are ignored.',
    labelNames: ['cluster'],
    registers,
  })
  const conflicts = new Gauge({
    name: 'slipway_cluster_conflict',
    help: '1 if nothing is changed on a cluster until an operator decides.',
    labelNames: ['cluster'],
    registers,
  })
  return async (database: Database): Promise<void> => {
    const rows = await database
      .query<{ cluster: string; orphans: number; conflicts: number }>(
        `select cluster, sum(orphans)::int as orphans, sum(conflicts)::int as conflicts from (
           select cluster, 1 as orphans, 0 as conflicts from orphan where ignored_at is null
           union all select cluster, 0, 1 from cluster_conflict) found group by cluster`,
      )
      .catch(() => [])
    orphans.reset()
    conflicts.reset()
    for (const row of rows) {
      orphans.set({ cluster: row.cluster }, row.orphans)
      conflicts.set({ cluster: row.cluster }, row.conflicts)
    }
  }
}

/** Backups of this installation by its schedule; nothing where there is none. */
const ownBackupGauges = (registers: Registry[]) => {
  const made = new Gauge({
    name: 'slipway_backup_last_success_timestamp_seconds',
    help: 'When Slipway itself was last backed up by its schedule.',
    registers,
  })
  const failed = new Gauge({
    name: 'slipway_backup_failed',
    help: '1 if the last backup of Slipway itself by its schedule has failed.',
    registers,
  })
  return async (database: Database): Promise<void> => {
    const state = await readOwnBackupState(database).catch(() => null)
    made.reset()
    failed.reset()
    if (state === null) return
    if (state.madeAt !== null) made.set(new Date(state.madeAt).getTime() / 1000)
    failed.set(state.failedAt === null ? 0 : 1)
  }
}

/** Backups of databases, and the schedules that do not do what they are for. */
const backupGauges = (registers: Registry[]) => {
  const labelNames = ['state']
  const backups = new Gauge({ name: 'slipway_backups', help: 'Backups of databases by state.', labelNames, registers })
  const failing = new Gauge({
    name: 'slipway_backup_schedules_failing',
    help: 'Databases whose last scheduled backup failed or could not be verified.',
    registers,
  })
  return async (database: Database): Promise<void> => {
    const rows = await database
      .query<{ state: string; count: number }>('select state, count(*)::int as count from backup group by state')
      .catch(() => [])
    const [last] = await database
      .query<{ failing: number }>(
        `select count(*)::int as failing from backup_schedule s where s.enabled and 'VERIFIED' <>
           (select b.state from backup b where b.database_id = s.database_id and b.origin = 'SCHEDULE'
              and b.state in ('VERIFIED', 'UNVERIFIED', 'FAILED') order by b.created_at desc, b.id limit 1)`,
      )
      .catch(() => [])
    backups.reset()
    for (const { state, count } of rows) backups.set({ state }, count)
    failing.set(last?.failing ?? 0)
  }
}

/** Background work. An error is shown by its code only, because this page needs no token. */
const workGauges = (registers: Registry[]) => {
  const labelNames = ['work', 'cluster']
  const gauge = (name: string, help: string, more: string[] = []) =>
    new Gauge({ name: `slipway_work_${name}`, help, labelNames: [...labelNames, ...more], registers })
  const runs = new Counter({ name: 'slipway_work_runs_total', help: 'Finished runs.', labelNames, registers })
  const failures = new Counter({
    name: 'slipway_work_failures_total',
    help: 'Failed runs.',
    labelNames,
    registers,
  })
  const active = gauge('active', 'Runs in progress.')
  const waiting = gauge('waiting', 'Runs requested but not started.')
  const lastRun = gauge('last_run_timestamp_seconds', 'When the last run ended.')
  const lastError = gauge('last_error_timestamp_seconds', 'When a run last failed, and with which error.', ['error'])
  return (work: WorkRegistry): void => {
    for (const each of [runs, failures, active, waiting, lastRun, lastError]) each.reset()
    for (const figures of work.read()) {
      const labels = { work: figures.name, ...(figures.cluster === undefined ? {} : { cluster: figures.cluster }) }
      runs.inc(labels, figures.runs)
      failures.inc(labels, figures.failures)
      active.set(labels, figures.active)
      waiting.set(labels, figures.waiting)
      if (figures.lastRunAt !== null) lastRun.set(labels, figures.lastRunAt.getTime() / 1000)
      if (figures.lastError !== null)
        lastError.set({ ...labels, error: figures.lastError.code }, figures.lastError.at.getTime() / 1000)
    }
  }
}

export const createMetrics = (database: Database, work: WorkRegistry, disk?: Pick<Disk, 'free'>): Metrics => {
  const registry = new Registry()
  const registers = [registry]
  // The delay of the event loop is sampled a hundred times a second: only once the metrics are read.
  let isWatched = false
  const watch = (): void => {
    if (!isWatched) collectDefaultMetrics({ register: registry })
    isWatched = true
  }
  const requests = new Counter({
    name: 'slipway_requests_total',
    help: 'Requests by operation and status.',
    labelNames: ['operation', 'status'],
    registers,
  })
  const durations = new Histogram({
    name: 'slipway_request_seconds',
    help: 'Response time in seconds, by operation.',
    labelNames: ['operation'],
    buckets,
    registers,
  })
  const deployments = new Gauge({
    name: 'slipway_deployments',
    help: 'Deployments by state.',
    labelNames: ['state'],
    registers,
  })
  const longTurns = new Counter({
    name: 'slipway_event_loop_long_turns_total',
    help: 'Turns of the event loop above 250 ms, by the operation or background work that took most of it.',
    labelNames: ['work'],
    registers,
  })
  const showWork = workGauges(registers)
  const showOrphans = orphanGauges(registers)
  const showOwnBackups = ownBackupGauges(registers)
  const showBackups = backupGauges(registers)
  const showDisk = disk === undefined ? undefined : diskGauges(registers)
  return {
    observe(operation, status, seconds) {
      requests.inc({ operation, status })
      durations.observe({ operation }, seconds)
    },
    async text() {
      watch()
      const rows = await database
        .query<{ state: string; count: number }>('select state, count(*)::int as count from deployment group by state')
        .catch(() => [])
      deployments.reset()
      for (const { state, count } of rows) deployments.set({ state }, count)
      longTurns.reset()
      for (const [work, count] of readLongTurns()) longTurns.inc({ work }, count)
      showWork(work)
      await showOrphans(database)
      await showOwnBackups(database)
      await showBackups(database)
      if (disk !== undefined) await showDisk?.(disk)
      return registry.metrics()
    },
    contentType: registry.contentType,
  }
}
