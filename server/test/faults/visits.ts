/** A visitor who looks at a service again and again, without haste, to see who serves it and when nobody does. */
import type { Slipway } from '../support/slipway/slipway.ts'
import { visit } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'

export interface Visits {
  count: number
  failures: string[]
  /** What was served, in order of first sight. */
  versions: string[]
}

/** Answers what ends the visits, and what they saw. */
export const startVisits = (slipway: Slipway, host: string): (() => Promise<Visits>) => {
  const seen: Visits = { count: 0, failures: [], versions: [] }
  let running = true
  const look = async (): Promise<boolean> => {
    seen.count += 1
    await visit(slipway, host).then(
      ({ status, text }) => {
        if (status !== 200) seen.failures.push(`${new Date().toISOString()} ${status} ${text.slice(0, 80)}`)
        else if (!seen.versions.includes(text)) seen.versions.push(text)
      },
      (error: Error) => seen.failures.push(error.message),
    )
    return !running
  }
  const ended = until(look, { timeoutMs: 3_600_000, what: 'the end of the visits' })
  return async () => {
    running = false
    await ended
    return seen
  }
}
