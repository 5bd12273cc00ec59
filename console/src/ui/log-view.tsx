/** Lines of a log: a virtual list, with search, level, instance, pause, wrap and download. */
import { Button, SegmentedControl, Select, Switch } from '@mantine/core'
import { useVirtualizer } from '@tanstack/react-virtual'
import {
  memo,
  type ReactNode,
  useCallback,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
  useSyncExternalStore,
} from 'react'
import type { Line } from '../api/log-line.ts'
import { spansOf, textOf } from './ansi.ts'
import { FilterField } from './filter-field.tsx'
import type { Level, Lines } from './log-lines.ts'
import { type LogStore, useLogVersion } from './log-store.ts'
import { inSteps } from './virtual-rows.tsx'

/**
 * Height of a line that is not wrapped, in pixels: 1.25rem in the styles. If it is correct, no line is laid out twice.
 */
const readLineHeight = (): number => 1.25 * Number.parseFloat(getComputedStyle(document.documentElement).fontSize)

const clock = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
  hourCycle: 'h23',
})

const Marked = ({ text, search }: { text: string; search: string }): ReactNode => {
  if (search === '') return text
  const parts: ReactNode[] = []
  const lower = text.toLowerCase()
  let from = 0
  for (let at = lower.indexOf(search); at !== -1 && parts.length < 200; at = lower.indexOf(search, from)) {
    parts.push(text.slice(from, at), <mark key={at}>{text.slice(at, at + search.length)}</mark>)
    from = at + search.length
  }
  return [...parts, text.slice(from)]
}

/** Lines that are turned into text before the page gets its turn. */
const portion = 5000

const download = async (lines: Lines, name: string): Promise<void> => {
  const parts: string[] = []
  // The shown lines may change meanwhile.
  const all = Array.from({ length: lines.count }, (_, index) => lines.lineAt(index))
  for (let index = 0; index < all.length; index += portion) {
    const part = all.slice(index, index + portion)
    parts.push(
      part.map(({ at, from, text: each }) => `${new Date(at).toISOString()} ${from} ${textOf(each)}\n`).join(''),
    )
    await new Promise((resolve) => setTimeout(resolve))
  }
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob(parts, { type: 'text/plain' }))
  link.download = `${name}.log`
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}

/** Colors of instances; they repeat if there are more. */
const tones = 8

interface LineProps {
  line: Line
  search: string
  /** Tone of the instance; null if instances are not distinguished. */
  tone: number | null
  onLine: ((line: Line) => void) | undefined
}

const LineContent = memo(({ line, search, tone, onLine }: LineProps) => (
  <>
    <span className="at" title={new Date(line.at).toISOString()}>
      {onLine === undefined ? (
        clock.format(line.at)
      ) : (
        <button type="button" className="plain" tabIndex={-1} title="Link to this line" onClick={() => onLine(line)}>
          {clock.format(line.at)}
        </button>
      )}
    </span>
    {line.deployment !== undefined ? (
      <span className="from of-deployment">
        <span className="word">Deployment </span>#{line.deployment}
      </span>
    ) : tone === null ? null : (
      <span className={`from from-${tone % tones}`} title={line.from}>
        {line.from}
      </span>
    )}
    <span className="text">
      {spansOf(line.text).map(({ text, className }, part) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a line never change
        <span key={part} className={className}>
          <Marked text={text} search={search} />
        </span>
      ))}
    </span>
  </>
))

interface ListProps {
  lines: Lines
  /** A new number after each change of the lines. */
  version: number
  isWrapped: boolean
  isFollowing: boolean
  onFollow(value: boolean): void
  search: string
  markedLine: string | undefined
  onLine: ((line: Line) => void) | undefined
  names: readonly string[] | null
}

export const indexOf = (lines: Lines, id: string): number => {
  for (let index = 0; index < lines.count; index += 1) if (lines.lineAt(index).id === id) return index
  return -1
}

/** Scrolls to a line once it exists. */
const useMarked = (lines: Lines, version: number, id: string | undefined, go: (index: number) => void): void => {
  const [done, setDone] = useState<string | undefined>(undefined)
  useEffect(() => {
    if (id === undefined || id === done || version < 0) return
    const index = indexOf(lines, id)
    if (index === -1) return
    setDone(id)
    go(index)
  }, [lines, version, id, done, go])
}

const LineList = (props: ListProps) => {
  const { lines, version, isWrapped, isFollowing, onFollow, search, markedLine, onLine, names } = props
  const box = useRef<HTMLDivElement>(null)
  const [lineHeight] = useState(readLineHeight)
  const estimateSize = useCallback(() => lineHeight, [lineHeight])
  // By position: a line that replaces another one reuses its element.
  const list = useVirtualizer({
    count: lines.count,
    getScrollElement: () => box.current,
    estimateSize,
    overscan: 8,
    rangeExtractor: inSteps,
    paddingStart: 6,
    paddingEnd: 6,
  })
  const height = list.getTotalSize()
  // biome-ignore lint/correctness/useExhaustiveDependencies: the end moves with the lines, and with their measured heights
  useLayoutEffect(() => {
    if (isFollowing && box.current !== null) box.current.scrollTop = box.current.scrollHeight
  }, [isFollowing, version, isWrapped, height])
  useMarked(lines, version, markedLine, (index) => {
    onFollow(false)
    list.scrollToIndex(index, { align: 'center' })
  })
  const toneOf = new Map(names?.map((name, index) => [name, index]))
  const lastTop = useRef(0)
  // If only the end moves away, the reader has not scrolled up.
  const onScroll = (): void => {
    const { scrollTop, scrollHeight, clientHeight } = box.current!
    const isUp = scrollTop < lastTop.current
    lastTop.current = scrollTop
    if (isFollowing && isUp && scrollHeight - scrollTop - clientHeight > 400) onFollow(false)
  }
  return (
    <div
      className="log"
      ref={box}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling element must be reachable by keyboard
      tabIndex={0}
      role="log"
      aria-live="off"
      aria-label="Lines of the log"
      onScroll={onScroll}
      onWheel={(event) => event.deltaY < 0 && onFollow(false)}
    >
      <div style={{ height, position: 'relative' }}>
        {list
          .getVirtualItems()
          .filter(({ index }) => index < lines.count)
          .map(({ index, start }) => {
            const line = lines.lineAt(index)
            const tone = `${line.deployment === undefined ? '' : ' deployment'}${line.isError ? ' error' : ''}${line.id === markedLine ? ' marked' : ''}`
            return (
              <div
                key={index}
                data-index={index}
                ref={isWrapped ? list.measureElement : undefined}
                className={`log-line${isWrapped ? ' wrapped' : ''}${tone}`}
                style={{ transform: `translateY(${start}px)` }}
              >
                <LineContent
                  line={line}
                  search={search}
                  tone={names === null ? null : (toneOf.get(line.from) ?? 0)}
                  onLine={onLine}
                />
              </div>
            )
          })}
      </div>
    </div>
  )
}

const counted = (count: number): string => `${count} ${count === 1 ? 'line' : 'lines'}`

/**
 * The part that changes with the lines is separate, so that the fields beside it are not rendered many times a second.
 */
const Count = ({ log }: { log: LogStore }) => {
  useLogVersion(log)
  const lines = log.lines()
  return (
    <span className="dim small" aria-live="off">
      {lines.count === lines.total ? counted(lines.total) : `${lines.count} of ${counted(lines.total)}`}
      {lines.dropped > 0 ? `, ${lines.dropped} older ones left out` : ''}
    </span>
  )
}

const Pause = ({ log, onFollow }: Pick<ToolsProps, 'log' | 'onFollow'>) => {
  useLogVersion(log)
  // For a reader who stays further up it would be paused again with the next lines.
  const goOn = (): void => {
    log.release()
    onFollow(true)
  }
  return (
    <Button size="compact-xs" variant="default" onClick={() => (log.isHeld ? goOn() : log.hold())}>
      {log.isHeld ? `Resume${log.late > 0 ? ` (${log.late} new)` : ''}` : 'Pause'}
    </Button>
  )
}

const useNames = (log: LogStore): readonly string[] => useSyncExternalStore(log.subscribe, () => log.names)

export interface Filters {
  search: string
  level: Level
  from: string | null
}

interface ToolsProps extends Filters {
  log: LogStore
  set(filters: Partial<Filters>): void
  isWrapped: boolean
  onWrap(value: boolean): void
  isFollowing: boolean
  onFollow(value: boolean): void
  tools: ReactNode
  name: string
}

const Tools = (props: ToolsProps) => {
  const { log, search, level, from, set, isWrapped, onWrap, isFollowing, onFollow, tools, name } = props
  const names = useNames(log)
  return (
    <div className="log-tools">
      <FilterField
        size="xs"
        label="Search the log"
        placeholder="Search"
        value={search}
        onChange={(text) => set({ search: text })}
        style={{ flex: '1 1 180px', maxWidth: 320 }}
      />
      <SegmentedControl
        size="xs"
        aria-label="Level"
        value={level}
        onChange={(value) => set({ level: value as Level })}
        data={[
          { value: 'all', label: 'All' },
          { value: 'error', label: 'Errors' },
        ]}
      />
      {names.length < 2 ? null : (
        <Select
          size="xs"
          aria-label="From"
          placeholder="From all"
          clearable
          searchable
          limit={100}
          data={[...names]}
          value={from}
          onChange={(value) => set({ from: value })}
          w={170}
        />
      )}
      {tools}
      <Switch size="xs" label="Wrap" checked={isWrapped} onChange={(event) => onWrap(event.currentTarget.checked)} />
      <Switch
        size="xs"
        label="Follow"
        checked={isFollowing}
        onChange={(event) => onFollow(event.currentTarget.checked)}
      />
      <Count log={log} />
      <span className="push row" style={{ gap: 6 }}>
        <Pause {...{ log, onFollow }} />
        <Button size="compact-xs" variant="default" onClick={() => void download(log.lines(), name)}>
          Download
        </Button>
      </span>
    </div>
  )
}

interface Props extends Filters {
  log: LogStore
  set(filters: Partial<Filters>): void
  /** Only lines about these services. */
  about?: readonly string[]
  name: string
  /** Shown while there are no lines. */
  empty: ReactNode
  markedLine?: string | undefined
  onLine?: ((line: Line) => void) | undefined
  tools?: ReactNode
}

type BodyProps = Pick<Props, 'log' | 'search' | 'empty' | 'markedLine' | 'onLine'> & {
  isWrapped: boolean
  isFollowing: boolean
  onFollow(value: boolean): void
}

const Body = ({ log, search, empty, markedLine, onLine, isWrapped, isFollowing, onFollow }: BodyProps) => {
  const version = useLogVersion(log)
  const names = useNames(log)
  const lines = log.lines()
  if (lines.count === 0) return <div className="nothing">{lines.total === 0 ? empty : 'No line matches.'}</div>
  return (
    <LineList
      {...{ lines, version, isWrapped, isFollowing, onFollow, search, markedLine, onLine }}
      names={names.length < 2 ? null : names}
    />
  )
}

export const LogView = ({ log, search, level, from, set, about, name, empty, tools, markedLine, onLine }: Props) => {
  const [isWrapped, setWrapped] = useState(true)
  const [isFollowing, setFollowing] = useState(true)
  const text = search.toLowerCase()
  const places = about?.join(' ')
  useEffect(() => {
    log.filter({ text, level, from, about: places === undefined ? null : places.split(' ') })
  }, [log, text, level, from, places])
  useEffect(() => log.pin(!isFollowing), [log, isFollowing])
  return (
    <section className="card" aria-label="Log">
      <Tools
        {...{ log, search, level, from, set, isWrapped, isFollowing, tools, name }}
        onWrap={setWrapped}
        onFollow={setFollowing}
      />
      <div className="log-box">
        <Body {...{ log, empty, markedLine, onLine, isWrapped, isFollowing }} search={text} onFollow={setFollowing} />
      </div>
    </section>
  )
}
