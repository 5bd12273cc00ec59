/**
 * Whether this database is the one from which an engine or cluster was managed so far: its line. A database that is
 * older than the objects it finds (a restored copy), or a copy whose original is still at work, would delete objects
 * that it does not know.
 *
 * Promises: nothing is changed on a cluster before its marks were read and are of this database, and nothing from the
 * moment when they are not; that is stored in the database until an operator decides. Of two control planes with
 * copies of one database the one that owns the line continues. Does not know: deployments, services and how the
 * objects found are used. When the process dies: a generation is in the database before it is on the cluster, so the
 * next start knows the mark.
 */
import { DeploymentError } from '../../lib/errors.ts'
import { KubernetesError } from '../../lib/kubernetes/kubernetes-errors.ts'
import type { Log } from '../../lib/log.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Mark, Marks } from '../../runtimes/marks.ts'
import type { Runtime } from '../../runtimes/runtime.ts'
import type { Database } from '../../store/database.ts'
import { environmentKeySql } from '../local.ts'
import {
  type Conflict,
  queueAgain,
  readConflict,
  readGenerations,
  readUnknown,
  readUnknownVersions,
  withoutOrphans,
  writeConflict,
  writeGeneration,
} from './rows.ts'

interface GenerationsParts {
  database: Database
  writer: string
  clock: Clock
  challengeMs: number
  key: string
  marks: Marks
}

const askMs = 500

const same = (a: Mark, b: Mark): boolean => a.generation === b.generation && a.nonce === b.nonce

/** Without challenges. */
const generationsIn = (all: readonly Mark[]): Mark[] => all.filter(({ generation }) => generation > 0)

/** Writes the next generation, here and on the cluster. False if another control plane was quicker. */
const advance = async (
  { database, writer, key, marks }: GenerationsParts,
  all: readonly Mark[],
  signal: AbortSignal,
): Promise<boolean> => {
  const before = generationsIn(all)
  const mark = await writeGeneration(database, key, writer, before[0]?.generation ?? 0)
  if (!same(await marks.put(key, mark, signal), mark)) return false
  for (const old of before) if (old.generation < mark.generation) await marks.remove(key, old, signal)
  return true
}

/** Asks with a challenge: a control plane at work writes its next generation. True if none of another database does. */
const isAlone = async (
  { database, writer, clock, challengeMs, key, marks }: GenerationsParts,
  newest: Mark,
  signal: AbortSignal,
): Promise<boolean> => {
  const challenge = { generation: 0, nonce: `${writer} ${clock.now().toISOString()}`, writer }
  for (let there = await marks.put(key, challenge, signal); !same(there, challenge); ) {
    // A leftover of a dead process: a control plane at work answers ours as well.
    await marks.remove(key, there, signal)
    there = await marks.put(key, challenge, signal)
  }
  try {
    for (const untilMs = clock.monotonicMs() + challengeMs; clock.monotonicMs() < untilMs; ) {
      await clock.sleep(askMs, signal)
      const [first] = generationsIn(await marks.list(key, signal))
      if (first !== undefined && !same(first, newest)) return (await readGenerations(database, key)).knows(first)
    }
    return true
  } finally {
    await marks.remove(key, challenge, signal).catch(() => {})
  }
}

export interface LineParts {
  database: Database
  /** Id of this control plane: the same over restarts of one data directory, and for all servers of one database. */
  writer: string
  clock: Clock
  log: Log
  /** Fires when the server ends. */
  stopping: AbortSignal
  /** How long another control plane may take to answer a challenge. Default 15 s. */
  challengeMs?: number
}

export interface Line {
  /** Resolves when this server may change something; rejects with a `DeploymentError` while it may not. */
  ready(): Promise<void>
  /** Resolves with a signal that fires when it no longer may; rejects when `signal` fires. */
  untilReady(signal: AbortSignal): Promise<AbortSignal>
  /** Null while no conflict is known. */
  conflict(): Conflict | null
  /** Reads the marks now. Rejects if the cluster does not answer. */
  check(): Promise<void>
  /** The database takes over the line: its next generation is the newest. */
  takeOver(signal: AbortSignal): Promise<void>
}

const deadlineMs = 60_000
const pauseMs = 1000

const heldSentence = (message: string): string =>
  `Nothing is changed on this cluster until an operator decides about it: ${message}`

const olderMessage =
  'the database of this server is older than what was deployed there. It is a restored copy, or another control plane works on a copy of it'
const otherMessage = 'another control plane is at work there with a copy of the database of this server'

const unknownMessage = (count: number): string =>
  `the database of this server does not know ${count === 1 ? 'a service or environment' : `${count} services or environments`} that were deployed there. It is older than them: a restored copy, or another control plane works on a copy of it`

/** Nothing is changed there until an operator has decided. */
export const isHeld = ({ line }: { line?: Line }): boolean => line !== undefined && line.conflict() !== null

export const createLine = (parts: LineParts, key: string, runtime: Runtime): Line => {
  const { database, writer, clock, log, stopping, challengeMs = 15_000 } = parts
  const { marks } = runtime
  const of = { database, writer, clock, challengeMs, key, marks }
  let state: 'unknown' | 'ready' | 'held' = 'unknown'
  let found: Conflict | null = null
  let lost = new AbortController()
  let checking: Promise<void> | undefined

  const enter = (next: typeof state, conflict: Conflict | null): void => {
    state = next
    found = conflict
    if (next === 'ready') return
    lost.abort(new DeploymentError('cluster_conflict', 'Nothing is changed on this cluster any more.'))
    lost = new AbortController()
  }
  const hold = async (conflict: Conflict): Promise<void> => {
    enter('held', conflict)
    log.error({ cluster: key }, heldSentence(conflict.message))
    await writeConflict(database, key, conflict)
    await queueAgain(database, key, environmentKeySql('d.environment_id'))
  }

  /** How many objects a copy of the database, made while the original was at work, lacks despite its own marks. */
  const unknownThere = async (): Promise<number> => {
    const owned = await runtime.owned()
    const isTrusted = !runtime.rollsItself
    const unknown = await readUnknown(database, key, owned, isTrusted)
    const versions = isTrusted ? await readUnknownVersions(database, owned) : []
    return (await withoutOrphans(database, [...unknown, ...versions])).length
  }

  const judge = async (signal: AbortSignal): Promise<void> => {
    const all = await marks.list(key, signal)
    const [newest] = generationsIn(all)
    const generations = await readGenerations(database, key)
    const written = await readConflict(database, key)
    if (written !== null) return enter('held', written)
    if (newest !== undefined && !generations.knows(newest))
      return hold(
        state === 'ready'
          ? { code: 'other_server', message: otherMessage }
          : { code: 'older_database', message: olderMessage },
      )
    const isFirst = state !== 'ready'
    // An operator has decided: unknown objects are accepted as orphans.
    const isDecided = state === 'held'
    if (isFirst && !isDecided && !generations.isFirst) {
      const count = await unknownThere()
      if (count > 0) return hold({ code: 'older_database', message: unknownMessage(count) })
    }
    if (
      isFirst &&
      !isDecided &&
      newest !== undefined &&
      newest.writer !== writer &&
      !(await isAlone(of, newest, signal))
    )
      return hold({ code: 'other_server', message: otherMessage })
    const challenge = all.find(({ generation }) => generation === 0)
    const isAsked = challenge !== undefined && challenge.writer !== writer
    if (isFirst || isAsked || generations.isBehind) {
      if (!(await advance(of, all, signal))) return hold({ code: 'other_server', message: otherMessage })
      if (isAsked) await marks.remove(key, challenge, signal)
    }
    enter('ready', null)
  }

  const check = (): Promise<void> => {
    checking ??= judge(AbortSignal.any([stopping, AbortSignal.timeout(deadlineMs)])).finally(() => {
      checking = undefined
    })
    return checking
  }

  const asDeploymentError = (error: unknown): unknown =>
    error instanceof KubernetesError
      ? new DeploymentError('engine_unavailable', error.message, { next: 'wait', cause: error })
      : error

  const ready = async (): Promise<void> => {
    if (state === 'unknown')
      await check().catch((error: unknown) => {
        throw asDeploymentError(error)
      })
    if (found !== null) throw new DeploymentError('cluster_conflict', heldSentence(found.message), { next: 'wait' })
  }

  return {
    ready,
    conflict: () => found,
    check,
    async untilReady(signal) {
      for (;;) {
        signal.throwIfAborted()
        if (state === 'unknown') await check().catch(() => {})
        if (state === 'ready') return lost.signal
        await clock.sleep(pauseMs, signal)
      }
    },
    async takeOver(signal) {
      await checking?.catch(() => {})
      const all = await marks.list(key, signal)
      if (!(await advance(of, all, signal)))
        throw new DeploymentError('cluster_conflict', 'Another control plane is at work on this cluster.')
    },
  }
}
