/**
 * Backups of databases: made, verified, kept, loaded again and removed, by workers over their rows. Promises that nothing is
 * called a backup before it was loaded once, and that each request ends. Does not know operations; how bytes get out of a
 * database is in tools/, how they are stored in format/ and places/. If the process dies, another one continues from the
 * rows.
 */
import type { BackupParts } from './parts.ts'
import { startRestores } from './restore-worker.ts'
import { startBackupSchedules } from './schedules.ts'
import { startBackups } from './worker.ts'

/** `alone`: no other server can work on this database, so that leases of a dead process end at once. */
export const startAllBackups = async (
  parts: BackupParts,
  options: { alone: boolean },
): Promise<{ stop(): Promise<void> }> => {
  const workers = await Promise.all([
    startBackups(parts, options),
    startRestores(parts, options),
    startBackupSchedules(parts),
  ])
  return { stop: async () => void (await Promise.all(workers.map((worker) => worker.stop()))) }
}
