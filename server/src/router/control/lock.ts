import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'

export interface Lock {
  close(): void
}

const busy = 5

/**
 * Claims the place of the only router of a folder; null if another process has it. SQLite locks a file in that folder,
 * which no other user can open: the kernel frees the lock with the process, so it cannot go stale, and no other user
 * of this machine can take it first.
 */
export const takeLock = (folder: string): Lock | null => {
  const lock = new DatabaseSync(join(folder, 'lock'), { timeout: 0 })
  try {
    lock.exec('BEGIN EXCLUSIVE')
    return lock
  } catch (error) {
    lock.close()
    if ((error as { errcode?: number }).errcode === busy) return null
    throw error
  }
}

/** Whether a router of an earlier version, whose lock was a name in Linux's abstract namespace, has released it. */
export const hasFormerLeft = async (folder: string): Promise<boolean> => {
  if (process.platform !== 'linux') return true
  const name = createServer((socket) => socket.destroy())
  name.listen(`\0slipway-router-${createHash('sha256').update(folder).digest('hex')}`)
  try {
    await once(name, 'listening')
    name.close()
    return true
  } catch {
    return false
  }
}
