/** What the scripts report of a database: its tables (or numbered databases of Redis) and their rows. Pure. */

export type Rows = ReadonlyMap<string, number>

/** Rows when the dump began (or in its snapshot), when it had ended, and in what was loaded. */
type Moment = 'before' | 'after' | 'found'

const moments: ReadonlySet<string> = new Set<Moment>(['before', 'after', 'found'])

/** A database with more tables is backed up, but not compared. */
export const mostTables = 20_000
const keptLines = 20
const longestLine = 500

export interface Reports {
  add(line: string): void
  rows(moment: Moment): Rows
  /** There were more tables than are kept. */
  isCut(): boolean
  /** The script got to its end. */
  isDone(): boolean
  /** The server that was to be empty was not. */
  isOccupied(): boolean
  /** What the programs said on standard error: the first lines, which name the cause. */
  said(): readonly string[]
}

const report = /^slipway:(\w+)(?:\t(\d{1,15})\t(.+))?$/

export const createReports = (): Reports => {
  const rows: Record<Moment, Map<string, number>> = { before: new Map(), after: new Map(), found: new Map() }
  const words = new Set<string>()
  const lines: string[] = []
  let isCut = false
  return {
    add(line) {
      const [, word, count, name] = report.exec(line) ?? []
      if (word === undefined) {
        if (line.trim() !== '' && lines.length < keptLines) lines.push(line.slice(0, longestLine))
        return
      }
      words.add(word)
      if (name === undefined || !moments.has(word)) return
      const into = rows[word as Moment]
      if (into.size < mostTables || into.has(name)) into.set(name.slice(0, longestLine), Number(count))
      else isCut = true
    },
    rows: (moment) => rows[moment],
    isCut: () => isCut,
    isDone: () => words.has('done'),
    isOccupied: () => words.has('occupied'),
    said: () => lines,
  }
}

export interface Counted {
  before: Rows
  /** The same rows where they were counted in the dump's snapshot. */
  after: Rows
}

const rowsOf = (count: string): string => `${count} ${count === '1' ? 'row' : 'rows'}`

const sentence = (name: string, found: number | undefined, [low, high]: readonly [number, number]): string => {
  const wanted = low === high ? `${low}` : `${low} to ${high}`
  return found === undefined
    ? `${name} is missing: it had ${rowsOf(wanted)}.`
    : `${name} has ${rowsOf(String(found))} instead of ${wanted}.`
}

/**
 * The first difference between what was dumped and what a load of the dump has, as a sentence; null if there is none.
 * Tables that exist at only one of the two moments may be there or not; rows must be between those of both.
 */
export const differenceOf = ({ before, after }: Counted, found: Rows): string | null => {
  for (const [name, first] of before) {
    const last = after.get(name)
    if (last === undefined) continue
    const range = [Math.min(first, last), Math.max(first, last)] as const
    const there = found.get(name)
    if (there === undefined || there < range[0] || there > range[1]) return sentence(name, there, range)
  }
  for (const name of found.keys())
    if (!before.has(name) && !after.has(name)) return `${name} is in the backup, but was not in the database.`
  return null
}
