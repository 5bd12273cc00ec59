/** Figures that cases measure from outside: latencies, the memory of a process, moments of chance. */
import { readdirSync, readFileSync } from 'node:fs'
import { until } from '../support/until.ts'

/** The value that `share` (0 to 1) of the values do not exceed. */
export const percentile = (values: readonly number[], share: number): number => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN
}

export const median = (values: readonly number[]): number => percentile(values, 0.5)

/** How long `work` takes, in milliseconds. */
export const timed = async (work: () => Promise<unknown>): Promise<number> => {
  const from = performance.now()
  await work()
  return performance.now() - from
}

export const whole = (value: number): number => Math.round(value)

/** Memory that a process holds, in MB. */
export const residentMb = (pid: number): number => {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kilobytes) / 1024
}

const commandOf = (pid: string): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
  } catch {
    return ''
  }
}

/** Commands of this machine's processes, those in containers too, that have `mark` in them. */
export const processesWith = (mark: string): string[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(commandOf)
    .filter((command) => command.includes(mark))

/** A sequence between 0 and 1 that its seed repeats. */
export const chance = (seed: number): (() => number) => {
  let state = seed
  return () => {
    state = (state * 1664525 + 1013904223) % 2 ** 32
    return state / 2 ** 32
  }
}

/** Waits until `ms` from now: for a fault that strikes at a moment of chance. */
export const moment = (ms: number): Promise<unknown> => {
  const at = performance.now() + ms
  return until(() => performance.now() >= at, { timeoutMs: ms + 5000, what: 'the moment of a fault' })
}
