/** Which tables of a database are ours, and what each of them holds. A database that is not only ours may have others. */
import { migrationNames, migrationText, type Queryable } from '../database.ts'

export interface OwnTable {
  name: string
  /** Without those that PostgreSQL computes. */
  columns: string[]
}

const made = /^create (?:unlogged )?table (?:if not exists )?(\w+)/gm

/** `migration` is made by the code that runs the migrations. */
const ownNames = (): string[] => [
  'migration',
  ...new Set(migrationNames().flatMap((name) => [...migrationText(name).matchAll(made)].map(([, table]) => table!))),
]

/** Those that are there, with the columns that they have now. */
export const readOwnTables = (db: Queryable): Promise<OwnTable[]> =>
  db.query<OwnTable & Record<string, unknown>>(
    `select c.relname as name, array_agg(a.attname::text order by a.attnum) as columns
     from pg_class c join pg_attribute a on a.attrelid = c.oid
     where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and c.relname = any($1)
       and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
     group by c.relname order by c.relname`,
    [ownNames()],
  )

const sequence = /^create sequence (?:if not exists )?(\w+)/gm

const ownSequences = (): string[] =>
  migrationNames().flatMap((name) => [...migrationText(name).matchAll(sequence)].map(([, found]) => found!))

export interface OwnSequence {
  name: string
  /** A bigint as text. */
  value: string
}

/** Those that have given a value: of our own, and of identity columns of our tables. */
export const readOwnSequences = (db: Queryable): Promise<OwnSequence[]> =>
  db.query<OwnSequence & Record<string, unknown>>(
    `select s.sequencename as name, s.last_value::text as value from pg_sequences s
     where s.schemaname = current_schema() and s.last_value is not null and (s.sequencename = any($2) or exists (
       select from pg_depend d join pg_class t on t.oid = d.refobjid
       where d.objid = format('%I.%I', s.schemaname, s.sequencename)::regclass and d.deptype in ('a', 'i')
         and t.relname = any($1)))
     order by 1`,
    [ownNames(), ownSequences()],
  )
