/** What the kernel reports in /proc, read and taken apart. Empty on a system that has none. */
import { readdir, readFile } from 'node:fs/promises'
import { parseListeners } from '../runtimes/docker/probes/listeners.ts'

/** The text of a file below /proc; '' if it cannot be read. */
export const readProc = (path: string): Promise<string> => readFile(`/proc/${path}`, 'latin1').catch(() => '')

/** The numbers of a file below /proc. */
export const readNumbers = async (path: string): Promise<number[]> =>
  (await readProc(path)).split(/\s+/).flatMap((word) => (/^\d+$/.test(word) ? [Number(word)] : []))

/** How many files this process has open; null if the system does not say. */
export const countOpenFiles = (): Promise<number | null> =>
  readdir('/proc/self/fd').then(
    (names) => names.length,
    () => null,
  )

export const memoryIn = (meminfo: string): { totalMb: number; availableMb: number; swapMb: number } | null => {
  const mbOf = (name: string): number | null => {
    const found = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(meminfo)
    return found === null ? null : Math.floor(Number(found[1]) / 1024)
  }
  const [totalMb, availableMb] = [mbOf('MemTotal'), mbOf('MemAvailable')]
  return totalMb === null || availableMb === null ? null : { totalMb, availableMb, swapMb: mbOf('SwapTotal') ?? 0 }
}

/** The limit of open files in `/proc/self/limits`; null if there is none. */
export const openFilesLimitIn = (limits: string): number | null => {
  const found = /^Max open files\s+(\d+)/m.exec(limits)
  return found === null ? null : Number(found[1])
}

/** TCP ports that programs of this machine listen on. */
export const readListeningPorts = async (): Promise<number[]> => {
  const tables = await Promise.all([readProc('net/tcp'), readProc('net/tcp6')])
  return [...new Set(parseListeners(tables.join('\n')).map(({ port }) => port))]
}
