/** Lists of an organization: how they are read and shown. */
import { type UseQueryResult, useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { Answer } from '../../ui/notices.tsx'

export interface Props {
  organizationId: string
}

export interface Column<Row> {
  title: string
  isTight?: boolean
  isOptional?: boolean
  show(row: Row): ReactNode
}

const classOf = ({
  isTight,
  isOptional,
}: {
  isTight?: boolean | undefined
  isOptional?: boolean | undefined
}): string => `${isTight === true ? 'tight' : ''} ${isOptional === true ? 'optional' : ''}`

export function Rows<Row extends { id: string }>({
  of,
  columns,
  empty,
}: {
  of: UseQueryResult<Row[]>
  columns: Column<Row>[]
  empty: ReactNode
}) {
  return (
    <Answer of={of}>
      {(rows) =>
        rows.length === 0 ? (
          empty
        ) : (
          <div className="card scroll">
            <table className="list">
              <thead>
                <tr>
                  {columns.map((column) => (
                    <th key={column.title} className={classOf(column)}>
                      {column.title}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {rows.map((row) => (
                  <tr key={row.id}>
                    {columns.map((column) => (
                      <td key={column.title} className={`${classOf(column)} wrap`}>
                        {column.show(row)}
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )
      }
    </Answer>
  )
}

export const useOrganizationList = <Row,>(
  name: string,
  organizationId: string,
  ask: () => Promise<{ results: Row[] }>,
) => useQuery({ queryKey: [name, organizationId], queryFn: async () => (await ask()).results })

export const pathOf = (organizationId: string) => ({ params: { path: { organizationId } } })
