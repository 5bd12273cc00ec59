/** Lines of deployments beside those of a log: those in the time that is shown, merged into one list. */

import type { Line } from '../api/log-line.ts'
import { createLineList, everything, type Filter, type LineList, type Lines } from './log-lines.ts'
import { inOrder, merged, type Span } from './log-merge.ts'

/** For live lines. Lines that a deployment wrote before the oldest of them are included: they lead to it. */
export const always: Span = { fromMs: Number.NEGATIVE_INFINITY, toMs: Number.POSITIVE_INFINITY }

/** `main`: the lines that they are merged into. */
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
    /** All current ones. */
    place(lines: readonly Line[]): void {
      all = lines
      setTime(time)
    },
    filter(next: Filter): void {
      // For every instance filter: deployments concern all instances.
      wanted = { ...next, from: null }
      list.filter(wanted)
    },
    look: (ms: number): boolean => list.look(ms),
    /** One of the two lists has changed, or was replaced. */
    changed(): void {
      view = null
    },
    /** The time of the shown lines, except those of deployments; null while there are none. */
    loaded(): Span | null {
      const fromMs = time.fromMs === always.fromMs ? main().oldest()?.at : time.fromMs
      return fromMs === undefined ? null : { fromMs, toMs: time.toMs }
    },
    /** Sets the end of the time to the last line, unless it has one. */
    upToNow(): Span {
      const newest = Math.max(main().newest()?.at ?? 0, list.newest()?.at ?? 0) || Date.now()
      return time.toMs === always.toMs ? { ...time, toMs: newest } : time
    },
    /** Lines written after the end of the time; unknown for a chosen time. */
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
