/**
 * Backups of databases: made on request or by a schedule, each verified by a load. They outlive their database: the
 * organization lists and removes them. Reading their content takes the right to write: it is all that a database holds.
 */
import { Readable } from 'node:stream'
import Type from 'typebox'
import {
  type Context,
  creating,
  nodeInPath,
  type Operation,
  type Owner,
  operation,
  organizationInPath,
  reading,
  removing,
} from '../../api/operations/operation.ts'
import { auditOf, checkRefs, placeOf } from '../../api/operations/resource-writes.ts'
import { Flag, Maybe, Nullable, OneOf, Ref, Text, Timestamp, Uuid, Whole } from '../../api/operations/schema.ts'
import { openContent, type StoredBackup } from '../../backups/content.ts'
import { backupStates, insertBackup, requestRemoval } from '../../backups/records.ts'
import { backupToolOf, isBackedUp } from '../../backups/tools/tools.ts'
import { badRequest, conflict, notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { type Node, timestampSql, writeAudit } from '../../store/tree.ts'

const Backup = Type.Object(
  {
    id: Uuid(),
    created_at: Timestamp(),
    updated_at: Timestamp(),
    name: Text(),
    message: Text(1000),
    state: OneOf(backupStates, {
      description:
        'VERIFIED: it was loaded into a server of its own and has the tables and rows that were dumped. UNVERIFIED: it is stored, but that is not certain. FAILED: there is no backup. The others are under way.',
    }),
    reason: Nullable(Text(1000, { description: 'Why it is UNVERIFIED or FAILED.' })),
    origin: OneOf(['REQUEST', 'SCHEDULE']),
    database_id: Uuid(),
    database_name: Text(),
    storage_id: Nullable(Uuid({ description: 'The backup storage that keeps it; null: a folder of the server.' })),
    database_exists: Flag({ description: 'False once the database has been deleted: its backups are kept.' }),
    type: Text(20),
    version: Text(20),
    size_bytes: Nullable(Whole(0, undefined, { description: 'What the dump has, uncompressed.' })),
    stored_bytes: Nullable(Whole(0)),
    sha256: Nullable(Text(64, { description: 'Of the stored bytes, which are compressed and encrypted.' })),
    table_count: Nullable(Whole(0)),
    row_count: Nullable(Whole(0, undefined, { description: 'Rows of all tables when the dump began.' })),
    started_at: Nullable(Timestamp()),
    finished_at: Nullable(Timestamp()),
  },
  { title: 'DatabaseBackup' },
)

type BackupRecord = Type.Static<typeof Backup>

const columns = `b.id, ${timestampSql('b.created_at')} as created_at, ${timestampSql('b.updated_at')} as updated_at,
  b.name, b.message, b.state, b.reason, b.origin, b.database_id, b.database_name, b.storage_id,
  exists (select from node n where n.id = b.database_id) as database_exists, b.type, b.version,
  b.raw_bytes::float8 as size_bytes, b.stored_bytes::float8 as stored_bytes, b.sha256,
  (select count(*)::int from jsonb_object_keys(b.tables)) as table_count,
  (select coalesce(sum((t.value ->> 0)::bigint), 0)::float8 from jsonb_each(b.tables) t) as row_count,
  ${timestampSql('b.started_at')} as started_at, ${timestampSql('b.finished_at')} as finished_at`

/** Without tables the two sums are of nothing. */
const shown = (row: BackupRecord & { has_tables: boolean }): BackupRecord => {
  const { has_tables: hasTables, ...record } = row
  return hasTables ? record : { ...record, table_count: null, row_count: null }
}

const listSql = (
  where: string,
): string => `select ${columns}, jsonb_typeof(b.tables) is not distinct from 'object' as has_tables
  from backup b where ${where} and b.state <> 'DELETING'
    and ($2::uuid is null or (b.created_at, b.id) < (select s.created_at, s.id from backup s where s.id = $2))
  order by b.created_at desc, b.id desc limit $3`

const paging = {
  startId: Maybe(Uuid({ description: 'The id of a backup: the page begins after it.' })),
  pageSize: Maybe(Whole(1, 100, { default: 20 })),
}
const Page = Type.Object({ page: Whole(1), page_size: Whole(1), results: Type.Array(Backup) })

const listOf = async (db: Queryable, where: string, id: string, query: { startId?: string; pageSize?: number }) => {
  const size = query.pageSize ?? 20
  const rows = await db.query<BackupRecord & { has_tables: boolean }>(listSql(where), [id, query.startId ?? null, size])
  return { page: 1, page_size: size, results: rows.map(shown) }
}

const readOne = async (db: Queryable, id: string): Promise<BackupRecord> => {
  const [row] = await db.query<BackupRecord & { has_tables: boolean }>(
    `select ${columns}, jsonb_typeof(b.tables) is not distinct from 'object' as has_tables from backup b where b.id = $1`,
    [id],
  )
  if (row === undefined) throw notFound()
  return shown(row)
}

/** Backups of one database that wait or are being made. */
const mostOpen = 10

const databaseOwner = nodeInPath('database', 'databaseId')
const ofDatabase = { tag: 'Backups', area: 'projects', owner: databaseOwner } as const

/** What `parent` finds, if the backup in the path is one of it. */
const backupIn = (parent: Owner, parentParam: string, column: 'database_id' | 'organization_id'): Owner => ({
  kind: 'backup',
  param: 'backupId',
  parentParam,
  async find(db, params, principal) {
    const { backupId = '' } = params
    const node = isUuid(backupId) ? await parent.find(db, params, principal) : null
    if (node === null) return null
    const sql = `select 1 from backup where id = $1 and ${column} = $2 and state <> 'DELETING'`
    return (await db.query(sql, [backupId, node.id])).length === 0 ? null : node
  },
})
const ofBackup = { ...ofDatabase, owner: backupIn(databaseOwner, 'databaseId', 'database_id') }

const noteChange = (
  tx: Queryable,
  context: Context,
  node: Node,
  eventType: 'CREATE' | 'DELETE' | 'UPDATE',
  change: object,
) =>
  writeAudit(
    tx,
    context.principal.organizationId,
    node,
    auditOf(
      context,
      eventType,
      { target: node.kind === 'database' ? 'DATABASE' : 'ORGANIZATION' },
      placeOf(node),
      change,
    ),
  )

const list = operation({
  id: 'listDatabaseBackup',
  ...reading,
  ...ofDatabase,
  path: '/database/{databaseId}/backup',
  summary: 'List the backups of a database, newest first',
  query: Type.Object(paging),
  answer: Page,
  run: ({ db, node, query }) => listOf(db, 'b.database_id = $1', node.id, query),
})

const refuseKind = async (db: Queryable, node: Node): Promise<void> => {
  const [row] = await db.query<{ type: string; mode: string; isDeployed: boolean }>(
    `select n.spec ->> 'type' as type, coalesce(n.spec ->> 'mode', 'CONTAINER') as mode,
       s.current_release_id is not null and s.desired = 'RUNNING' as "isDeployed"
     from node n join service_state s on s.service_id = n.id where n.id = $1`,
    [node.id],
  )
  if (row === undefined) throw notFound()
  if (row.mode !== 'CONTAINER')
    throw badRequest('Only databases in the mode CONTAINER have backups here: use those of the cloud provider.')
  if (!isBackedUp(row.type)) throw badRequest(`Backups of databases of the type ${row.type} are not possible yet.`)
  if (!row.isDeployed) throw conflict('not_deployed', 'The database does not run: deploy it first.')
  const open = await db.query(`select 1 from backup where database_id = $1 and state in ('QUEUED', 'RUNNING')`, [
    node.id,
  ])
  if (open.length >= mostOpen)
    throw conflict(
      'backups_in_progress',
      `${mostOpen} backups of this database are under way: wait until one has ended.`,
    )
}

const NewBackup = Type.Object({
  name: Maybe(Text(255, { description: 'Default: the time of the request.' })),
  message: Maybe(Text(1000, { default: '' })),
  storage_id: Maybe(Nullable(Ref('backup_storage'))),
})

const create = operation({
  id: 'addBackupDatabase',
  ...creating,
  ...ofDatabase,
  path: '/database/{databaseId}/backup',
  summary: 'Make a backup of a database and verify it',
  body: NewBackup,
  bodyOptional: true,
  defaults: true,
  answer: Backup,
  async run(context) {
    const { db, node, body, parts } = context
    await checkRefs(db, NewBackup, body, context.principal.organizationId)
    return context.transaction(async (tx) => {
      // One after another: those that are under way are counted.
      await tx.query('select from node where id = $1 for no key update', [node.id])
      await refuseKind(tx, node)
      const name = body.name || parts.clock.now().toISOString()
      const made = { databaseId: node.id, name, message: body.message ?? '', storageId: body.storage_id ?? null }
      const id = await insertBackup(tx, { ...made, origin: 'REQUEST' })
      if (id === null) throw notFound()
      await noteChange(tx, context, node, 'UPDATE', { backup_id: id })
      return readOne(tx, id)
    })
  },
})

const read = operation({
  id: 'getDatabaseBackup',
  ...reading,
  ...ofBackup,
  path: '/database/{databaseId}/backup/{backupId}',
  summary: 'Read a backup of a database',
  answer: Backup,
  run: ({ db, params }) => readOne(db, params.backupId),
})

const removeNow = (context: Context): Promise<undefined> =>
  context.transaction(async (tx) => {
    await requestRemoval(tx, [context.params.backupId!])
    await noteChange(tx, context, context.node, 'UPDATE', { removed_backup_id: context.params.backupId })
    return undefined
  })

const remove = operation({
  id: 'removeDatabaseBackup',
  ...removing,
  ...ofBackup,
  path: '/database/{databaseId}/backup/{backupId}',
  summary: 'Delete a backup of a database, also its file',
  run: removeNow,
})

const download = operation({
  id: 'downloadDatabaseBackup',
  method: 'GET',
  status: 200,
  // All that the database holds.
  scope: 'Write',
  ...ofBackup,
  path: '/database/{databaseId}/backup/{backupId}/download',
  summary:
    "Read the content of a backup as the database's own program wrote it: SQL, or for Redis a file of its own format",
  produces: 'application/octet-stream',
  async run(context) {
    const { db, node, params, parts, principal } = context
    const [row] = await db.query<StoredBackup & { type: string }>(
      `select id, organization_id as "organizationId", storage_id as "storageId", object,
         sealed_key as "sealedKey", sha256, type from backup
       where id = $1 and state in ('VERIFYING', 'VERIFIED', 'UNVERIFIED')`,
      [params.backupId],
    )
    if (row === undefined) throw conflict('no_backup', 'There is no content: the backup is under way, or has failed.')
    const content = await openContent(parts, row, AbortSignal.timeout(24 * 3_600_000))
    const audit = auditOf(context, 'UPDATE', { target: 'DATABASE' }, placeOf(node), { backup_id: row.id })
    await writeAudit(db, principal.organizationId, node, { ...audit, eventType: 'EXPORT' })
    const name = `backup-${row.id}.${backupToolOf(row.type).fileEnding}`
    context.setHeader('content-disposition', `attachment; filename="${name}"`)
    return Readable.from(content, { objectMode: false })
  },
})

const listKept = operation({
  id: 'listOrganizationBackup',
  ...reading,
  tag: 'Backups',
  area: 'projects',
  owner: organizationInPath,
  path: '/organization/{organizationId}/databaseBackup',
  summary: 'List the backups of all databases of an organization, also of deleted ones, newest first',
  query: Type.Object(paging),
  answer: Page,
  run: ({ db, node, query }) => listOf(db, 'b.organization_id = $1', node.id, query),
})

const removeKept = operation({
  id: 'removeOrganizationBackup',
  ...removing,
  tag: 'Backups',
  area: 'projects',
  owner: backupIn(organizationInPath, 'organizationId', 'organization_id'),
  path: '/organization/{organizationId}/databaseBackup/{backupId}',
  summary: 'Delete a backup, also of a deleted database',
  run: removeNow,
})

export const backupOperations: readonly Operation[] = [list, create, read, remove, download, listKept, removeKept]
