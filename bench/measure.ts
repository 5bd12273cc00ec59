/** Numbers from samples and from /proc: medians, CPU and memory of process trees. Linux only; knows no figure. */
import { readdirSync, readFileSync } from 'node:fs'

export const percentile = (values: readonly number[], share: number): number => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}

export const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

/** Milliseconds that `work` takes. */
export const timed = async (work: () => Promise<unknown>): Promise<number> => {
  const start = performance.now()
  await work()
  return performance.now() - start
}

/** Microseconds in one unit of utime and stime: USER_HZ is 100 on every Linux that Node runs on. */
const tickMicros = 10_000

interface ProcessStat {
  pid: number
  parent: number
  /** Own CPU and that of children that ended and were waited for. */
  cpuTicks: number
}

const readStat = (pid: number): ProcessStat | null => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
    const cpuTicks = [11, 12, 13, 14].reduce((sum, at) => sum + Number(fields[at]), 0)
    return { pid, parent: Number(fields[1]), cpuTicks }
  } catch {
    return null
  }
}

const allProcesses = (): ProcessStat[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readStat(Number(name)))
    .filter((stat) => stat !== null)

/** The processes of these trees, roots included. */
const treeOf = (roots: readonly number[]): ProcessStat[] => {
  const all = allProcesses()
  const members = new Set(roots)
  for (let grown = -1; grown !== members.size; ) {
    grown = members.size
    for (const { pid, parent } of all) if (members.has(parent)) members.add(pid)
  }
  return all.filter(({ pid }) => members.has(pid))
}

/** CPU microseconds that these process trees have used so far, in steps of 10 ms. */
export const cpuMicros = (roots: readonly number[]): number =>
  treeOf(roots).reduce((sum, { cpuTicks }) => sum + cpuTicks, 0) * tickMicros

/** Resident memory of these process trees in MB (10⁶ bytes), shared pages counted once per process. */
export const residentMb = (roots: readonly number[]): number => sumMb(roots, 'status', /^VmRSS:\s+(\d+)/m)

/** The same with each shared page divided among the processes that share it (PSS): what they cost together. */
export const proportionalMb = (roots: readonly number[]): number => sumMb(roots, 'smaps_rollup', /^Pss:\s+(\d+)/m)

const sumMb = (roots: readonly number[], file: string, pattern: RegExp): number =>
  treeOf(roots).reduce((sum, { pid }) => sum + kilobytesIn(pid, file, pattern), 0) * 0.001024

const kilobytesIn = (pid: number, file: string, pattern: RegExp): number => {
  try {
    return Number(pattern.exec(readFileSync(`/proc/${pid}/${file}`, 'latin1'))?.[1] ?? 0)
  } catch {
    return 0
  }
}

/** Processes whose command line or environment holds `text`: those started for one data directory. */
export const processesNaming = (text: string): number[] =>
  allProcesses()
    .map(({ pid }) => pid)
    .filter((pid) => pid !== process.pid && ['cmdline', 'environ'].some((file) => mentions(pid, file, text)))

const mentions = (pid: number, file: string, text: string): boolean => {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8').includes(text)
  } catch {
    return false
  }
}

/** Command line of a process, its words joined by spaces; '' when it is gone. */
export const commandLine = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
  } catch {
    return ''
  }
}
