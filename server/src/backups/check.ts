/**
 * Verifies one backup: it is loaded into a server of its own, from the same image, in a container without a network that
 * goes with its data; its tables and rows are those of the database when it was dumped.
 */
import { randomBytes } from 'node:crypto'
import { openContent } from './content.ts'
import { isTooLarge, judgeLoad, tooLarge } from './judge.ts'
import type { BackupParts } from './parts.ts'
import { type BackupRow, beginCheck } from './records.ts'
import { runTool } from './run-tool.ts'
import { backupToolOf } from './tools/tools.ts'

/** Null if it is verified, else why not. Rejects with what stopped the load. */
export const checkBackup = async (parts: BackupParts, row: BackupRow, signal: AbortSignal): Promise<string | null> => {
  await beginCheck(parts.database, row)
  const { organizationId, environmentId, type } = row
  const stdin = await openContent(parts, row, signal)
  const reports = await runTool(
    await parts.clusters.of(row.clusterId!),
    {
      ...{ organizationId, environmentId, serviceId: row.databaseId, type, image: row.image!, mode: 'check' },
      memoryMb: row.memoryMb!,
      ownerId: row.id,
      login: { host: '127.0.0.1', user: backupToolOf(type).user, password: randomBytes(18).toString('hex') },
      timeoutMs: Math.max(1000, row.leftMs),
    },
    { stdin },
    signal,
  )
  return isTooLarge(row.tables, reports) ? tooLarge : judgeLoad(row.tables, reports)
}
