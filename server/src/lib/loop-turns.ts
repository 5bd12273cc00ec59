/**
 * Long turns of this process's event loop: while one lasts, nothing else is done here. Promises that a turn above 250
 * ms is reported once, with what took most of it, as far as that has a name: the operation of a request, or background
 * work. The watch is an immediate that does not keep the loop awake: it runs at the end of each turn that something
 * else has caused, so that an idle process is never woken by it; time spent waiting for events does not count. Names
 * are noted where work begins and ends. Code that continues after an answer of the database has no note of its own:
 * then all work in progress is listed. Following each chain of callbacks (AsyncLocalStorage) would name that too, at a
 * cost for every promise.
 */

export interface LongTurn {
  /** How long the loop was busy without a break. */
  ms: number
  /** The work that took most of it; `unknown` if no named work began or ended in it. */
  work: string
  /** Work that had begun and not ended. */
  open: string[]
}

export const longTurnMs = 250
const mostNames = 10

interface Watch {
  report(turn: LongTurn): void
  /** When the last turn ended, and when named work last began or ended. */
  turnMs: number
  sinceMs: number
  by: string | null
  longest: { ms: number; work: string | null }
}

let watch: Watch | null = null
const open = new Map<string, number>()
const counts = new Map<string, number>()

/** Without the time in which the loop waited. */
const busyMs = (): number => performance.now() - performance.nodeTiming.idleTime

/** The rest of this turn is done for `work`. */
export const noteWork = (work: string): void => {
  if (watch === null) return
  const nowMs = busyMs()
  const ms = nowMs - watch.sinceMs
  if (ms > watch.longest.ms) watch.longest = { ms, work: watch.by ?? work }
  watch.sinceMs = nowMs
  watch.by = work
}

/** The same; call the returned function when the work ends. */
export const beginWork = (work: string): (() => void) => {
  noteWork(work)
  open.set(work, (open.get(work) ?? 0) + 1)
  return () => {
    noteWork(work)
    const left = (open.get(work) ?? 1) - 1
    if (left > 0) open.set(work, left)
    else open.delete(work)
  }
}

const endTurn = (turn: Watch): void => {
  const nowMs = busyMs()
  const ms = nowMs - turn.turnMs
  if (ms > longTurnMs) {
    const last = nowMs - turn.sinceMs
    const work = (last > turn.longest.ms ? turn.by : turn.longest.work) ?? 'unknown'
    counts.set(work, (counts.get(work) ?? 0) + 1)
    turn.report({ ms: Math.round(ms), work, open: [...open.keys()].slice(0, mostNames) })
  }
  turn.turnMs = turn.sinceMs = ms > longTurnMs ? busyMs() : nowMs
  turn.by = null
  turn.longest = { ms: 0, work: null }
}

/** Watches the loop until the returned function is called; one watch at a time. */
export const watchTurns = (report: (turn: LongTurn) => void): (() => void) => {
  const nowMs = busyMs()
  const mine: Watch = { report, turnMs: nowMs, sinceMs: nowMs, by: null, longest: { ms: 0, work: null } }
  watch = mine
  const look = (): void => {
    if (watch !== mine) return
    endTurn(mine)
    setImmediate(look).unref()
  }
  setImmediate(look).unref()
  return () => {
    if (watch === mine) watch = null
  }
}

/** Counts of long turns, by the work that took most of them. */
export const readLongTurns = (): ReadonlyMap<string, number> => counts
