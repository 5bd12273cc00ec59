/** The process of a PostgreSQL server, according to its lock file and the system. */
import { existsSync, readFileSync } from 'node:fs'
import { isAlive } from './start-lock.ts'

export const readPid = (file: string): number | undefined => {
  try {
    return Number.parseInt(readFileSync(file, 'utf8'), 10) || undefined
  } catch {
    return undefined
  }
}

const hasProc = existsSync('/proc/self/stat')

/** False for a process that has exited or is a zombie. */
export const isRunning = (pid: number): boolean => {
  if (!hasProc) return isAlive(pid)
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

/** Whether the process runs and is the server of `data`, not another one with a reused pid. */
export const isServer = (pid: number, data: string): boolean => {
  if (!hasProc || !isRunning(pid)) return isRunning(pid)
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(data)
  } catch {
    return false
  }
}
