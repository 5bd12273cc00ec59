/**
 * Lines of a log in memory of fixed size, with a filter that never blocks the page. Lines are added and searched in
 * small portions; older lines that do not fit are dropped and counted.
 */
import type { Line } from '../api/log-line.ts'
import { textOf } from './ansi.ts'

export type Level = 'all' | 'error'

export interface Filter {
  /** In lower case; '' matches every line. */
  text: string
  level: Level
  /** One instance; null for all. */
  from: string | null
  /** Only lines about these services; null for all. */
  about: readonly string[] | null
}

export const everything: Filter = { text: '', level: 'all', from: null, about: null }

const isEverything = ({ text, level, from, about }: Filter): boolean =>
  text === '' && level === 'all' && from === null && about === null

/** The lines that a list shows. */
export interface Lines {
  /** Lines that match the filter, as far as it was searched. */
  readonly count: number
  /** All lines that are kept. */
  readonly total: number
  readonly dropped: number
  lineAt(index: number): Line
}

export interface LineList extends Lines {
  push(lines: readonly Line[]): void
  /** True if these would push others out. */
  isFullWith(lines: readonly Line[]): boolean
  filter(wanted: Filter): void
  /** Searches more lines, for at most this long; false while there are more. */
  look(ms: number): boolean
  /** A copy that does not change, with these lines before the others. */
  copy(older?: readonly Line[]): LineList
  ids(): Set<string>
  oldest(): Line | undefined
  newest(): Line | undefined
}

const mostLines = 50_000
/** Characters of all lines: long lines take more memory. */
const mostLength = 24_000_000
const longestLine = 100_000
/** Lines between two checks of the clock. */
const portion = 256

// biome-ignore lint/suspicious/noControlCharactersInRegex: only texts that have one are taken apart
const hasControl = /[\u0000-\u001f\u007f-\u009f]/

const searchable = (text: string): string => (hasControl.test(text) ? textOf(text) : text).toLowerCase()

const fits = ({ text, level, from, about }: Filter, line: Line): boolean =>
  (level === 'all' || line.isError) &&
  (from === null || line.from === from) &&
  (about === null || about.includes(line.about ?? '')) &&
  (text === '' || searchable(line.text).includes(text))

/** A queue in an array: items removed from its front are freed from time to time. */
const createQueue = <T>() => {
  let items: T[] = []
  let head = 0
  return {
    get size() {
      return items.length - head
    },
    at: (index: number): T => items[head + index]!,
    push: (item: T): void => void items.push(item),
    shift(): T {
      const first = items[head]!
      head += 1
      if (head > 4096 && head * 2 > items.length) {
        items = items.slice(head)
        head = 0
      }
      return first
    },
    slice: (): T[] => items.slice(head),
  }
}

const shortened = (line: Line): Line =>
  line.text.length <= longestLine
    ? line
    : { ...line, text: `${line.text.slice(0, longestLine)} … (${line.text.length - longestLine} more characters)` }

/** `most`: lines that are kept. */
export const createLineList = (most = mostLines, wanted: Filter = everything): LineList => {
  const lines = createQueue<Line>()
  /** The numbers of matching lines, counted from the first line ever; null if all match. */
  let found: ReturnType<typeof createQueue<number>> | null = isEverything(wanted) ? null : createQueue<number>()
  let filter = wanted
  let first = 0
  let looked = 0
  let length = 0
  const drop = (): void => {
    length -= lines.shift().text.length
    first += 1
    if (found !== null && found.size > 0 && found.at(0) < first) found.shift()
  }
  const look = (ms: number): boolean => {
    if (found === null) return true
    looked = Math.max(looked, first)
    const end = first + lines.size
    for (const until = performance.now() + ms; looked < end; ) {
      for (const stop = Math.min(end, looked + portion); looked < stop; looked += 1)
        if (fits(filter, lines.at(looked - first))) found.push(looked)
      if (performance.now() > until) break
    }
    return looked >= end
  }
  const list: LineList = {
    get count() {
      return found === null ? lines.size : found.size
    },
    get total() {
      return lines.size
    },
    get dropped() {
      return first
    },
    lineAt: (index) => lines.at(found === null ? index : found.at(index) - first),
    push(added) {
      for (const each of added) {
        const line = shortened(each)
        lines.push(line)
        length += line.text.length
        while (lines.size > most || (length > mostLength && lines.size > 1)) drop()
      }
    },
    isFullWith: (added) =>
      lines.size + added.length > most || added.reduce((sum, { text }) => sum + text.length, length) > mostLength,
    filter(next) {
      filter = next
      found = isEverything(next) ? null : createQueue<number>()
      looked = first
    },
    look,
    copy(older = []) {
      // Lines that were requested are kept: they are older than those that would be dropped first.
      const made = createLineList(most + older.length, filter)
      made.push(older)
      made.push(lines.slice())
      return made
    },
    ids: () => new Set(lines.slice().map(({ id }) => id)),
    oldest: () => (lines.size === 0 ? undefined : lines.at(0)),
    newest: () => (lines.size === 0 ? undefined : lines.at(lines.size - 1)),
  }
  return list
}
