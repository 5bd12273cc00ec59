/** A list as a table, with its empty state. */
import type { ReactNode } from 'react'
import { Answer, type Asked } from './notices.tsx'
import { Scroll } from './scroll.tsx'

export interface Column<Row> {
  title: string
  /** `optional`: left out on a phone. */
  look?: 'tight' | 'optional' | 'tight optional'
  show(row: Row): ReactNode
}

interface TableProps {
  label: string
  heads: Readonly<Record<string, string>>
  isCard?: boolean
  children: ReactNode
}

/** A table whose rows are written by hand. `heads`: titles and their classes; `hidden` shows a title to readers of screens only. */
export const ListTable = ({ label, heads, isCard = false, children }: TableProps) => (
  <Scroll label={label} isCard={isCard}>
    <table className="list">
      <thead>
        <tr>
          {Object.entries(heads).map(([title, classes]) => (
            <th key={title} className={classes.replace(' hidden', '')}>
              {classes.endsWith(' hidden') ? <span className="hidden-text">{title}</span> : title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  </Scroll>
)

/** `label` names the table for screen readers. */
export function Rows<Row extends { id: string }>({
  of,
  columns,
  empty,
  label = 'List',
}: {
  of: Asked<Row[]>
  columns: readonly Column<Row>[]
  empty: ReactNode
  label?: string
}) {
  return (
    <Answer of={of}>
      {(rows) =>
        rows.length === 0 ? (
          empty
        ) : (
          <Scroll label={label} isCard>
            <table className="list" aria-label={label}>
              <thead>
                <tr>
                  {columns.map((column) => (
                    <th key={column.title} className={column.look}>
                      {column.title === 'Actions' ? <span className="hidden-text">Actions</span> : column.title}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {rows.map((row) => (
                  <tr key={row.id}>
                    {columns.map((column) => (
                      <td key={column.title} className={`${column.look ?? ''} wrap`}>
                        {column.show(row)}
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )
      }
    </Answer>
  )
}
