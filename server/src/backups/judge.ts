/** Whether what was loaded is what was dumped. Pure. */
import type { Tables } from './records.ts'
import { differenceOf, mostTables, type Reports } from './tools/reports.ts'

const rowsAt = (tables: Tables, index: 0 | 1): Map<string, number> =>
  new Map(
    Object.entries(tables).flatMap(([name, rows]): [string, number][] =>
      rows[index] === null ? [] : [[name, rows[index]]],
    ),
  )

/** There is nothing to compare with. */
export const isTooLarge = (tables: Tables | null, reports: Reports): boolean => tables === null || reports.isCut()

export const tooLarge = `It has more than ${mostTables} tables: they are not compared.`

/** The first difference, as a sentence for users; null if there is none. */
export const judgeLoad = (tables: Tables | null, reports: Reports): string | null => {
  if (tables === null || isTooLarge(tables, reports)) return null
  const difference = differenceOf({ before: rowsAt(tables, 0), after: rowsAt(tables, 1) }, reports.rows('found'))
  return difference === null ? null : `What was loaded is not what was dumped: ${difference}`
}
