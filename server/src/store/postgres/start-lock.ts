/**
 * A lock for starting the database of a data directory: one process at a time, and a dead one never blocks it. Each
 * creates a file with its own name in the data directory, which only we can write to, then checks for others; two that
 * come at once both back off and retry. PostgreSQL's own locks apply in addition.
 */
import { readFileSync } from 'node:fs'
import { readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

const prefix = 'postgres-start.'

/** Distinguishes a process from a later one with the same pid; empty if the system does not say. */
const startTimeOf = (pid: number): string | null => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' || fields[0] === 'X' ? null : fields[19]!
  } catch {
    return null
  }
}

const hasProc = startTimeOf(process.pid) !== null

/** Whether a process with that pid is running. */
export const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

const nameOf = (pid: number): string | null => {
  if (!hasProc) return isAlive(pid) ? `${prefix}${pid}-0` : null
  const startTime = startTimeOf(pid)
  return startTime === null ? null : `${prefix}${pid}-${startTime}`
}

const pidIn = (name: string): number => Number(/^\d+/.exec(name.slice(prefix.length))?.[0])

/** Returns a function that releases the lock, or undefined while another process has it. */
export const takeStartLock = async (folder: string): Promise<(() => Promise<void>) | undefined> => {
  const own = nameOf(process.pid)!
  const release = (): Promise<void> => rm(join(folder, own), { force: true })
  try {
    await writeFile(join(folder, own), '', { flag: 'wx', mode: 0o600 })
  } catch (error) {
    // Another part of this process has it.
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return undefined
    throw error
  }
  const others = (await readdir(folder)).filter((name) => name.startsWith(prefix) && name !== own)
  const isHeld = others.map((name) => nameOf(pidIn(name)) === name)
  for (const [index, name] of others.entries()) if (!isHeld[index]) await rm(join(folder, name), { force: true })
  if (!isHeld.includes(true)) return release
  await release()
  return undefined
}
