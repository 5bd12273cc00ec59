import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Server } from 'node:net'

/**
 * Takes the place of the one router of a folder; null when another process has it. It is a name in Linux's abstract
 * namespace, which the kernel frees with the process, so it cannot go stale. Elsewhere the port alone decides.
 */
export const takeLock = async (folder: string): Promise<Server | null> => {
  const lock = createServer((socket) => socket.destroy())
  if (process.platform !== 'linux') return lock
  lock.listen(`\0slipway-router-${createHash('sha256').update(folder).digest('hex')}`)
  try {
    await once(lock, 'listening')
    return lock
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return null
    throw error
  }
}
