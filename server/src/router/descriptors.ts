/** How many descriptors connections may take. */
import { readFileSync } from 'node:fs'

/** The memory of so many connections is some hundred megabytes. */
const mostOfAll = 65_536
/** Where the system does not say. */
const usual = 8192
/** The rest is for listening sockets, files, and connections to targets that wait for their next request. */
const part = 0.6

const limitOfProcess = (): number => {
  try {
    const [, soft] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    return soft === undefined ? usual : Number(soft)
  } catch {
    return usual
  }
}

export const descriptorsForTraffic = (limit = limitOfProcess()): number => Math.min(mostOfAll, Math.floor(limit * part))
