/**
 * Lines of a log: a virtual list, with search, levels, pause, wrap and download. Keeps the newest lines only; what is
 * older is in the download of the API. Lines that come together are shown together.
 */
import { Button, SegmentedControl, Switch, TextInput } from '@mantine/core'
import { useVirtualizer } from '@tanstack/react-virtual'
import { type ReactNode, useCallback, useEffect, useMemo, useRef, useState } from 'react'
import { spansOf, textOf } from './ansi.ts'
import { Icon } from './icons.tsx'

export interface Line {
  id: string
  /** Milliseconds since 1970. */
  at: number
  text: string
  isError: boolean
  /** Which instance or service wrote it. */
  from: string
}

const most = 50_000
const lineHeight = 19.4

/** Collects lines and hands them on once a frame, however fast they come. */
export const useLines = (): {
  lines: readonly Line[]
  add(lines: readonly Line[]): void
  clear(): void
  dropped: number
} => {
  const [state, setState] = useState<{ lines: readonly Line[]; dropped: number }>({ lines: [], dropped: 0 })
  const waiting = useRef<Line[]>([])
  const frame = useRef(0)
  const flush = useCallback((): void => {
    frame.current = 0
    const added = waiting.current
    waiting.current = []
    setState(({ lines, dropped }) => {
      const all = [...lines, ...added]
      const over = Math.max(0, all.length - most)
      return { lines: over === 0 ? all : all.slice(over), dropped: dropped + over }
    })
  }, [])
  useEffect(() => () => clearTimeout(frame.current), [])
  const add = useCallback(
    (lines: readonly Line[]) => {
      for (const line of lines) waiting.current.push(line)
      if (frame.current === 0) frame.current = setTimeout(flush, 60) as unknown as number
    },
    [flush],
  )
  const clear = useCallback(() => {
    waiting.current = []
    setState({ lines: [], dropped: 0 })
  }, [])
  return { ...state, add, clear }
}

const clock = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
  hourCycle: 'h23',
})

/** The parts of a text that were searched for are marked. */
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

const download = (lines: readonly Line[], name: string): void => {
  const text = lines
    .map(({ at, from, text: each }) => `${new Date(at).toISOString()} ${from} ${textOf(each)}\n`)
    .join('')
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([text], { type: 'text/plain' }))
  link.download = `${name}.log`
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}

interface Props {
  lines: readonly Line[]
  dropped?: number
  name: string
  /** In place of lines while there are none. */
  empty: ReactNode
  search: string
  onSearch(text: string): void
  markedLine?: string | undefined
  onLine?(id: string): void
  tools?: ReactNode
  showsFrom: boolean
}

type Level = 'all' | 'error'

const useShown = (lines: readonly Line[], search: string, level: Level): readonly Line[] =>
  useMemo(() => {
    const wanted = search.toLowerCase()
    if (wanted === '' && level === 'all') return lines
    return lines.filter(
      ({ text, isError }) =>
        (level === 'all' || isError) && (wanted === '' || textOf(text).toLowerCase().includes(wanted)),
    )
  }, [lines, search, level])

interface ListProps {
  shown: readonly Line[]
  isWrapped: boolean
  isFollowing: boolean
  onFollow(value: boolean): void
  search: string
  markedLine: string | undefined
  onLine: ((id: string) => void) | undefined
  showsFrom: boolean
}

const LineList = ({ shown, isWrapped, isFollowing, onFollow, search, markedLine, onLine, showsFrom }: ListProps) => {
  const box = useRef<HTMLDivElement>(null)
  const list = useVirtualizer({
    count: shown.length,
    getScrollElement: () => box.current,
    estimateSize: () => lineHeight,
    getItemKey: (index) => shown[index]!.id,
    overscan: 20,
  })
  const { length } = shown
  useEffect(() => {
    if (isFollowing && length > 0) list.scrollToIndex(length - 1, { align: 'end' })
  }, [isFollowing, length, list])
  const marked = markedLine === undefined ? -1 : shown.findIndex(({ id }) => id === markedLine)
  const wasShown = useRef(false)
  useEffect(() => {
    if (marked === -1 || wasShown.current) return
    wasShown.current = true
    onFollow(false)
    list.scrollToIndex(marked, { align: 'center' })
  }, [marked, list, onFollow])
  const onScroll = (): void => {
    const { scrollTop, scrollHeight, clientHeight } = box.current!
    if (isFollowing && scrollHeight - scrollTop - clientHeight > 400) onFollow(false)
  }
  return (
    <div
      className="log"
      ref={box}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be scrolled by keyboard
      tabIndex={0}
      role="log"
      aria-live="off"
      aria-label="Lines of the log"
      onScroll={onScroll}
      onWheel={(event) => event.deltaY < 0 && onFollow(false)}
    >
      <div style={{ height: list.getTotalSize(), position: 'relative' }}>
        {list.getVirtualItems().map(({ index, key, start }) => {
          const line = shown[index]!
          const tone = `${line.isError ? ' error' : ''}${line.id === markedLine ? ' marked' : ''}`
          return (
            <div
              key={key}
              data-index={index}
              ref={list.measureElement}
              className={`log-line${isWrapped ? ' wrapped' : ''}${tone}`}
              style={{ transform: `translateY(${start}px)` }}
            >
              <span className="at" title={new Date(line.at).toISOString()}>
                {onLine === undefined ? (
                  clock.format(line.at)
                ) : (
                  <button
                    type="button"
                    className="plain"
                    style={{ padding: 0 }}
                    tabIndex={-1}
                    title="Link to this line"
                    onClick={() => onLine(line.id)}
                  >
                    {clock.format(line.at)}
                  </button>
                )}
              </span>
              {showsFrom ? (
                <span className="from" title={line.from}>
                  {line.from}
                </span>
              ) : null}
              <span className="text">
                {spansOf(line.text).map(({ text, className }, part) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a line never change
                  <span key={part} className={className}>
                    <Marked text={text} search={search.toLowerCase()} />
                  </span>
                ))}
              </span>
            </div>
          )
        })}
      </div>
    </div>
  )
}

export const LogView = ({
  lines,
  dropped = 0,
  name,
  empty,
  search,
  onSearch,
  markedLine,
  onLine,
  tools,
  showsFrom,
}: Props) => {
  const [level, setLevel] = useState<Level>('all')
  const [isWrapped, setWrapped] = useState(true)
  const [isFollowing, setFollowing] = useState(true)
  const [held, setHeld] = useState<readonly Line[] | null>(null)
  const shown = useShown(held ?? lines, search, level)
  const late = held === null ? 0 : lines.length - held.length
  return (
    <section className="card" aria-label="Log">
      <div className="log-tools">
        <TextInput
          size="xs"
          aria-label="Search the log"
          placeholder="Search"
          leftSection={<Icon name="search" size={13} />}
          value={search}
          onChange={(event) => onSearch(event.currentTarget.value)}
          style={{ flex: '1 1 180px', maxWidth: 320 }}
        />
        <SegmentedControl
          size="xs"
          aria-label="Level"
          value={level}
          onChange={(value) => setLevel(value as Level)}
          data={[
            { value: 'all', label: 'All' },
            { value: 'error', label: 'Errors' },
          ]}
        />
        {tools}
        <Switch
          size="xs"
          label="Wrap"
          checked={isWrapped}
          onChange={(event) => setWrapped(event.currentTarget.checked)}
        />
        <Switch
          size="xs"
          label="Follow"
          checked={isFollowing}
          onChange={(event) => setFollowing(event.currentTarget.checked)}
        />
        <span className="dim small" aria-live="off">
          {shown.length === lines.length
            ? `${lines.length} ${lines.length === 1 ? 'line' : 'lines'}`
            : `${shown.length} of ${lines.length} lines`}
          {dropped > 0 ? `, ${dropped} older ones left out` : ''}
        </span>
        <span className="push row" style={{ gap: 6 }}>
          <Button size="compact-xs" variant="default" onClick={() => setHeld(held === null ? lines : null)}>
            {held === null ? 'Pause' : `Go on${late > 0 ? ` (${late} new)` : ''}`}
          </Button>
          <Button size="compact-xs" variant="default" onClick={() => download(shown, name)}>
            Download
          </Button>
        </span>
      </div>
      <div className="log-box">
        {shown.length === 0 ? (
          <div className="nothing">{lines.length === 0 ? empty : 'No line fits.'}</div>
        ) : (
          <LineList
            {...{ shown, isWrapped, isFollowing, search, showsFrom, markedLine, onLine }}
            onFollow={setFollowing}
          />
        )}
      </div>
    </section>
  )
}
