/**
 * Ends the PostgreSQL server of a data directory, and the claims of dead ones. Knows no connections; kills only the
 * server of the given data directory.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Log } from '../../lib/log.ts'
import { type PostgresPlace, replaceFile, socketName } from './place.ts'
import { isRunning, isServer, readPid } from './server-pid.ts'
import { isAlive } from './start-lock.ts'

const stopTimeoutMs = 20_000
const pollMs = 10

/**
 * PostgreSQL trusts any living process with the pid in its lock file. If that is a zombie or another program, the pid
 * is replaced by an impossible one: the rest of the file is kept, so that PostgreSQL itself still checks that no child
 * of the old server holds the shared memory.
 */
export const clearStaleLocks = async ({ data, socketDir, user }: PostgresPlace): Promise<void> => {
  const files = [join(data, 'postmaster.pid'), join(socketDir, `${socketName}.lock`)]
  for (const file of files) {
    const pid = readPid(file)
    if (pid === undefined || isServer(pid, data) || !isAlive(pid)) continue
    await replaceFile(file, (await readFile(file, 'utf8')).replace(/^\d+/, '2147483647'), user)
  }
}

/** Stops the server of this data directory if one is running, even if another process started it. */
export const stopAt = async (place: PostgresPlace, log: Log): Promise<void> => {
  const pid = readPid(join(place.data, 'postmaster.pid'))
  if (pid === undefined || !isServer(pid, place.data)) return
  process.kill(pid, 'SIGINT')
  const patience = performance.now() + stopTimeoutMs
  let hurried = false
  while (isRunning(pid)) {
    if (!hurried && performance.now() > patience) {
      hurried = true
      log.warn({ pid }, 'PostgreSQL takes too long to stop: killing it; it will recover at its next start')
      process.kill(pid, 'SIGQUIT')
    }
    await pause(pollMs)
  }
}
