/** Lines of deployments among those of a service, on one axis of time. Pure. */
import type { Line } from '../api/log-line.ts'
import type { Lines } from './log-lines.ts'

/** Includes both ends. */
export interface Span {
  fromMs: number
  toMs: number
}

export interface Execution extends Span {
  id: string
}

/**
 * The executions, newest first, whose time overlaps with the loaded lines. If there are more than `most`, the newest,
 * and `wanted` by its id.
 */
export const overlapping = (
  executions: readonly Execution[],
  loaded: Span | null,
  most: number,
  wanted?: string,
): Execution[] => {
  // While a service has printed nothing, only its newest deployment is shown.
  if (loaded === null) return executions.slice(0, 1)
  const found = executions.filter(({ fromMs, toMs }) => fromMs <= loaded.toMs && toMs >= loaded.fromMs)
  const isLeftOut = found.findIndex(({ id }) => id === wanted) >= most
  return [...found.slice(0, isLeftOut ? most - 1 : most), ...(isLeftOut ? found.filter(({ id }) => id === wanted) : [])]
}

/**
 * Sorted by time, only lines within it. At the same time, the earlier deployment comes first, and the lines of one
 * deployment keep their order: the result does not depend on which was read first.
 */
export const inOrder = (lines: readonly Line[], { fromMs, toMs }: Span): Line[] =>
  lines
    .filter(({ at }) => at >= fromMs && at <= toMs)
    .sort((a, b) => a.at - b.at || (a.deployment ?? 0) - (b.deployment ?? 0))

/**
 * The position of each of `others`, which are in order: before the first of `lines` of the same time or a later one.
 */
const placesAmong = (lines: Lines, others: Lines): number[] => {
  const places: number[] = []
  for (let index = 0; index < lines.count && places.length < others.count; index += 1)
    for (const { at } = lines.lineAt(index); places.length < others.count; places.push(index))
      if (others.lineAt(places.length).at > at) break
  while (places.length < others.count) places.push(lines.count)
  return places
}

/**
 * Merges both. Lines of the service keep their order, and at the same time a deployment's lines come before printed
 * ones: the position of a line does not depend on when it arrived. Valid until one of the two lists changes.
 */
export const merged = (lines: Lines, others: Lines): Lines => {
  if (others.total === 0) return lines
  const places = placesAmong(lines, others)
  /** The number of the others before a position in the merged list. */
  const othersBefore = (index: number): number => {
    let low = 0
    for (let high = places.length; low < high; ) {
      const middle = (low + high) >> 1
      if (places[middle]! + middle < index) low = middle + 1
      else high = middle
    }
    return low
  }
  return {
    count: lines.count + others.count,
    total: lines.total + others.total,
    dropped: lines.dropped,
    lineAt(index) {
      const before = othersBefore(index)
      return before < places.length && places[before]! + before === index
        ? others.lineAt(before)
        : lines.lineAt(index - before)
    },
  }
}
