/**
 * Restores of backups into databases that run, or are being deployed: into an empty one, or with `confirm` in place of what
 * is there. The login of the database itself stays as it is.
 */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { auditOf, placeOf } from '../../api/operations/resource-writes.ts'
import { Flag, Maybe, Nullable, OneOf, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { insertRestore, restoreStates } from '../../backups/restores.ts'
import { conflict, invalidField, notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { timestampSql, writeAudit } from '../../store/tree.ts'

const Restore = Type.Object(
  {
    id: Uuid(),
    created_at: Timestamp(),
    database_id: Uuid(),
    backup_id: Uuid(),
    state: OneOf(restoreStates, {
      description:
        'SUCCEEDED: all tables and rows of the backup are there. QUEUED also while the database is deployed.',
    }),
    reason: Nullable(Text(1000, { description: 'Why it FAILED: the first line of what could not be loaded.' })),
    finished_at: Nullable(Timestamp()),
  },
  { title: 'DatabaseRestore' },
)

type RestoreRecord = Type.Static<typeof Restore>

const columns = `id, ${timestampSql('created_at')} as created_at, database_id, backup_id, state, reason,
  ${timestampSql('finished_at')} as finished_at`

const common = { tag: 'Backups', area: 'projects', owner: nodeInPath('database', 'databaseId') } as const
const path = '/database/{databaseId}/restore'

/** A caller who restores a backup could read it: that takes the same rights where it was made. */
const checkBackup = async (context: Context, backupId: string): Promise<void> => {
  const { db, node, principal } = context
  const [row] = await db.query<{ databaseId: string; type: string; target: string; exists: boolean; isKept: boolean }>(
    `select b.database_id as "databaseId", b.type, (select spec ->> 'type' from node where id = $2) as target,
       exists (select from node where id = b.database_id) as exists,
       b.state in ('VERIFYING', 'VERIFIED', 'UNVERIFIED') as "isKept"
     from backup b where b.id = $1 and b.organization_id = $3 and b.state <> 'DELETING'`,
    [backupId, node.id, principal.organizationId],
  )
  if (row === undefined) throw invalidField('/backup_id', 'is not the id of a backup of this organization')
  await context.authorizeAlso(row.exists ? row.databaseId : { projectId: null, mode: null, clusterId: null })
  if (!row.isKept) throw conflict('no_backup', 'There is no content: the backup is under way, or has failed.')
  if (row.type !== row.target) throw invalidField('/backup_id', `is of the type ${row.type}, and the database is not`)
}

const readOne = async (db: Queryable, databaseId: string, id: string): Promise<RestoreRecord> => {
  const sql = `select ${columns} from database_restore where id = $1 and database_id = $2`
  const [row] = isUuid(id) ? await db.query<RestoreRecord>(sql, [id, databaseId]) : []
  if (row === undefined) throw notFound()
  return row
}

const start = operation({
  id: 'restoreDatabase',
  method: 'POST',
  scope: 'Write',
  status: 202,
  ...common,
  path,
  summary: 'Load a backup into a database: of this one, or of any other of the organization of the same type',
  body: Type.Object({
    backup_id: Uuid(),
    confirm: Maybe(
      Flag({
        default: false,
        description:
          'Replaces all that the database has. Without it, a database that has tables is left as it is and the restore fails.',
      }),
    ),
  }),
  defaults: true,
  answer: Restore,
  async run(context) {
    const { node, body, principal } = context
    await checkBackup(context as Context, body.backup_id)
    return context.transaction(async (tx) => {
      const wanted = { databaseId: node.id, backupId: body.backup_id, replaces: body.confirm === true }
      const id = await insertRestore(tx, wanted)
      if (id === null)
        throw conflict('restore_in_progress', 'A restore of this database is under way: wait until it ends.')
      const change = { restored_backup_id: body.backup_id, confirm: body.confirm === true }
      const audit = auditOf(context as Context, 'UPDATE', { target: 'DATABASE' }, placeOf(node), change)
      await writeAudit(tx, principal.organizationId, node, { ...audit, eventType: 'IMPORT' })
      return readOne(tx, node.id, id)
    })
  },
})

const list = operation({
  id: 'listDatabaseRestore',
  ...reading,
  ...common,
  path,
  summary: 'List the last 100 restores into a database, newest first',
  answer: Type.Object({ results: Type.Array(Restore) }),
  run: async ({ db, node }) => ({
    results: await db.query<RestoreRecord>(
      `select ${columns} from database_restore where database_id = $1 order by created_at desc, id desc limit 100`,
      [node.id],
    ),
  }),
})

const read = operation({
  id: 'getDatabaseRestore',
  ...reading,
  ...common,
  path: `${path}/{restoreId}`,
  summary: 'Read a restore into a database',
  answer: Restore,
  run: ({ db, node, params }) => readOne(db, node.id, params.restoreId),
})

export const restoreOperations: readonly Operation[] = [start, list, read]
