/**
 * The log of a page: lines that arrive are shown together, a few times a second, however fast they come. It can be
 * paused: then the shown lines do not change, and new ones are counted. A reader further up pauses it as soon as the
 * lines in view would be pushed out.
 */
import { useEffect, useState, useSyncExternalStore } from 'react'
import type { Line } from '../api/log-line.ts'
import { always, createBeside } from './log-beside.ts'
import { createLineList, everything, type Filter, type LineList, type Lines } from './log-lines.ts'
import type { Span } from './log-merge.ts'

const gatherMs = 90
/** Duration of one search through the lines; in between, the page handles events. */
const lookMs = 6
const mostWaiting = 100_000

export interface LogStore {
  add(lines: readonly Line[]): void
  /** The next lines replace the current ones. */
  restart(): void
  /** After a lost connection: known lines may be sent again. */
  resume(): void
  filter(wanted: Filter): void
  hold(): void
  release(): void
  /** While the reader is further up: no shown line is pushed out. It resumes after that. */
  pin(isPinned: boolean): void
  /** Pauses, and adds those of these lines that are missing before the others: returns how many. */
  prepend(lines: readonly Line[]): number
  /** Pauses with these lines instead, which are those of that time. */
  show(lines: readonly Line[], span: Span): void
  /** All current lines of deployments: those within the shown time are merged into the others. */
  place(lines: readonly Line[]): void
  /** The time of the shown lines, except those of deployments; null while there are none. */
  loaded(): Span | null
  subscribe(listener: () => void): () => void
  /** A new number after each change. */
  version(): number
  lines(): Lines
  oldest(): Line | undefined
  readonly isHeld: boolean
  /** Lines that arrived since it was paused. */
  readonly late: number
  /** Names of instances, by when they first wrote. */
  readonly names: readonly string[]
  close(): void
}

const mostNames = 500

export const createLogStore = (): LogStore => {
  const listeners = new Set<() => void>()
  let live = createLineList()
  let held: LineList | null = null
  const beside = createBeside(() => held ?? live)
  let wanted = everything
  let waiting: Line[] = []
  let known: Set<string> | null = null
  let names: string[] = []
  let isFresh = false
  let isPinned = false
  /** It was paused automatically, for a reader further up. */
  let isKept = false
  let late = 0
  let version = 0
  let gathering: ReturnType<typeof setTimeout> | undefined
  let looking: ReturnType<typeof setTimeout> | undefined

  const told = (): void => {
    version += 1
    for (const listener of listeners) listener()
  }
  const look = (): void => {
    looking = undefined
    const isDone = [beside, live, ...(held === null ? [] : [held])].every((each) => each.look(lookMs))
    beside.changed()
    told()
    if (!isDone) looking = setTimeout(look)
  }
  const lookSoon = (): void => {
    beside.changed()
    if (looking === undefined) look()
  }
  const learn = (lines: readonly Line[]): void => {
    const last = new Set(names)
    for (const { from } of lines) if (last.size < mostNames) last.add(from)
    if (last.size > names.length) names = [...last]
  }
  const hold = (list: LineList, span: Span): void => {
    held = list
    isKept = false
    beside.setTime(span)
    lookSoon()
  }
  const release = (): void => {
    held = null
    late = 0
    beside.setTime(always)
    lookSoon()
  }
  const flush = (): void => {
    gathering = undefined
    const added = waiting
    waiting = []
    if (isFresh) {
      isFresh = false
      live = createLineList(undefined, wanted)
    }
    learn(added)
    if (held === null && isPinned && live.isFullWith(added)) {
      beside.setTime(beside.upToNow())
      held = live.copy()
      isKept = true
    }
    if (held !== null) late += added.length
    live.push(added)
    lookSoon()
  }
  return {
    add(lines) {
      const skipped = known
      const fresh = skipped === null ? lines : lines.filter(({ id }) => !skipped.has(id))
      for (const line of fresh) waiting.push(line)
      if (waiting.length > mostWaiting) waiting = waiting.slice(-mostWaiting / 2)
      if (waiting.length > 0 || isFresh) gathering ??= setTimeout(flush, gatherMs)
    },
    restart() {
      waiting = []
      known = null
      isFresh = true
    },
    resume() {
      known = live.ids()
      for (const { id } of waiting) known.add(id)
    },
    filter(next) {
      wanted = next
      live.filter(next)
      held?.filter(next)
      beside.filter(next)
      lookSoon()
    },
    hold() {
      late = 0
      hold(live.copy(), beside.upToNow())
    },
    release,
    pin(value) {
      isPinned = value
      if (!value && held !== null && isKept) release()
    },
    prepend(lines) {
      const there = (held ?? live).ids()
      const older = lines.filter(({ id }) => !there.has(id))
      if (older.length === 0) return 0
      learn(older)
      hold((held ?? live).copy(older), { ...beside.upToNow(), fromMs: always.fromMs })
      return older.length
    },
    show(lines, span) {
      learn(lines)
      const list = createLineList(undefined, wanted)
      list.push(lines)
      late = 0
      hold(list, span)
    },
    place(lines) {
      beside.place(lines)
      lookSoon()
    },
    loaded: beside.loaded,
    subscribe(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    version: () => version,
    lines: () => beside.lines,
    oldest: () => (held ?? live).oldest(),
    get isHeld() {
      return held !== null
    },
    get late() {
      return late + (held === null ? 0 : beside.late())
    },
    get names() {
      return names
    },
    close() {
      clearTimeout(gathering)
      clearTimeout(looking)
      gathering = undefined
      looking = undefined
    },
  }
}

/** A log that lives as long as the page. */
export const useLog = (): LogStore => {
  const [store] = useState(createLogStore)
  useEffect(() => () => store.close(), [store])
  return store
}

export const useLogVersion = (store: LogStore): number => useSyncExternalStore(store.subscribe, store.version)
