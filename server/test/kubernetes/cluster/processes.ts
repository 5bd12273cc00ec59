/** Processes of the cluster of the tests, as this machine sees them. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'

/** Ids of those whose command line has all of these texts. */
export const processesOf = (...texts: string[]): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && existsSync(`/proc/${name}/cmdline`))
    .filter((name) => {
      try {
        const words = readFileSync(`/proc/${name}/cmdline`, 'utf8')
        return texts.every((text) => words.includes(text))
      } catch {
        return false
      }
    })
    .map(Number)
