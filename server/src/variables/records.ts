/** Variables in responses. One statement, however many there are; values of secrets are never read here. */
import type { Queryable } from '../store/database.ts'
import { instantSql, toTimestamp } from '../store/long-list.ts'

export interface VariableTarget {
  id: string
  key: string
  value: string | null
  mount_path: string | null
  scope: string
  variable_type: string
  description: string | null
  enable_interpolation_in_file: boolean | null
}

/** A row as responses need it; `value` is null for secrets, and an alias shows its target's. */
export interface VariableRecord {
  id: string
  created_at: string
  updated_at: string
  organization_id: string
  parent_id: string
  scope: string
  key: string
  value: string | null
  is_secret: boolean
  variable_type: string
  mount_path: string | null
  description: string | null
  enable_interpolation_in_file: boolean | null
  owned_by: string | null
  secret_manager_access_id: string | null
  target: VariableTarget | null
}

const columns = `v.id, ${instantSql('v.created_at')} as created_at, ${instantSql('v.updated_at')} as updated_at,
  v.organization_id, v.parent_id, v.scope, v.key,
  case when v.variable_type = 'ALIAS' then t.value else v.value end as value, v.is_secret, v.variable_type,
  v.mount_path, v.description, v.enable_interpolation_in_file, v.owned_by, v.secret_manager_access_id, t.id as t_id,
  t.key as t_key, t.value as t_value, t.mount_path as t_mount_path, t.scope as t_scope,
  t.variable_type as t_variable_type, t.description as t_description,
  t.enable_interpolation_in_file as t_enable_interpolation_in_file`

const fromTarget = 'from variable v left join variable t on t.id = v.target_id'

type Row = Omit<VariableRecord, 'target'> & {
  t_id: string | null
  t_key: string
  t_value: string | null
  t_mount_path: string | null
  t_scope: string
  t_variable_type: string
  t_description: string | null
  t_enable_interpolation_in_file: boolean | null
}

const targetOf = (row: Row): VariableTarget | null =>
  row.t_id === null
    ? null
    : {
        id: row.t_id,
        key: row.t_key,
        value: row.t_value,
        mount_path: row.t_mount_path,
        scope: row.t_scope,
        variable_type: row.t_variable_type,
        description: row.t_description,
        enable_interpolation_in_file: row.t_enable_interpolation_in_file,
      }

const toRecord = (row: Row): VariableRecord => ({
  id: row.id,
  created_at: toTimestamp(row.created_at),
  updated_at: toTimestamp(row.updated_at),
  organization_id: row.organization_id,
  parent_id: row.parent_id,
  scope: row.scope,
  key: row.key,
  value: row.value,
  is_secret: row.is_secret,
  variable_type: row.variable_type,
  mount_path: row.mount_path,
  description: row.description,
  enable_interpolation_in_file: row.enable_interpolation_in_file,
  owned_by: row.owned_by,
  secret_manager_access_id: row.secret_manager_access_id,
  target: targetOf(row),
})

/** Rows set at these places (tree rows, ids), in the order of their keys. Built-in ones are not among them. */
export const listVisible = async (db: Queryable, parentIds: readonly string[]): Promise<VariableRecord[]> => {
  const rows = await db.query<Row>(
    `select ${columns} ${fromTarget} where v.parent_id = any($1) and v.scope <> 'BUILT_IN' order by v.key, v.id`,
    [parentIds],
  )
  return rows.map(toRecord)
}

export const findVariable = async (
  db: Queryable,
  organizationId: string,
  id: string,
): Promise<VariableRecord | null> => {
  const [row] = await db.query<Row>(`select ${columns} ${fromTarget} where v.id = $1 and v.organization_id = $2`, [
    id,
    organizationId,
  ])
  return row === undefined ? null : toRecord(row)
}
