/**
 * Changing variables and secrets. Promises one row per key and place, that a variable never turns into a secret, and
 * that what depends on a deleted row is deleted with it. Secrets are sealed before their transaction begins; a process
 * that dies here leaves either the old row or the new one.
 */
import { badRequest, conflict, invalidField, notFound } from '../lib/errors.ts'
import { isUuid, newId } from '../lib/ids.ts'
import { type Queryable, sqlState } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import { type BuiltInVariable, builtInVariables } from './built-in.ts'
import type { PlaceInContext, VariablePlace } from './places.ts'
import { findVariable, type VariableRecord } from './records.ts'
import { checkDescription, checkKey, checkMountPath, checkValue } from './rules.ts'

interface NewVariable {
  key: string
  value: string
  isSecret: boolean
  mountPath?: string | null | undefined
  description?: string | null | undefined
  interpolateInFile?: boolean | null | undefined
  /** The value is a reference to be resolved by this secret manager. */
  secretManagerAccessId?: string | null | undefined
}

interface RowToWrite {
  key: string
  value: string | null
  isSecret: boolean
  variableType: string
  mountPath: string | null
  description: string | null
  interpolateInFile: boolean | null
  targetId: string | null
  secretManagerAccessId?: string | null
}

type ExistingRow = Pick<VariableRecord, 'id' | 'is_secret'>

const mixed = () =>
  conflict(
    'variable_kind',
    'This key is already set here as a variable instead of a secret, or the reverse: delete it first.',
  )

const existingAt = async (db: Queryable, parentId: string, key: string): Promise<ExistingRow | undefined> => {
  const [row] = await db.query<ExistingRow>(`select id, is_secret from variable where parent_id = $1 and key = $2`, [
    parentId,
    key,
  ])
  return row
}

const mostAtPlace = 2000
const mostBytesAtPlace = 16 * 2 ** 20

/**
 * Throws a 409 if a place would have more than services can use: every status read includes all of it. Each of several
 * simultaneous requests sees only the changes of those that have finished.
 */
const refuseTooMany = async (db: Queryable, parentId: string, key: string, value: string | null): Promise<void> => {
  const [others] = await db.query<{ rows: number; bytes: number }>(
    `select count(*)::int as rows, coalesce(sum(octet_length(coalesce(sealed, value))), 0)::float8 as bytes
     from variable where parent_id = $1 and key <> $2 and scope <> 'BUILT_IN'`,
    [parentId, key],
  )
  const { rows, bytes } = others!
  if (rows >= mostAtPlace)
    throw conflict('too_many_variables', `A place can have at most ${mostAtPlace} variables and secrets: delete some.`)
  if (bytes + Buffer.byteLength(value ?? '') > mostBytesAtPlace)
    throw conflict('too_many_variables', 'The variables and secrets of a place can be 16 MiB together: delete some.')
}

const upsertSql = `
  insert into variable (id, organization_id, parent_id, scope, key, value, sealed, is_secret, variable_type, mount_path,
    description, enable_interpolation_in_file, target_id, secret_manager_access_id)
  values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
  on conflict (parent_id, key) do update set value = excluded.value, sealed = excluded.sealed,
    variable_type = excluded.variable_type, mount_path = excluded.mount_path, description = excluded.description,
    enable_interpolation_in_file = excluded.enable_interpolation_in_file, target_id = excluded.target_id,
    secret_manager_access_id = excluded.secret_manager_access_id, updated_at = clock_timestamp()
  where variable.is_secret = excluded.is_secret and variable.id = excluded.id
  returning id`

const sealAt = (sealer: Sealer, organizationId: string, id: string, value: string): Promise<string> =>
  sealer.seal(organizationId, { table: 'variable', row: id, column: 'value' }, value)

/** Sets a key at a place, replacing an existing one; the replaced row keeps its id, so that its aliases are kept. */
const put = async (db: Queryable, sealer: Sealer, place: VariablePlace, row: RowToWrite): Promise<VariableRecord> => {
  await refuseTooMany(db, place.id, row.key, row.value)
  // A race with another writer of the same key changes the id that the seal is bound to: retry.
  for (let attempt = 0; attempt < 3; attempt++) {
    const existing = await existingAt(db, place.id, row.key)
    if (existing !== undefined && existing.is_secret !== row.isSecret) throw mixed()
    const id = existing?.id ?? newId()
    if (id === row.targetId) throw invalidField('/key', 'a variable cannot refer to itself')
    const isSealed = row.isSecret && row.value !== null
    const sealed = isSealed ? await sealAt(sealer, place.organizationId, id, row.value!) : null
    const written = await db.query(upsertSql, [
      id,
      place.organizationId,
      place.id,
      place.scope,
      row.key,
      isSealed ? null : row.value,
      sealed,
      row.isSecret,
      row.variableType,
      row.mountPath,
      row.description,
      row.interpolateInFile,
      row.targetId,
      row.secretManagerAccessId ?? null,
    ])
    if (written.length > 0) return (await findVariable(db, place.organizationId, id)) ?? Promise.reject(notFound())
  }
  throw conflict('variable_busy', 'This key is being changed by another request.')
}

const typeOf = (mountPath: string | null, isExternal: boolean): string => {
  if (isExternal) return mountPath === null ? 'EXTERNAL_SECRET' : 'FILE_EXTERNAL_SECRET'
  return mountPath === null ? 'VALUE' : 'FILE'
}

/** Creates or replaces a variable or secret; with a mount path, a file. 400 on bad input, 409 variable ↔ secret. */
export const createVariable = async (
  db: Queryable,
  sealer: Sealer,
  place: VariablePlace,
  wanted: NewVariable,
): Promise<VariableRecord> => {
  checkKey(wanted.key)
  checkValue(wanted.value)
  checkMountPath(wanted.mountPath)
  checkDescription(wanted.description)
  const [mountPath, accessId] = [wanted.mountPath ?? null, wanted.secretManagerAccessId ?? null]
  return put(db, sealer, place, {
    key: wanted.key,
    value: wanted.value,
    isSecret: wanted.isSecret,
    variableType: typeOf(mountPath, accessId !== null),
    mountPath,
    description: wanted.description ?? null,
    interpolateInFile: wanted.interpolateInFile ?? null,
    targetId: null,
    secretManagerAccessId: accessId,
  })
}

interface VariableEdit {
  key: string
  /** If omitted or null, the value is kept. */
  value?: string | null | undefined
  /** If omitted or null, the path is kept; with one, the variable becomes a file. */
  mountPath?: string | null | undefined
  description?: string | null | undefined
  interpolateInFile?: boolean | null | undefined
  /** Another secret manager for an external secret; nothing else becomes one by an edit. */
  secretManagerAccessId?: string | null | undefined
}

const isExternal = ({ variable_type: type }: VariableRecord): boolean => type.endsWith('EXTERNAL_SECRET')

const isDependent = ({ variable_type: type }: VariableRecord): boolean => type === 'ALIAS' || type === 'OVERRIDE'

const checkNewPath = (row: VariableRecord, path: string | null | undefined): void => {
  if (path === undefined || path === null || path === row.mount_path) return
  checkMountPath(path)
  if (isDependent(row)) throw invalidField('/mount_path', 'cannot be set for an alias or override: change its target')
}

const checkEdit = (row: VariableRecord, edit: VariableEdit): void => {
  checkNewPath(row, edit.mountPath)
  if (row.variable_type === 'BUILT_IN') throw badRequest('A built-in variable cannot be changed.')
  if (row.variable_type === 'OVERRIDE' && edit.key !== row.key)
    throw invalidField('/key', 'cannot be changed for an override')
  const isNewValue = edit.value !== undefined && edit.value !== null && edit.value !== '' && edit.value !== row.value
  if (row.variable_type === 'ALIAS' && isNewValue)
    throw invalidField('/value', 'cannot be set for an alias, which has the value of its target')
  if (typeof edit.secretManagerAccessId === 'string' && !isExternal(row))
    throw invalidField(
      '/secret_manager_access_id',
      'is only for external secrets: delete this variable and create an external secret',
    )
  if (edit.key !== row.key) checkKey(edit.key)
  if (typeof edit.value === 'string') checkValue(edit.value)
  checkDescription(edit.description)
}

const editSql = `update variable set key = $2, value = coalesce($3, value), sealed = coalesce($4, sealed),
  description = case when $5 then $6 else description end,
  enable_interpolation_in_file = case when $7 then $8 else enable_interpolation_in_file end,
  secret_manager_access_id = coalesce($9, secret_manager_access_id), mount_path = coalesce($10, mount_path),
  variable_type = coalesce($11, variable_type), updated_at = clock_timestamp() where id = $1 returning id`

/** Changes a row. Omitted fields are kept. 409 if the new key is taken at its place. */
export const editVariable = async (
  db: Queryable,
  sealer: Sealer,
  row: VariableRecord,
  edit: VariableEdit,
): Promise<VariableRecord> => {
  checkEdit(row, edit)
  const value = row.variable_type === 'ALIAS' ? null : (edit.value ?? null)
  if (value !== null) await refuseTooMany(db, row.parent_id, row.key, value)
  const sealed = row.is_secret && value !== null ? await sealAt(sealer, row.organization_id, row.id, value) : null
  const values = [row.id, edit.key, row.is_secret ? null : value, sealed]
  const more = [edit.description, edit.interpolateInFile].flatMap((each) => [each !== undefined, each ?? null])
  const path = edit.mountPath ?? null
  const type = path === null || isDependent(row) ? null : typeOf(path, isExternal(row))
  try {
    const written = await db.query(editSql, [...values, ...more, edit.secretManagerAccessId ?? null, path, type])
    if (written.length === 0) throw notFound()
  } catch (error) {
    if (sqlState(error) === '23505') throw conflict('key_taken', 'Another variable here already has this key.')
    throw error
  }
  // Overrides have the key of what they override, so they get the new one.
  if (edit.key !== row.key) await renameOverrides(db, row.id, edit.key)
  if (path !== null && path !== row.mount_path) await moveDependents(db, row.id, path)
  return (await findVariable(db, row.organization_id, row.id)) ?? Promise.reject(notFound())
}

const renameOverrides = async (db: Queryable, targetId: string, key: string): Promise<void> => {
  try {
    await db.query(
      `with recursive dependent as (
         select id from variable where target_id = $1 and variable_type = 'OVERRIDE'
         union select v.id from variable v join dependent d on v.target_id = d.id where v.variable_type = 'OVERRIDE'
       ) update variable set key = $2, updated_at = clock_timestamp() where id in (select id from dependent)`,
      [targetId, key],
    )
  } catch (error) {
    if (sqlState(error) !== '23505') throw error
    throw conflict('key_taken', 'Another variable already has this key where this one is overridden.')
  }
}

/** Aliases and overrides are files at the path of their target. */
const moveDependents = (db: Queryable, targetId: string, path: string): Promise<unknown> =>
  db.query(
    `with recursive dependent as (
       select id from variable where target_id = $1
       union select v.id from variable v join dependent d on v.target_id = d.id
     ) update variable set mount_path = $2, updated_at = clock_timestamp() where id in (select id from dependent)`,
    [targetId, path],
  )

/** Deletes a row with its aliases and overrides. */
export const deleteVariable = async (db: Queryable, row: VariableRecord): Promise<void> => {
  if (row.variable_type === 'BUILT_IN') throw badRequest('A built-in variable cannot be deleted.')
  const deleted = await db.query(`delete from variable where id = $1 returning id`, [row.id])
  if (deleted.length === 0) throw notFound()
}

/**
 * A row for a built-in variable, so that an alias can refer to it. The row itself is never in effect: built-in
 * variables are always computed, and a row whose service no longer exists means nothing.
 */
const keepBuiltIn = async (db: Queryable, place: VariablePlace, one: BuiltInVariable): Promise<void> => {
  await db.query(
    `insert into variable (id, organization_id, parent_id, scope, key, value, is_secret, variable_type)
     values ($1, $2, $3, 'BUILT_IN', $4, $5, $6, 'BUILT_IN')
     on conflict (id) do update set value = excluded.value`,
    [one.id, place.organizationId, one.parentId, one.key, one.isSecret ? null : one.value, one.isSecret],
  )
}

/** Whether a place of the tree is inside another one. */
const isBelow = async (db: Queryable, placeId: string, id: string): Promise<boolean> => {
  const rows = await db.query(
    `select 1 from node n left join node p on p.id = n.parent_id where n.id = $1 and $2 in (n.parent_id, p.parent_id)`,
    [id, placeId],
  )
  return rows.length > 0
}

/**
 * The target row of an alias or override at `place`: 400 if it is in a narrower scope. 404 if there is none, or if it
 * is neither above nor below the place: the caller may not see rows elsewhere.
 */
const findTarget = async (
  db: Queryable,
  place: PlaceInContext,
  id: string,
  isSecret: boolean | undefined,
): Promise<VariableRecord> => {
  if (!isUuid(id)) throw notFound()
  const builtIn = builtInVariables(place.context).find((one) => one.id === id)
  if (builtIn !== undefined) await keepBuiltIn(db, place, builtIn)
  const target = await findVariable(db, place.organizationId, id)
  if (target === null || target.is_secret !== (isSecret ?? target.is_secret)) throw notFound()
  if (place.parents.includes(target.parent_id)) return target
  if (!(await isBelow(db, place.id, target.parent_id))) throw notFound()
  throw badRequest('The target is in a narrower scope: aliases and overrides must be in the same or a narrower scope.')
}

interface NewDependent {
  /** When given: the target must be of this family, else 404. */
  isSecret?: boolean | undefined
  description?: string | null | undefined
  interpolateInFile?: boolean | null | undefined
}

/** Creates an alias of a variable visible at `place`; it follows its value. 400 for an alias of an alias. */
export const createAlias = async (
  db: Queryable,
  sealer: Sealer,
  place: PlaceInContext,
  targetId: string,
  wanted: NewDependent & { key: string },
): Promise<VariableRecord> => {
  checkKey(wanted.key)
  checkDescription(wanted.description)
  const target = await findTarget(db, place, targetId, wanted.isSecret)
  if (target.variable_type === 'ALIAS') throw badRequest('An alias cannot be the target of another alias.')
  const own = { key: wanted.key, value: null, variableType: 'ALIAS' } as const
  return put(db, sealer, place, { ...own, ...dependentOn(target, wanted) })
}

const dependentOn = (target: VariableRecord, { description = null, interpolateInFile = null }: NewDependent) => ({
  isSecret: target.is_secret,
  mountPath: target.mount_path,
  description,
  interpolateInFile,
  targetId: target.id,
})

/** Overrides the value of a key at a narrower place. 400 at the target's own place and for built-in variables. */
export const createOverride = async (
  db: Queryable,
  sealer: Sealer,
  place: PlaceInContext,
  targetId: string,
  wanted: NewDependent & { value: string },
): Promise<VariableRecord> => {
  checkValue(wanted.value)
  checkDescription(wanted.description)
  const target = await findTarget(db, place, targetId, wanted.isSecret)
  if (target.variable_type === 'BUILT_IN')
    throw badRequest('A built-in variable cannot be overridden: create an alias instead.')
  if (target.parent_id === place.id) throw badRequest('An override must be in a narrower scope than its target.')
  const own = { key: target.key, value: wanted.value, variableType: 'OVERRIDE' } as const
  return put(db, sealer, place, { ...own, ...dependentOn(target, wanted) })
}
