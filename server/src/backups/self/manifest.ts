/**
 * What a backup says of itself, at its beginning and at its end. The end has the sizes, hashes and numbers of rows of all
 * parts. Both are read as text of strangers: everybody who knows the public key can make a file that it opens. Pure.
 */
import Type from 'typebox'
import { Compile } from 'typebox/compile'
import { readJson } from '../../lib/foreign-text/read-json.ts'

const Name = Type.String({ pattern: '^[a-z_0-9]{1,63}$' })
const Whole = Type.Integer({ minimum: 0 })
const Hash = Type.String({ pattern: '^[0-9a-f]{64}$' })

const File = Type.Union([
  Type.Literal('slipway.env'),
  Type.Literal('keys/master'),
  Type.Literal('admin-token'),
  Type.Literal('server-id'),
  Type.Literal('runtime'),
])
export type FileName = Type.Static<typeof File>

const Beginning = Type.Object({
  format: Type.Literal(1),
  made_at: Type.String({ maxLength: 40 }),
  slipway: Type.String({ maxLength: 40 }),
  /** The folder that it was made from, for the report. */
  data_directory: Type.String({ maxLength: 4096 }),
  host: Type.String({ maxLength: 255 }),
  migrations: Type.Array(Type.String({ pattern: '^[0-9]{4}-[a-z0-9-]{1,80}\\.sql$' }), { minItems: 1, maxItems: 9999 }),
  tables: Type.Array(Type.Object({ name: Name, columns: Type.Array(Name, { minItems: 1, maxItems: 1600 }) }), {
    maxItems: 2000,
  }),
  /** Settings that the server had from its environment. */
  environment: Type.Array(Type.String({ pattern: '^[A-Z_0-9]{1,80}$' }), { maxItems: 200 }),
})

const End = Type.Object({
  tables: Type.Array(Type.Object({ name: Name, rows: Whole, bytes: Whole, sha256: Hash }), { maxItems: 2000 }),
  files: Type.Array(Type.Object({ name: File, bytes: Whole, sha256: Hash }), { maxItems: 20 }),
  sequences: Type.Array(Type.Object({ name: Name, value: Type.String({ pattern: '^[0-9]{1,19}$' }) }), {
    maxItems: 2000,
  }),
})

export type Beginning = Type.Static<typeof Beginning>
export type End = Type.Static<typeof End>

const parse = (text: string): unknown => readJson(text, { mostBytes: 1 << 20 })

const beginnings = Compile(Beginning)
const ends = Compile(End)

export const readBeginning = (text: string): Beginning => {
  const value = parse(text)
  if (!beginnings.Check(value)) throw new Error('it is not of a form that this version of Slipway reads')
  return value
}

export const readEnd = (text: string): End => {
  const value = parse(text)
  if (!ends.Check(value)) throw new Error('its list of parts is not of a form that this version of Slipway reads')
  return value
}

interface Counted {
  bytes: number
  sha256: string
}

export interface Found {
  tables: ReadonlyMap<string, Counted & { rows: number }>
  files: ReadonlyMap<string, Counted>
}

const isSame = (said: Counted & { rows?: number }, is: (Counted & { rows?: number }) | undefined): boolean =>
  is !== undefined && said.bytes === is.bytes && said.sha256 === is.sha256 && said.rows === is.rows

/** One sentence about the first part that is not as the list says, or null. */
export const difference = ({ tables }: Beginning, end: End, found: Found): string | null => {
  const listed = new Set(end.tables.map(({ name }) => name))
  const unlisted = [...tables.map(({ name }) => name), ...found.tables.keys()].find((name) => !listed.has(name))
  if (unlisted !== undefined) return `the table ${unlisted} is not in its list of parts`
  const wrong = end.tables.find((table) => !isSame(table, found.tables.get(table.name)))
  if (wrong !== undefined) return `the table ${wrong.name} does not have the ${wrong.rows} rows that were backed up`
  const file = end.files.find((each) => !isSame(each, found.files.get(each.name)))
  if (file !== undefined) return `the file ${file.name} is not as it was backed up`
  return found.files.size === end.files.length ? null : 'it has a file that is not in its list of parts'
}
