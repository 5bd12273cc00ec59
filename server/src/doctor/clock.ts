/** The clock of this machine, compared with that of the database and of registries that were asked lately. */
import { failed, type Problem, topic, warning } from '../lib/finding.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Queryable } from '../store/database.ts'

export interface ClockFacts {
  /** How far the clock of the database is ahead of ours; null if it was not asked. */
  databaseMs: number | null
  /** The same of each registry. */
  registriesMs: readonly number[]
}

/** The middle of the request is when the database looked at its clock. */
export const readDatabaseClock = async (db: Queryable, clock: Pick<Clock, 'now'>): Promise<number> => {
  const before = clock.now().getTime()
  const [row] = await db.query<{ now: number }>('select (extract(epoch from clock_timestamp()) * 1000)::float8 as now')
  return row!.now - (before + clock.now().getTime()) / 2
}

const clockTopic = topic('clock', 'Clock')

/** Tokens of an issuer, and leases of several servers, allow for a minute. */
const wrongMs = 60_000
const lateMs = 5000

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!

const seconds = (ms: number): string => `${Math.round(Math.abs(ms) / 1000)} s ${ms > 0 ? 'behind' : 'ahead of'}`

const advice = 'Keep the clocks right by NTP: `timedatectl set-ntp true`, then look at `timedatectl`.'

interface Compared {
  ms: number
  whose: string
  toleratedMs: number
  /** Users choose registries: one of theirs may be wrong itself. */
  isTrusted: boolean
}

const problemOf = ({ ms, whose, toleratedMs, isTrusted }: Compared): Problem | null => {
  const size = Math.abs(ms)
  if (size <= toleratedMs) return null
  const message = `The clock of this machine is ${seconds(ms)} ${whose}`
  return size > wrongMs && isTrusted
    ? failed(`${message}: sign-ins, certificates and schedules go wrong.`, advice)
    : warning(`${message}.`, advice)
}

export const judgeClock = ({ databaseMs, registriesMs }: ClockFacts) => {
  const asked: Compared[] = [
    ...(databaseMs === null ? [] : [{ ms: databaseMs, whose: "the database's", toleratedMs: lateMs, isTrusted: true }]),
    // Their times have whole seconds, and arrive late. One that is wrong does not count among several.
    ...(registriesMs.length === 0
      ? []
      : [
          {
            ms: median(registriesMs),
            whose: `that of ${registriesMs.length === 1 ? 'a registry' : 'registries'}`,
            toleratedMs: 2 * lateMs,
            isTrusted: false,
          },
        ]),
  ]
  if (asked.length === 0) return clockTopic.skipped('Nothing else has a clock to compare with.')
  const problems = asked.map(problemOf)
  return clockTopic.judge(
    problems.filter((each) => each !== null),
    `The clock of this machine agrees with ${asked.map(({ whose }) => whose).join(' and ')}.`,
  )
}
