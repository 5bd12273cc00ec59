/**
 * The rows of a long table that scrolls with the page: only those near the window are rendered. Short tables are
 * complete.
 */
import { defaultRangeExtractor, type Range, useWindowVirtualizer } from '@tanstack/react-virtual'
import { Fragment, type ReactNode, useLayoutEffect, useRef, useState } from 'react'

/** Props for a row's `tr`, so that its height can be measured. */
export interface RowPlace {
  ref?: (element: Element | null) => void
  'data-index'?: number
}

interface Props<Row> {
  rows: readonly Row[]
  keyOf(row: Row): string
  /** Height of a usual row, in pixels. */
  height: number
  columns: number
  children(row: Row, place: RowPlace): ReactNode
}

/** A table with at most this many rows is complete, so that the browser's search finds everything in it. */
const few = 100
const whole: RowPlace = {}

const step = 24

/** Rows are added and removed `step` at a time, so that most frames of a scroll change nothing. */
export const inSteps = (range: Range): number[] => {
  const startIndex = range.startIndex - (range.startIndex % step)
  const endIndex = Math.min(range.count, range.endIndex - (range.endIndex % step) + step) - 1
  return defaultRangeExtractor({ ...range, startIndex, endIndex })
}

const Gap = ({ height, columns }: { height: number; columns: number }) =>
  height <= 0 ? null : (
    <tr>
      <td colSpan={columns} style={{ height, padding: 0, border: 0 }} />
    </tr>
  )

function ManyRows<Row>({ rows, keyOf, height, columns, children }: Props<Row>) {
  const body = useRef<HTMLTableSectionElement>(null)
  const [top, setTop] = useState(0)
  // biome-ignore lint/correctness/useExhaustiveDependencies: the content above may change with the rows
  useLayoutEffect(() => {
    setTop(Math.round(body.current!.getBoundingClientRect().top + scrollY))
  }, [rows.length])
  const list = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => height,
    overscan: 8,
    rangeExtractor: inSteps,
    scrollMargin: top,
  })
  // The same object for the same position, so that an unchanged row is not rendered again.
  const places = useRef<RowPlace[]>([])
  const placeAt = (index: number): RowPlace => {
    places.current[index] ??= { ref: list.measureElement, 'data-index': index }
    return places.current[index]
  }
  const items = list.getVirtualItems().filter(({ index }) => index < rows.length)
  const before = (items[0]?.start ?? top) - top
  const after = list.getTotalSize() - ((items.at(-1)?.end ?? top) - top)
  return (
    <tbody ref={body}>
      <Gap height={before} columns={columns} />
      {items.map(({ index }) => {
        const row = rows[index]!
        return <Fragment key={keyOf(row)}>{children(row, placeAt(index))}</Fragment>
      })}
      <Gap height={after} columns={columns} />
    </tbody>
  )
}

/** A `tbody`. */
export function VirtualRows<Row>(props: Props<Row>) {
  const { rows, keyOf, children } = props
  if (rows.length > few) return <ManyRows {...props} />
  return (
    <tbody>
      {rows.map((row) => (
        <Fragment key={keyOf(row)}>{children(row, whole)}</Fragment>
      ))}
    </tbody>
  )
}
