/**
 * Polls the sources that services follow, repositories and images: claimed under a lease by whichever server, when one
 * is due or a notification has arrived. Promises that unwatched ones are found again, once an hour.
 */
import type { Kind } from '../../kinds.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { LeaseHandedOff } from '../../lib/lease-handed-off.ts'
import type { Database } from '../../store/database.ts'
import { type Claimed, claimInTurns, type DueTable } from '../../work/claim-in-turns.ts'
import { holdLease, type Leased, type LeaseTable } from '../../work/lease.ts'
import { createLoop } from '../../work/loop.ts'
import { startTurns } from '../../work/turns.ts'
import type { DeploymentParts } from '../parts.ts'

const concurrency = 8
/** For one organization. */
const perOrganization = 4
const hourMs = 3_600_000
const longestPauseSeconds = 3600

/**
 * The statements that the tables of polled sources share. `followed`: the table of followers, whose `seen` is null until
 * the first poll; `key`: its column with the id of the source.
 */
export const watchedTable = <W extends Leased>(
  { followed, key, ...leases }: Pick<LeaseTable<W>, 'name' | 'columns'> & { followed: string; key: string },
  also?: DueTable<W>['also'],
) => {
  const table: LeaseTable<W> = { ...leases, open: `lease_until > '-infinity'` }
  const { name } = table
  const claim = claimInTurns({ table, dueAt: 'next_at', perOrganization, ...(also && { also }) })
  // A source with a new follower is polled now: the state until then is not a change.
  const newFollowersSql = `update ${name} w set next_at = clock_timestamp()
    where w.next_at > clock_timestamp() and w.failures = 0
      and w.id in (select f.${key} from ${followed} f where f.seen is null)`
  return {
    leases: table,
    async claim(database: Database, worker: string, room: number): Promise<Claimed<W>> {
      await database.query(newFollowersSql)
      return claim(database, worker, room)
    },
    /** Deletes a source without followers. */
    forget: (database: Database, watched: W): Promise<void> =>
      holdLease(database, table, watched, async (tx) => {
        const gone = `delete from ${name} w where w.id = $1
          and not exists (select from ${followed} f where f.${key} = w.id) returning 1`
        // A service began to follow it meanwhile: the next poll is for it.
        if ((await tx.query(gone, [watched.id])).length === 0)
          await tx.query(`update ${name} set lease_until = '-infinity', worker = null where id = $1`, [watched.id])
      }),
  }
}

export interface SourceFollower {
  id: string
  kind: Kind
  name: string
  seen: string | null
  spec: Record<string, unknown>
  environmentId: string
  environmentName: string
  projectId: string
  isStopped: boolean
  /** The running version as its source calls it; null without. */
  deployed: string | null
}

/** The pause after failures in a row, in SQL. */
export const failurePauseSql = `least(${longestPauseSeconds}, 15 * 2 ^ least(failures, 10))`

/**
 * Ends a poll: $1 and $2 are the id and the fence of the row, $3 the error, $4 the seconds between polls, $5 whether a
 * part is to be retried soon, $6 the former value of `asked`. At most one poll a second for each organization.
 */
export const finishPollSql = (name: LeaseTable<Leased>['name']): string => `
  update ${name} w set worker = null, lease_until = '-infinity',
    failures = case when $3::jsonb is null then 0 else failures + 1 end, error = $3,
    next_at = case when asked <> $6 and $3::jsonb is null then clock_timestamp()
      when $5 then clock_timestamp() + interval '1 minute'
      when $4::float8 = 0 and $3::jsonb is null then 'infinity'::timestamptz
      else clock_timestamp() + make_interval(secs => (0.9 + 0.2 * random()) * greatest($4::float8,
        (select count(*) from ${name} o where o.organization_id = w.organization_id),
        case when $3::jsonb is null then 0 else ${failurePauseSql} end)) end
  where w.id = $1 and w.fence = $2`

interface Polls<W extends Leased> {
  /** As shown by `/metrics`. */
  name: string
  /** The kind of source, in one word for the log: `repository`. */
  of: string
  table: ReturnType<typeof watchedTable<W>>
  longestPauseMs: number
  channel: string
  poll(watched: W, signal: AbortSignal): Promise<void>
  /** Stores why a poll failed, and when the next one is. */
  note(watched: W, error: DeploymentError): Promise<void>
  /** Watches followed sources again that are not watched. */
  watchForgotten(db: Database): Promise<void>
}

/** A failed poll is retried after a pause, and ever longer ones; it then finds the same. */
const pollOrNote = async <W extends Leased>(
  { log }: DeploymentParts,
  { of, poll, note }: Polls<W>,
  watched: W,
  signal: AbortSignal,
): Promise<void> => {
  try {
    await poll(watched, signal)
  } catch (error) {
    if (signal.aborted || error instanceof LeaseHandedOff) throw error
    if (error instanceof DeploymentError) return note(watched, error)
    log.warn({ err: error, [of]: watched.id }, `polling this ${of} failed`)
    const sentence = `The ${of} could not be polled: see the server's log.`
    await note(watched, new DeploymentError('internal', sentence, { cause: error }))
  }
}

export const startPolls = async <W extends Leased>(
  parts: DeploymentParts,
  worker: string,
  polls: Polls<W>,
): Promise<{ stop(): Promise<void> }> => {
  const { name, of, table, longestPauseMs, channel } = polls
  const forgotten = createLoop(parts, {
    name: `followed ${name}`,
    periodMs: hourMs,
    failed: 'some repositories or image tags may not be polled',
    run: () => polls.watchForgotten(parts.database),
  })
  const { stop } = await startTurns<W>(parts, worker, {
    ...{ name, concurrency, longestPauseMs, leases: table.leases, channel, claim: table.claim },
    about: ({ id }) => ({ [of]: id }),
    run: (watched, signal) => pollOrNote(parts, polls, watched, signal),
    failed: `polling this ${of} was interrupted and waits for its next claim`,
  })
  return {
    async stop() {
      await Promise.all([stop(), forgotten.stop()])
    },
  }
}
