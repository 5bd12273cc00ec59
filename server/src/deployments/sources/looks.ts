/**
 * Looks at what services follow, repositories and images: claimed under a lease by whichever server, when one is due or
 * somebody has told of news. Promises that what nobody watches any more is found again, once an hour.
 */
import { DeploymentError } from '../../lib/errors.ts'
import { LeaseHandedOff } from '../../lib/lease-handed-off.ts'
import type { Database } from '../../store/database.ts'
import { type Claimed, claimInTurns, type DueTable } from '../../work/claim-in-turns.ts'
import { holdLease, type Leased, type LeaseTable } from '../../work/lease.ts'
import { createLoop } from '../../work/loop.ts'
import { startTurns } from '../../work/turns.ts'
import type { DeploymentParts } from '../parts.ts'

const concurrency = 8
/** Of one organization. */
const perOrganization = 4
const hourMs = 3_600_000
const longestPauseSeconds = 3600

/**
 * What rows of a table that is looked at have in common. `followed`: the table of those who follow, whose `seen` is null
 * until the first look; `key`: its column with the id of what is followed.
 */
export const watchedTable = <W extends Leased>(
  { followed, key, ...leases }: Pick<LeaseTable<W>, 'name' | 'columns'> & { followed: string; key: string },
  also?: DueTable<W>['also'],
) => {
  const table: LeaseTable<W> = { ...leases, open: `lease_until > '-infinity'` }
  const { name } = table
  const claim = claimInTurns({ table, dueAt: 'next_at', perOrganization, ...(also && { also }) })
  // What is there when a service begins to follow is no news: it is looked at now.
  const newFollowersSql = `update ${name} w set next_at = clock_timestamp()
    where w.next_at > clock_timestamp() and w.failures = 0
      and w.id in (select f.${key} from ${followed} f where f.seen is null)`
  return {
    leases: table,
    async claim(database: Database, worker: string, room: number): Promise<Claimed<W>> {
      await database.query(newFollowersSql)
      return claim(database, worker, room)
    },
    /** Forgets what nobody follows any more. */
    forget: (database: Database, watched: W): Promise<void> =>
      holdLease(database, table, watched, async (tx) => {
        const gone = `delete from ${name} w where w.id = $1
          and not exists (select from ${followed} f where f.${key} = w.id) returning 1`
        // Somebody began to follow it meanwhile: the next look is theirs.
        if ((await tx.query(gone, [watched.id])).length === 0)
          await tx.query(`update ${name} set lease_until = '-infinity', worker = null where id = $1`, [watched.id])
      }),
  }
}

/** The pause after failures in a row, in SQL. */
export const failurePauseSql = `least(${longestPauseSeconds}, 15 * 2 ^ least(failures, 10))`

/**
 * Ends a look: $1 and $2 are the id and the fence of the row, $3 the error, $4 the seconds between looks, $5 whether
 * something is to be tried again soon, $6 what `asked` was. One look a second of each organization at most.
 */
export const finishLookSql = (name: LeaseTable<Leased>['name']): string => `
  update ${name} w set worker = null, lease_until = '-infinity',
    failures = case when $3::jsonb is null then 0 else failures + 1 end, error = $3,
    next_at = case when asked <> $6 and $3::jsonb is null then clock_timestamp()
      when $5 then clock_timestamp() + interval '1 minute'
      when $4::float8 = 0 and $3::jsonb is null then 'infinity'::timestamptz
      else clock_timestamp() + make_interval(secs => (0.9 + 0.2 * random()) * greatest($4::float8,
        (select count(*) from ${name} o where o.organization_id = w.organization_id),
        case when $3::jsonb is null then 0 else ${failurePauseSql} end)) end
  where w.id = $1 and w.fence = $2`

interface Looks<W extends Leased> {
  /** As shown by `/metrics`. */
  name: string
  /** What is looked at, in one word for the log: `repository`. */
  of: string
  table: ReturnType<typeof watchedTable<W>>
  longestPauseMs: number
  /** On which somebody tells of news. */
  channel: string
  look(watched: W, signal: AbortSignal): Promise<void>
  /** Keeps why a look failed, and when the next one is. */
  note(watched: W, error: DeploymentError): Promise<void>
  /** Watches again what is followed and not watched. */
  watchForgotten(db: Database): Promise<void>
}

/** A look that fails is retried after a pause, and ever longer ones; what it would have found is found then. */
const lookOrNote = async <W extends Leased>(
  { log }: DeploymentParts,
  { of, look, note }: Looks<W>,
  watched: W,
  signal: AbortSignal,
): Promise<void> => {
  try {
    await look(watched, signal)
  } catch (error) {
    if (signal.aborted || error instanceof LeaseHandedOff) throw error
    if (error instanceof DeploymentError) return note(watched, error)
    log.warn({ err: error, [of]: watched.id }, `a look at this ${of} failed`)
    const sentence = `The ${of} could not be looked at: see the server's log.`
    await note(watched, new DeploymentError('internal', sentence, { cause: error }))
  }
}

export const startLooks = async <W extends Leased>(
  parts: DeploymentParts,
  worker: string,
  looks: Looks<W>,
): Promise<{ stop(): Promise<void> }> => {
  const { name, of, table, longestPauseMs, channel } = looks
  const forgotten = createLoop(parts, {
    name: `followed ${name}`,
    periodMs: hourMs,
    failed: 'some of what services follow may not be watched',
    run: () => looks.watchForgotten(parts.database),
  })
  const { stop } = await startTurns<W>(parts, worker, {
    ...{ name, concurrency, longestPauseMs, leases: table.leases, channel, claim: table.claim },
    about: ({ id }) => ({ [of]: id }),
    run: (watched, signal) => lookOrNote(parts, looks, watched, signal),
    failed: `a look at this ${of} was interrupted and waits for its next claim`,
  })
  return {
    async stop() {
      await Promise.all([stop(), forgotten.stop()])
    },
  }
}
