/** Backup storages: the places where an organization keeps its backups, each tried before it is used. */
import Type from 'typebox'
import { type Context, type Operation, operation } from '../../api/operations/operation.ts'
import { type Change, resource, type Write } from '../../api/operations/resource.ts'
import { Computed, Flag, Maybe, Name, Nullable, OneOf, Secret, Text, Timestamp } from '../../api/operations/schema.ts'
import { placeFor, readStorage, type StorageConfig } from '../../backups/places/open-place.ts'
import { lastCheckOfN, noteCheck } from '../../backups/places/storage-checks.ts'
import { isStorageUsed } from '../../backups/places/storage-uses.ts'
import { type Trouble, tryPlace } from '../../backups/places/try-place.ts'
import { badRequest, conflict, invalidField, notFound } from '../../lib/errors.ts'
import { Secret as Hidden } from '../../lib/secret.ts'
import { completeStorage, type StorageSpec } from './storage-config.ts'

const collection = '/organization/{organizationId}/backupStorage'
const item = `${collection}/{backupStorageId}`
const tag = 'Backup Storages'

const problems = ['unreachable', 'refused', 'missing', 'full', 'damaged']

const lastCheck = {
  checked_at: Timestamp(),
  works: Flag(),
  code: Nullable(OneOf(problems)),
  message: Nullable(Text(600, { description: 'What is wrong, in one or two sentences.' })),
}

const spec = Type.Object({
  name: Name(),
  kind: OneOf(['FOLDER', 'S3'], {
    description: 'A folder of this server, below the one of SLIPWAY_BACKUP_FOLDER, or a bucket of an S3 storage.',
  }),
  description: Maybe(Text(2048)),
  folder: Maybe(
    Text(63, {
      pattern: '^[A-Za-z0-9_][A-Za-z0-9_-]*$',
      description: 'Of the kind FOLDER: its name in the folder of the organization. Default `backups`.',
    }),
  ),
  endpoint: Maybe(Text(2048, { description: 'Of the kind S3: an https or http address. Default that of AWS.' })),
  region: Maybe(Text(64, { pattern: '^[A-Za-z0-9-]*$', description: 'Of the kind S3. Default `us-east-1`.' })),
  bucket: Maybe(Text(63, { description: 'Of the kind S3.' })),
  prefix: Maybe(Text(200, { description: 'Of the kind S3: the path in the bucket. Default none.' })),
  access_key_id: Maybe(Text(128, { description: 'Of the kind S3.' })),
  secret_access_key: Maybe(Secret(1024)),
  path_style: Maybe(
    Flag({
      description:
        'Of the kind S3: whether the bucket is in the path of an address instead of its host. Default true, but false at AWS.',
    }),
  ),
})

/** Fewer attempts than a backup has: a person waits for the answer. */
const attempts = 2

const tryConfig = (
  { parts, principal }: Context,
  config: StorageConfig,
  secret: Hidden<string>,
): Promise<Trouble | null> => tryPlace(placeFor({ ...parts, attempts }, principal.organizationId, config, secret))

interface StoredRow {
  name: string
  spec: StorageSpec
  sealed: Record<string, string>
}

const readRow = async ({ db, node }: Context): Promise<StoredRow> => {
  const [row] = await db.query<StoredRow>(
    `select name, spec, sealed from node where id = $1 and organization_id = $2 and kind = 'backup_storage'`,
    [node.id, node.organizationId],
  )
  if (row === undefined) throw notFound()
  return row
}

const isDecoration = (field: string): boolean => field === 'name' || field === 'description'

/** The storage as it would be written; null if the request changes nothing about where it is. */
const configAsked = async (context: Context): Promise<{ config: StorageConfig; secret: Hidden<string> } | null> => {
  const { body, node, parts, principal } = context
  const sent = typeof body.secret_access_key === 'string' ? new Hidden(body.secret_access_key) : null
  if (node.kind !== 'backup_storage') {
    const made = completeStorage(body as unknown as StorageSpec, context, null)
    return { config: made as StorageConfig, secret: sent ?? new Hidden('') }
  }
  if (Object.keys(body).every(isDecoration)) return null
  const previous = await readRow(context)
  const { secret_access_key: _, ...open } = body
  const made = completeStorage({ ...previous.spec, name: previous.name, ...open } as StorageSpec, context, previous)
  const kept = await readStorage({ ...parts, database: context.db }, principal.organizationId, node.id)
  return { config: made as StorageConfig, secret: sent ?? kept.secretAccessKey }
}

/** Nothing is written, and no transaction is open, while the storage is tried. */
const tried = async (context: Context, write: Write) => {
  const asked = await configAsked(context)
  if (asked === null) return write(context)
  const trouble = await tryConfig(context, asked.config, asked.secret)
  if (trouble !== null) throw badRequest(trouble.message, undefined, 'backup_storage_failed')
  return write(context, async (tx, record) => ({
    ...record,
    last_check: await noteCheck(tx, String(record.id), null),
  }))
}

const places = ['folder', 'bucket', 'prefix'] as const

const validate = async (body: StorageSpec, context: Context, change: Change<StorageSpec>): Promise<StorageSpec> => {
  const { previous, db, id } = change
  const next = completeStorage(body, context, previous)
  const moved = previous === null ? undefined : places.find((field) => previous.spec[field] !== next[field])
  if (moved !== undefined && (await isStorageUsed(db, context.principal.organizationId, id)))
    throw invalidField(`/${moved}`, 'cannot be changed while backups are kept in this storage')
  return next
}

const storage = resource({
  kind: 'backup_storage',
  area: 'resources',
  parent: { kind: 'organization', param: 'organizationId' },
  tag,
  words: ['a backup storage', 'backup storages'],
  collection,
  item,
  param: 'backupStorageId',
  ids: {
    list: 'listBackupStorage',
    create: 'createBackupStorage',
    read: 'getBackupStorage',
    edit: 'editBackupStorage',
    remove: 'deleteBackupStorage',
  },
  reads: 'sensitive',
  spec,
  fixed: { kind: 'kind' },
  record: {
    last_check: Computed(Nullable(Type.Object(lastCheck), { description: 'When it was last tried; null: never.' })),
  },
  columns: { last_check: lastCheckOfN },
  validate,
  around: tried,
  audit: { target: 'ORGANIZATION', subTarget: 'CONFIG' },
  async onDelete(tx, { node }) {
    if (await isStorageUsed(tx, node.organizationId, node.id))
      throw conflict('backup_storage_in_use', 'Backups or schedules use this storage: delete or change them first.')
    return undefined
  },
})

const check = operation({
  id: 'checkBackupStorage',
  method: 'POST',
  scope: 'Write',
  status: 200,
  path: `${item}/check`,
  tag,
  summary: 'Try a backup storage: a small object is written, read, listed and deleted',
  area: 'resources',
  owner: storage.owner,
  answer: Type.Object(lastCheck, { title: 'BackupStorageCheck' }),
  async run(context) {
    const { parts, node } = context
    const { config, secretAccessKey } = await readStorage(parts, node.organizationId, node.id)
    const trouble = await tryConfig(context, config, secretAccessKey)
    const noted = await context.write((db) => noteCheck(db, node.id, trouble))
    if (noted === null) throw notFound()
    return noted
  },
})

export const backupStorageOperations: Operation[] = [...storage.operations, check]
