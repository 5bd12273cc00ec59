/**
 * All our rows as they are at one moment, while the server continues to write. One transaction sees one snapshot; each table
 * is streamed out of it in pieces of a few megabytes.
 */
import type { OwnSequence, OwnTable } from './own-tables.ts'
import { readOwnSequences, readOwnTables } from './own-tables.ts'
import type { Session } from './session.ts'

export interface Snapshot {
  /** The migrations that its schema has, in their order. */
  migrations: string[]
  tables: OwnTable[]
  /** The rows of a table in PostgreSQL's text format, one a line. */
  rows(table: OwnTable): AsyncGenerator<Buffer>
  /** Read after the tables: sequences do not belong to a snapshot, and may only be ahead of the rows. */
  sequences(): Promise<OwnSequence[]>
}

const pieceBytes = 4 << 20

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`

export const columnsOf = ({ columns }: OwnTable): string => columns.map(quoted).join(', ')

/** Pieces of at least this many bytes, but for the last. */
async function* inPieces(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let held: Buffer[] = []
  let bytes = 0
  for await (const chunk of chunks) {
    held.push(chunk)
    bytes += chunk.length
    if (bytes < pieceBytes) continue
    yield Buffer.concat(held)
    held = []
    bytes = 0
  }
  if (bytes > 0) yield Buffer.concat(held)
}

/** The transaction ends when `work` does. */
export const withSnapshot = async <T>(session: Session, work: (snapshot: Snapshot) => Promise<T>): Promise<T> => {
  await session.query('begin isolation level repeatable read, read only')
  try {
    const names = await session.query<{ name: string }>('select name from migration order by name')
    const tables = await readOwnTables(session)
    const result = await work({
      migrations: names.map(({ name }) => name),
      tables,
      rows: (table) => inPieces(session.copyOut(`copy ${quoted(table.name)} (${columnsOf(table)}) to stdout`)),
      sequences: () => readOwnSequences(session),
    })
    await session.query('commit')
    return result
  } catch (error) {
    await session.close()
    throw error
  }
}
