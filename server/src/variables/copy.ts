/**
 * Copies variables for clones. Promises that an alias or override inside the clone refers to the clone's own row, that
 * secrets are sealed again for their new rows, and that no value reaches a place that could not see it: an alias whose
 * target is not visible to the clone is left out.
 */
import { newId } from '../lib/ids.ts'
import type { Queryable } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import { type BuiltInVariable, builtInId } from './built-in.ts'
import { isNeighbour, neighbourOf, type Rename } from './rename.ts'

interface Row {
  id: string
  parent_id: string
  scope: string
  key: string
  value: string | null
  sealed: string | null
  is_secret: boolean
  variable_type: string
  mount_path: string | null
  description: string | null
  enable_interpolation_in_file: boolean | null
  target_id: string | null
  owned_by: string | null
  secret_manager_access_id: string | null
}

interface Copying {
  organizationId: string
  /** Places whose variables are copied, with the places of the copies. */
  places: ReadonlyMap<string, string>
  /** The parents of the rows of the copied places, mapped to the parents of the copies. */
  around: ReadonlyMap<string, string>
  /** Project and environment of the copies, the wider one first. */
  wider: readonly string[]
  /** Services of the environment that the copies are in. */
  neighbours: readonly string[]
  rename: Rename
}

const columns = `id, parent_id, scope, key, value, sealed, is_secret, variable_type, mount_path, description,
  enable_interpolation_in_file, target_id, owned_by, secret_manager_access_id`

const readRows = (db: Queryable, places: Iterable<string>): Promise<Row[]> =>
  db.query<Row>(`select ${columns} from variable where parent_id = any($1) and scope <> 'BUILT_IN' order by id`, [
    [...places],
  ])

/** Targets outside the copied places. */
const readOutside = (db: Queryable, rows: readonly Row[]): Promise<Row[]> => {
  const own = new Set(rows.map(({ id }) => id))
  const ids = rows.flatMap(({ target_id: id }) => (id === null || own.has(id) ? [] : [id]))
  return db.query<Row>(`select ${columns} from variable where id = any($1)`, [[...new Set(ids)]])
}

/** Rows around the copies that have a key of those targets: the copies may refer to them instead. */
const readAlike = (db: Queryable, wider: readonly string[], outside: readonly Row[]): Promise<Row[]> =>
  db.query<Row>(
    `select ${columns} from variable where parent_id = any($1::uuid[]) and key = any($2)
       and scope <> 'BUILT_IN' and variable_type <> 'ALIAS' order by array_position($1::uuid[], parent_id) desc`,
    [wider, outside.map(({ key }) => key)],
  )

interface Known extends Copying {
  /** Ids of the copies, by those of the rows. */
  ids: ReadonlyMap<string, string>
  outside: ReadonlyMap<string, Row>
  alike: readonly Row[]
  /** Built-in variables that copies refer to: each needs a row. */
  builtIns: Map<string, Pick<BuiltInVariable, 'id' | 'parentId' | 'key' | 'isSecret'>>
}

const seesFrom = ({ wider }: Copying, place: string, parentId: string): boolean =>
  parentId === place || wider.includes(parentId)

const builtInTarget = (known: Known, target: Row, place: string): string | null => {
  const key = known.rename(target.key)
  const parentId = known.places.get(target.parent_id) ?? known.around.get(target.parent_id) ?? target.parent_id
  const digits = neighbourOf(key)
  const isThere = seesFrom(known, place, parentId) && (digits === null || isNeighbour(digits, known.neighbours))
  if (!isThere) return null
  const id = builtInId(parentId, key)
  known.builtIns.set(id, { id, parentId, key, isSecret: target.is_secret })
  return id
}

/** The target of the copy of a row, at `place`; null when it has none. */
const targetOf = (known: Known, row: Row, place: string): string | null => {
  if (row.target_id === null) return null
  const inside = known.ids.get(row.target_id)
  if (inside !== undefined) return inside
  const target = known.outside.get(row.target_id)
  if (target === undefined) return null
  if (target.scope === 'BUILT_IN') return builtInTarget(known, target, place)
  if (seesFrom(known, place, target.parent_id)) return target.id
  const alike = known.alike.find(
    (each) => each.key === target.key && each.is_secret === target.is_secret && each.parent_id !== place,
  )
  return alike?.id ?? null
}

/** An override without a target is a plain value. */
const typeOf = (row: Row, targetId: string | null): string => {
  if (row.variable_type !== 'OVERRIDE' || targetId !== null) return row.variable_type
  return row.mount_path === null ? 'VALUE' : 'FILE'
}

const reseal = async (
  sealer: Sealer,
  { organizationId, rename }: Copying,
  row: Row,
  id: string,
): Promise<string | null> => {
  if (row.sealed === null) return null
  const place = (at: string) => ({ table: 'variable', row: at, column: 'value' })
  const opened = await sealer.open(organizationId, place(row.id), row.sealed)
  return sealer.seal(organizationId, place(id), rename(opened.reveal()))
}

const insertBuiltIns = async (tx: Queryable, { organizationId, builtIns }: Known): Promise<void> => {
  await tx.query(
    `insert into variable (id, organization_id, parent_id, scope, key, is_secret, variable_type)
     select w.id, $2, w."parentId", 'BUILT_IN', w.key, w."isSecret", 'BUILT_IN'
     from json_to_recordset($1::json) as w (id uuid, "parentId" uuid, key text, "isSecret" boolean)
     on conflict do nothing`,
    [JSON.stringify([...builtIns.values()]), organizationId],
  )
}

const insertRows = async (tx: Queryable, organizationId: string, rows: readonly Row[]): Promise<void> => {
  await tx.query(
    `insert into variable (${columns}, organization_id) select ${columns}, $2
     from json_to_recordset($1::json) as w (id uuid, parent_id uuid, scope text, key text, value text, sealed text,
       is_secret boolean, variable_type text, mount_path text, description text, enable_interpolation_in_file boolean,
       target_id uuid, owned_by text, secret_manager_access_id uuid)`,
    [JSON.stringify(rows), organizationId],
  )
}

/** The copies to be written, without those aliases that would refer to nothing. */
const copiesOf = async (sealer: Sealer, known: Known, rows: readonly Row[]): Promise<Row[]> => {
  const placed = rows.map((row) => ({ row, place: known.places.get(row.parent_id)! }))
  const targets = new Map(placed.map(({ row, place }) => [row.id, targetOf(known, row, place)]))
  const dropped = new Set(
    rows.filter(({ id, variable_type: type }) => type === 'ALIAS' && targets.get(id) === null).map(({ id }) => id),
  )
  const copies: Row[] = []
  for (const { row, place } of placed) {
    if (dropped.has(row.id)) continue
    const id = known.ids.get(row.id)!
    const targetId = dropped.has(row.target_id ?? '') ? null : targets.get(row.id)!
    copies.push({
      ...row,
      id,
      parent_id: place,
      value: row.value === null ? null : known.rename(row.value),
      sealed: await reseal(sealer, known, row, id),
      variable_type: typeOf(row, targetId),
      target_id: targetId,
    })
  }
  return copies
}

/** Copies every variable of the places. The rows of their copies exist already; built-in targets get their rows. */
export const copyVariables = async (tx: Queryable, sealer: Sealer, copying: Copying): Promise<void> => {
  const rows = await readRows(tx, copying.places.keys())
  if (rows.length === 0) return
  const outside = await readOutside(tx, rows)
  const known: Known = {
    ...copying,
    ids: new Map(rows.map(({ id }) => [id, newId()])),
    outside: new Map(outside.map((row) => [row.id, row])),
    alike: await readAlike(tx, copying.wider, outside),
    builtIns: new Map(),
  }
  const copies = await copiesOf(sealer, known, rows)
  if (known.builtIns.size > 0) await insertBuiltIns(tx, known)
  await insertRows(tx, copying.organizationId, copies)
}

/** Every sealed text of the places, so that their data keys can be read before a transaction begins. */
export const sealedTexts = async (db: Queryable, places: Iterable<string>): Promise<{ id: string; sealed: string }[]> =>
  db.query<{ id: string; sealed: string }>(
    `select distinct on (split_part(sealed, '.', 3)) id, sealed from variable
     where parent_id = any($1) and sealed is not null`,
    [[...places]],
  )
