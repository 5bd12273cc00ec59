/**
 * The process id of the control plane of a data directory, so that `npm stop` can stop it and a second start is
 * refused.
 */
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'

const fileOf = (dataDir: string): string => join(dataDir, 'slipway.pid')

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

/**
 * The pid of the control plane running on this data directory, or null. A reused pid is recognized by its command line.
 */
export const findControlPlane = async (dataDir: string): Promise<number | null> => {
  const text = await readFile(fileOf(dataDir), 'utf8').catch(() => '')
  const pid = Number.parseInt(text, 10)
  if (!Number.isInteger(pid) || pid === process.pid || !isAlive(pid)) return null
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => 'main.ts')
  return /\bmain\.(ts|[cm]js)\b/.test(command) ? pid : null
}

export const claimDataDirectory = async (dataDir: string): Promise<void> => {
  const other = await findControlPlane(dataDir)
  if (other !== null) throw new Error(`another Slipway (process ${other}) is running on ${dataDir}`)
  await writeFile(fileOf(dataDir), `${process.pid}\n`)
}

export const releaseDataDirectory = (dataDir: string): Promise<void> => rm(fileOf(dataDir), { force: true })

const endTimeoutMs = 25_000

/** Stops the control plane of a data directory and waits until it has exited; SIGKILL after 25 s. */
export const endControlPlane = async (dataDir: string): Promise<void> => {
  const pid = await findControlPlane(dataDir)
  if (pid === null) return
  process.kill(pid, 'SIGTERM')
  const deadline = performance.now() + endTimeoutMs
  while (isAlive(pid)) {
    if (performance.now() > deadline) process.kill(pid, 'SIGKILL')
    await pause(50)
  }
}
