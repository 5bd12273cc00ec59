/**
 * The content of a backup: a tar archive, compressed with zstd. `beginning.json`, the files, the rows of each table in
 * pieces, and `end.json` with the sizes and hashes of all of them. `age -d … | zstd -d | tar x` takes it apart.
 * Nothing is collected: a piece of a table is the most that is in memory.
 */
import { createHash, type Hash } from 'node:crypto'
import { pipeline as join, Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createZstdCompress, createZstdDecompress } from 'node:zlib'
import { extract, pack } from 'tar-stream'
import { readableOf, writableOf } from '../../lib/tar-streams.ts'
import type { OwnSequence, OwnTable } from '../../store/copy/own-tables.ts'
import { type Beginning, difference, type End, type FileName, type Found, readBeginning, readEnd } from './manifest.ts'

export interface Content {
  beginning: Beginning
  files: { name: FileName; bytes: Buffer }[]
  rows(table: OwnTable): AsyncIterable<Buffer>
  /** Asked when all rows have been read. */
  sequences(): Promise<OwnSequence[]>
}

type Bytes = AsyncIterable<Uint8Array>

type Archive = ReturnType<typeof extract>
type Entry = Archive extends AsyncIterable<infer Each> ? Each : never

const mostPiece = 16 << 20
const mostText = 1 << 20

const lineEnds = (bytes: Uint8Array): number => {
  let count = 0
  for (let at = bytes.indexOf(10); at !== -1; at = bytes.indexOf(10, at + 1)) count += 1
  return count
}

/** What has passed: the rows of a text of COPY are its lines. */
const createCount = () => {
  const hash: Hash = createHash('sha256')
  let bytes = 0
  let rows = 0
  return {
    add(piece: Uint8Array) {
      hash.update(piece)
      bytes += piece.length
      rows += lineEnds(piece)
    },
    end: () => ({ rows, bytes, sha256: hash.digest('hex') }),
  }
}

const countFile = (bytes: Uint8Array): { bytes: number; sha256: string } => ({
  bytes: bytes.length,
  sha256: createHash('sha256').update(bytes).digest('hex'),
})

const pieceName = (table: string, index: number): string => `tables/${table}/${String(index).padStart(6, '0')}`

const fill = async (content: Content, add: (name: string, bytes: Buffer) => Promise<void>): Promise<End> => {
  const addJson = (name: string, value: unknown) => add(name, Buffer.from(`${JSON.stringify(value, null, 1)}\n`))
  await addJson('beginning.json', content.beginning)
  for (const { name, bytes } of content.files) await add(`files/${name}`, bytes)
  const tables: End['tables'] = []
  for (const table of content.beginning.tables) {
    const count = createCount()
    let pieces = 0
    for await (const piece of content.rows(table)) {
      count.add(piece)
      await add(pieceName(table.name, pieces), piece)
      pieces += 1
    }
    if (pieces === 0) await add(pieceName(table.name, 0), Buffer.alloc(0))
    tables.push({ name: table.name, ...count.end() })
  }
  const files = content.files.map(({ name, bytes }) => ({ name, ...countFile(bytes) }))
  const end: End = { tables, files, sequences: await content.sequences() }
  await addJson('end.json', end)
  return end
}

/** The archive as a stream, and the list of its parts once it has been read to its end. */
export const writeArchive = (content: Content): { content: Bytes; end: Promise<End> } => {
  const archive = pack()
  const mtime = new Date(content.beginning.made_at)
  const add = async (name: string, bytes: Buffer): Promise<void> => {
    const entry = writableOf(archive.entry({ name, size: bytes.length, mode: 0o600, mtime }))
    await pipeline(Readable.from(bytes.length === 0 ? [] : [bytes]), entry)
  }
  const end = fill(content, add)
  end.then(
    () => archive.finalize(),
    (error: Error) => archive.destroy(error),
  )
  const compressed = createZstdCompress()
  // Its reader gets the error of whatever fails.
  join(readableOf(archive), compressed, () => {})
  return { content: compressed as AsyncIterable<Buffer>, end }
}

export type Part =
  | { kind: 'beginning'; beginning: Beginning }
  | { kind: 'file'; name: FileName; bytes: Buffer }
  /** The rows must be read to their end before the next part. */
  | { kind: 'table'; table: OwnTable; rows: AsyncIterable<Buffer> }
  /** Comes only if all parts were there and as they are listed. */
  | { kind: 'end'; end: End }

const readWhole = async (entry: Entry, most: number): Promise<Buffer> => {
  if ((entry.header.size ?? 0) > most) throw new Error(`its part ${entry.header.name.slice(0, 80)} is too large`)
  const chunks: Buffer[] = []
  for await (const chunk of entry as AsyncIterable<Buffer>) chunks.push(chunk)
  return Buffer.concat(chunks)
}

/** One entry after another; the one that comes can be looked at before it is taken. */
const createEntries = (content: Bytes) => {
  const archive = extract()
  join(Readable.from(content), createZstdDecompress(), writableOf(archive as never), () => {})
  const entries = archive[Symbol.asyncIterator]()
  let next: Entry | null | undefined
  const peek = async (): Promise<Entry | null> => {
    if (next !== undefined) return next
    const { done, value } = await entries.next()
    next = done === true ? null : (value as Entry)
    return next
  }
  return {
    peek,
    async take(): Promise<Entry | null> {
      const taken = await peek()
      next = undefined
      return taken
    },
    close: () => archive.destroy(),
  }
}

type Entries = ReturnType<typeof createEntries>

const tableIn = (name: string): string | undefined => /^tables\/([a-z_0-9]{1,63})\/\d{6,}$/.exec(name)?.[1]

async function* readPieces(entries: Entries, table: string, count: ReturnType<typeof createCount>) {
  for (let entry = await entries.peek(); entry !== null; entry = await entries.peek()) {
    if (tableIn(entry.header.name) !== table) return
    await entries.take()
    const piece = await readWhole(entry, mostPiece)
    count.add(piece)
    if (piece.length > 0) yield piece
  }
}

const takeText = async (entries: Entries, name: string): Promise<string> => {
  const entry = await entries.take()
  if (entry?.header.name !== name) throw new Error(`it has no ${name} where it should be`)
  return (await readWhole(entry, mostText)).toString('utf8')
}

/** The parts in their order. Rejects at the first that is damaged, missing or not as it is listed. */
export async function* readArchive(content: Bytes): AsyncGenerator<Part> {
  const entries = createEntries(content)
  try {
    const beginning = readBeginning(await takeText(entries, 'beginning.json'))
    yield { kind: 'beginning', beginning }
    const tables = new Map<string, { rows: number; bytes: number; sha256: string }>()
    const files = new Map<string, { bytes: number; sha256: string }>()
    for (let entry = await entries.peek(); entry?.header.name.startsWith('files/'); entry = await entries.peek()) {
      await entries.take()
      const name = entry.header.name.slice('files/'.length) as FileName
      const bytes = await readWhole(entry, mostText)
      files.set(name, countFile(bytes))
      yield { kind: 'file', name, bytes }
    }
    for (const table of beginning.tables) {
      const count = createCount()
      yield { kind: 'table', table, rows: readPieces(entries, table.name, count) }
      tables.set(table.name, count.end())
    }
    const end = readEnd(await takeText(entries, 'end.json'))
    const found: Found = { tables, files }
    const wrong = difference(beginning, end, found)
    if (wrong !== null) throw new Error(wrong)
    if ((await entries.take()) !== null) throw new Error('it has parts after its end')
    yield { kind: 'end', end }
  } finally {
    entries.close()
  }
}
