/** The statements that a database is really asked, and how it would carry them out. */
import pg from 'pg'
import type { Json } from './api.ts'
import type { TestDatabase } from './database.ts'

export interface Statement {
  text: string
  values: readonly unknown[]
}

/** Notes every statement of `database` from now on, those in transactions too. Answers what takes and empties the notes. */
export const tapDatabase = (database: TestDatabase): (() => Statement[]) => {
  let noted: Statement[] = []
  const { query, transaction } = database
  const note = (text: string, values: readonly unknown[] = []): void => void noted.push({ text, values })
  database.query = (text, values) => {
    note(text, values)
    return query(text, values)
  }
  database.transaction = (work) =>
    transaction((tx) =>
      work({
        query: (text, values) => {
          note(text, values)
          return tx.query(text, values)
        },
      }),
    )
  return () => {
    const taken = noted
    noted = []
    return taken
  }
}

const nodesOf = (plan: Json): Json[] => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)]

const isPlannable = (text: string): boolean => /^\s*(select|insert|update|delete|with)\b/i.test(text)

/** Explains statements on a connection of its own, which leaves no trace. */
export const openExplainer = async (connectionString: string) => {
  const client = new pg.Client({ connectionString })
  // The database may be dropped before this connection is closed.
  client.on('error', () => {})
  await client.connect()
  const scannedBy = async (text: string, values?: unknown[]): Promise<string[]> => {
    const { rows } = await client.query(text, values)
    const plan = (rows[0] as Json)['QUERY PLAN'][0].Plan as Json
    return nodesOf(plan)
      .filter((node) => node['Node Type'] === 'Seq Scan')
      .map((node) => node['Relation Name'] as string)
  }
  return {
    /** Tables that the statement would read whole, with these values or, as after some runs, with any. */
    async scanned({ text, values }: Statement): Promise<string[]> {
      if (!isPlannable(text)) return []
      const withThese = await scannedBy(`explain (format json) ${text}`, [...values])
      return [...withThese, ...(await scannedBy(`explain (generic_plan, format json) ${text}`))]
    },
    close: () => client.end(),
  }
}
