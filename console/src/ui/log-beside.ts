/** Lines of deployments beside those of a log: what of them is in the time that is shown, and both as one. */

import type { Line } from '../api/log-line.ts'
import { createLineList, everything, type Filter, type LineList, type Lines } from './log-lines.ts'
import { inOrder, merged, type Span } from './log-merge.ts'

/** As lines come. What a deployment wrote before the oldest of them is in it: it leads to them. */
export const always: Span = { fromMs: Number.NEGATIVE_INFINITY, toMs: Number.POSITIVE_INFINITY }

/** `main`: what they stand among now. */
export const createBeside = (main: () => LineList) => {
  let all: readonly Line[] = []
  let time = always
  let wanted = everything
  let list = createLineList()
  let view: Lines | null = null
  const joined = (): Lines => {
    view ??= merged(main(), list)
    return view
  }
  const setTime = (span: Span): void => {
    time = span
    list = createLineList(undefined, wanted)
    list.push(inOrder(all, span))
  }
  return {
    setTime,
    /** All that there are now. */
    place(lines: readonly Line[]): void {
      all = lines
      setTime(time)
    },
    filter(next: Filter): void {
      // Whichever instance is asked for: deployments are of all.
      wanted = { ...next, from: null }
      list.filter(wanted)
    },
    look: (ms: number): boolean => list.look(ms),
    /** Something in one of the two lists has changed, or which they are. */
    changed(): void {
      view = null
    },
    /** The time of what is shown, but for that of deployments; null while nothing is. */
    loaded(): Span | null {
      const fromMs = time.fromMs === always.fromMs ? main().oldest()?.at : time.fromMs
      return fromMs === undefined ? null : { fromMs, toMs: time.toMs }
    },
    /** Ends the time with what is there, unless it has an end. */
    upToNow(): Span {
      const newest = Math.max(main().newest()?.at ?? 0, list.newest()?.at ?? 0) || Date.now()
      return time.toMs === always.toMs ? { ...time, toMs: newest } : time
    },
    /** Written since the time ended; unknown of a time that was asked for. */
    late: (): number => (time.fromMs === always.fromMs ? all.length - list.total : 0),
    lines: {
      get count() {
        return joined().count
      },
      get total() {
        return joined().total
      },
      get dropped() {
        return joined().dropped
      },
      lineAt: (index) => joined().lineAt(index),
    } satisfies Lines as Lines,
  }
}
