/**
 * What a figure is and how it is measured: floor and ours in turn (A B A B), the median of the rounds. Promises that
 * no number is made up: a side that cannot run leaves its reason. Refuses to know what is measured.
 */
import { median } from './measure.ts'

/** Named values of one round; a row reads its value by `key`. */
export type Sample = Record<string, number>

/** One side of a figure, ready to be measured as often as asked. */
export interface Side {
  measure(round: number): Promise<Sample>
  close?(): Promise<void>
}

/**
 * `ratio`: ours / floor at most; `ratioAtLeast`: at least, where more is better. `added`: ours - floor at most; `atMost`
 * and `atLeast`: ours alone; in the row's unit.
 */
export type Goal = { kind: 'ratio' | 'ratioAtLeast' | 'added' | 'atMost' | 'atLeast'; value: number } | null

export interface RowSpec {
  id: string
  what: string
  unit: string
  goal: Goal
  key: string
  /** Key of the floor's value, where it is another one than ours; null for rows that have no floor. */
  floorKey?: string | null
  /** Our side has measured the floor too, both by turns. */
  byTurns?: boolean
  /** `max` for what must never happen: a median would hide it. Default `median`. */
  over?: 'median' | 'max'
}

export interface Figure<Context> {
  id: string
  rows: RowSpec[]
  /** Rounds thrown away before the counted ones. Default 1. */
  warmups?: number
  floor: ((context: Context) => Promise<Side>) | null
  ours: ((context: Context) => Promise<Side>) | null
}

export interface Row {
  id: string
  what: string
  floor: number | null
  ours: number | null
  ratio: number | null
  goal: string
  unit: string
  /** null when the side that decides it could not run. */
  met: boolean | null
  /** Why a side is missing. */
  reasons?: string[]
}

type Opened = { side: Side } | { reason: string } | null

/** The one line of an error that says why. */
const reasonOf = (error: unknown): string => {
  const { message, code, cause } = error as { message?: string; code?: string; cause?: unknown }
  const lines = (message || code || String(error)).split('\n').filter((line) => line.trim() !== '')
  const telling =
    lines.length > 1 ? lines.find((line) => /error/i.test(line) && !/^\s+(at|throw)\b/.test(line)) : undefined
  const text = telling === undefined ? (lines[0] ?? '') : `${lines[0]} ${telling.trim()}`
  return (cause instanceof Error && cause.message !== '' ? `${text} (${cause.message})` : text).slice(0, 400)
}

const open = async <Context>(make: Figure<Context>['floor'], context: Context): Promise<Opened> => {
  if (make === null) return null
  try {
    return { side: await make(context) }
  } catch (error) {
    return { reason: reasonOf(error) }
  }
}

/** Measures once; a side that fails is out for the rest of the figure. */
const take = async (opened: Opened, round: number): Promise<{ opened: Opened; sample: Sample | null }> => {
  if (opened === null || 'reason' in opened) return { opened, sample: null }
  try {
    return { opened, sample: await opened.side.measure(round) }
  } catch (error) {
    await opened.side.close?.().catch(() => {})
    return { opened: { reason: reasonOf(error) }, sample: null }
  }
}

const valueOver = (samples: readonly Sample[], key: string, over: RowSpec['over']): number | null => {
  const values = samples.map((sample) => sample[key]).filter((value) => value !== undefined)
  if (values.length === 0) return null
  return over === 'max' ? Math.max(...values) : median(values)
}

const goalText = (goal: Goal): string => {
  if (goal === null) return 'stated only'
  if (goal.kind === 'ratio') return `<= ${goal.value}x`
  if (goal.kind === 'ratioAtLeast') return `>= ${goal.value}x`
  if (goal.kind === 'added') return `<= +${goal.value}`
  return `${goal.kind === 'atMost' ? '<=' : '>='} ${goal.value}`
}

const isMet = (goal: Goal, ours: number | null, floor: number | null, ratio: number | null): boolean | null => {
  if (goal === null) return null
  if (goal.kind === 'ratio') return ratio === null ? null : ratio <= goal.value
  if (goal.kind === 'ratioAtLeast') return ratio === null ? null : ratio >= goal.value
  if (ours === null) return null
  if (goal.kind === 'added') return floor === null ? null : ours - floor <= goal.value
  return goal.kind === 'atMost' ? ours <= goal.value : ours >= goal.value
}

const shorten = (value: number | null): number | null => (value === null ? null : Number(value.toPrecision(4)))

const toRow = (spec: RowSpec, floors: Sample[], ours: Sample[], reasons: string[]): Row => {
  const floorKey = spec.floorKey === undefined ? spec.key : spec.floorKey
  const floor = floorKey === null ? null : valueOver(spec.byTurns === true ? ours : floors, floorKey, spec.over)
  const own = valueOver(ours, spec.key, spec.over)
  const ratio = floor === null || own === null || floor === 0 ? null : own / floor
  return {
    id: spec.id,
    what: spec.what,
    floor: shorten(floor),
    ours: shorten(own),
    ratio: shorten(ratio),
    goal: goalText(spec.goal),
    unit: spec.unit,
    met: isMet(spec.goal, own, floor, ratio),
    ...(reasons.length > 0 ? { reasons } : {}),
  }
}

const closeSide = async (opened: Opened): Promise<void> => {
  if (opened !== null && 'side' in opened) await opened.side.close?.().catch(() => {})
}

const reasonsOf = (sides: Record<string, Opened>): string[] =>
  Object.entries(sides).flatMap(([name, opened]) =>
    opened !== null && 'reason' in opened ? [`${name}: ${opened.reason}`] : [],
  )

/** Runs one figure, floor and ours in turn, and gives its rows. Rejects only when `signal` aborts, between rounds. */
export const measureFigure = async <Context>(
  figure: Figure<Context>,
  context: Context,
  rounds: number,
  signal: AbortSignal,
): Promise<Row[]> => {
  let floor = await open(figure.floor, context)
  let ours = await open(figure.ours, context)
  const floors: Sample[] = []
  const own: Sample[] = []
  const warmups = figure.warmups ?? 1
  try {
    for (let round = 0; round < warmups + rounds; round++) {
      signal.throwIfAborted()
      const a = await take(floor, round)
      const b = await take(ours, round)
      floor = a.opened
      ours = b.opened
      if (round < warmups) continue
      if (a.sample !== null) floors.push(a.sample)
      if (b.sample !== null) own.push(b.sample)
    }
  } finally {
    await closeSide(floor)
    await closeSide(ours)
  }
  const reasons = reasonsOf({ floor, ours })
  return figure.rows.map((spec) => toRow(spec, floors, own, reasons))
}
