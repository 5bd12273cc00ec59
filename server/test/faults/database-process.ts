/** The processes of a Slipway's own PostgreSQL, from outside: for faults that end or stop them. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Slipway } from '../support/slipway/slipway.ts'

/** The server itself; throws while none runs. */
export const postmasterOf = ({ dataDir }: Slipway): number => {
  const text = readFileSync(join(dataDir, 'postgres', 'data', 'postmaster.pid'), 'utf8')
  return Number.parseInt(text, 10)
}

const parentOf = (pid: string): number => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
  } catch {
    return 0
  }
}

/** The server and all that it has started: connections are processes of their own. */
const familyOf = (postmaster: number): number[] => [
  postmaster,
  ...readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && parentOf(name) === postmaster)
    .map(Number),
]

const send = (pids: readonly number[], signal: NodeJS.Signals): void => {
  for (const pid of pids)
    try {
      process.kill(pid, signal)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
    }
}

/** Stops it as `pg_ctl restart -m immediate` does; the server that manages it starts it again. */
export const endAtOnce = (slipway: Slipway): void => send([postmasterOf(slipway)], 'SIGQUIT')

/** Suspends all of its processes; returns a function that resumes them. */
export const freeze = (slipway: Slipway): (() => void) => {
  const postmaster = postmasterOf(slipway)
  send([postmaster], 'SIGSTOP')
  const family = familyOf(postmaster)
  send(family, 'SIGSTOP')
  return () => send(family, 'SIGCONT')
}
