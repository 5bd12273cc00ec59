import { JsonText } from '../api/operations/operation.ts'
import type { Queryable } from '../store/database.ts'

/** The response that a statement writes: the `text` of its only row. */
export const answerFrom = async (db: Queryable, sql: string, values: unknown[]): Promise<JsonText> => {
  const [row] = await db.query<{ text: string }>(sql, values)
  return new JsonText(row!.text)
}
