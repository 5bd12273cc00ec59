/** The rows of a long table that scrolls with the page: only those near the window are there. Short ones are whole. */
import { defaultRangeExtractor, type Range, useWindowVirtualizer } from '@tanstack/react-virtual'
import { Fragment, type ReactNode, useLayoutEffect, useRef, useState } from 'react'

/** What a row's `tr` takes, so that its height is known. */
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

/** A table of this many is whole: the search of the browser finds everything in it. */
const few = 100
const whole: RowPlace = {}

const step = 24

/** Rows come and go `step` at a time: in most frames of a scroll what is there then stays as it is. */
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
  // biome-ignore lint/correctness/useExhaustiveDependencies: what stands above may change with the rows
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
  // The same for the same place, so that a row that did not change is not made again.
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
