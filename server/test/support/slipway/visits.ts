/** A visitor who requests a service repeatedly to see which version serves it, and when none does. */
import type { TestContext } from 'node:test'
import { until } from '../until.ts'
import type { Slipway } from './slipway.ts'
import { visit } from './story.ts'

export interface Visits {
  count: number
  failures: string[]
  /** What was served, in order of first sight. */
  versions: string[]
}

/**
 * Looks at the host at each of these routers in turn. Answers what ends the visits, and what they saw; they end with
 * the test `t` at the latest.
 */
export const startVisits = (slipways: readonly Slipway[], host: string, t?: TestContext): (() => Promise<Visits>) => {
  const seen: Visits = { count: 0, failures: [], versions: [] }
  let running = true
  const visitOne = async (slipway: Slipway): Promise<void> => {
    seen.count += 1
    await visit(slipway, host).then(
      ({ status, text }) => {
        const said = text.trim()
        if (status !== 200) seen.failures.push(`${new Date().toISOString()} ${status} ${said.slice(0, 80)}`)
        else if (!seen.versions.includes(said)) seen.versions.push(said)
      },
      (error: Error) => seen.failures.push(error.message),
    )
  }
  const look = async (): Promise<boolean> => {
    for (const slipway of slipways) await visitOne(slipway)
    return !running
  }
  const ended = until(look, { timeoutMs: 3_600_000, what: 'the end of the visits' })
  const stop = async (): Promise<Visits> => {
    running = false
    await ended
    return seen
  }
  t?.after(stop)
  return stop
}
