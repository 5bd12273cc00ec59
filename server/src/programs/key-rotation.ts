/**
 * Rotates keys: a new master key at the top of the file, a new data key for every organization, and every sealed text
 * sealed again. Promises that every text can be opened at any time, by every replica that reads this key file, and that
 * a rotation that was killed resumes where it stopped. Old data keys are kept, wrapped with the new master key, so that
 * a text that was just being written can still be opened.
 */

import type { Database, Queryable } from '../store/database.ts'
import { addMasterKey, readMasterKeys } from '../store/keys/master-key.ts'
import { createSealer, DamagedValue, type Sealer } from '../store/keys/seal.ts'
import { firstOrganizationSql, writeOwnAudit } from '../store/own-audit.ts'
import { type SealedKind, type SealedText, sealedKinds } from './sealed-texts.ts'

interface Rotation {
  /** False: the first key of the file is the new one, even if the operator added it. */
  newMasterKey?: boolean
  /** Called after every batch with the number of texts in it. */
  onBatch?(count: number): void
}

export interface Rotated {
  organizations: number
  dataKeysWrapped: number
  /** Texts sealed again, by table. */
  texts: Record<string, number>
  /** Texts that no key can open: they were already damaged and are left unchanged. */
  broken: number
  resumed: boolean
}

interface Started {
  master: string
  at: string
}

const batchSize = 200
const maxPasses = 20

const readStarted = async (database: Database): Promise<Started | null> => {
  const [row] = await database.query<{ value: string }>(`select value from installation where name = 'key_rotation'`)
  return row === undefined ? null : (JSON.parse(row.value) as Started)
}

const firstKey = async (file: string): Promise<string> => {
  const keys = await readMasterKeys(file)
  if (keys === null) throw new Error(`the master key file ${file} is missing`)
  return keys[0]!.id
}

const isUsed = async (database: Database, masterKeyId: string): Promise<boolean> =>
  (await database.query('select 1 from data_key where master_key_id = $1 limit 1', [masterKeyId])).length > 0

/**
 * Returns the rotation in progress, or begins one: the key comes first, so that it is in the file before it is needed.
 */
const begin = async (
  database: Database,
  file: string,
  newMasterKey: boolean,
): Promise<Started & { resumed: boolean }> => {
  const under = await readStarted(database)
  if (under !== null && under.master === (await firstKey(file))) return { ...under, resumed: true }
  if (newMasterKey && (await isUsed(database, await firstKey(file)))) await addMasterKey(file)
  const [row] = await database.query<{ value: string }>(
    `insert into installation (name, value)
     values ('key_rotation', json_build_object('master', $1::text, 'at', clock_timestamp())::text)
     on conflict (name) do update set value = excluded.value returning value`,
    [await firstKey(file)],
  )
  return { ...(JSON.parse(row!.value) as Started), resumed: false }
}

const renewDataKeys = async (database: Database, sealer: Sealer, startedAt: string): Promise<number> => {
  const old = await database.query<{ id: string }>(
    'select organization_id as id from data_key where retired_at is null and created_at < $1::timestamptz',
    [startedAt],
  )
  for (const { id } of old) await sealer.rotateDataKey(id)
  return old.length
}

/**
 * Seals again what a retired data key sealed; returns how many texts that were, by table, and how many cannot be
 * opened.
 */
const resealPass = async (database: Database, sealer: Sealer, onBatch: (count: number) => void) => {
  const retired = await database.query<{ id: string }>('select id from data_key where retired_at is not null')
  const ids = retired.map(({ id }) => id)
  const counts: Record<string, number> = {}
  let broken = 0
  for (const kind of sealedKinds) {
    let after: string | null = null
    do {
      const batch: SealedText[] = await kind.read(database, ids, after, batchSize)
      const left = await resealBatch(database, sealer, kind, batch)
      broken += left
      counts[kind.table] = (counts[kind.table] ?? 0) + batch.length - left
      if (batch.length > left) onBatch(batch.length - left)
      after = batch.length < batchSize ? null : batch.at(-1)!.cursor
    } while (after !== null)
  }
  return { counts, broken }
}

/** Returns how many texts of the batch cannot be opened. */
const resealBatch = async (database: Database, sealer: Sealer, kind: SealedKind, batch: readonly SealedText[]) => {
  let broken = 0
  for (const { organizationId, place, sealed, key } of batch) {
    const opened = await sealer.open(organizationId, place, sealed).catch((error: unknown) => {
      if (!(error instanceof DamagedValue)) throw error
      broken += 1
      return null
    })
    // Overwrites only the text that was read: a concurrent change takes precedence.
    if (opened !== null)
      await kind.write(database, key, await sealer.seal(organizationId, place, opened.reveal()), sealed)
  }
  return broken
}

const add = (sum: Record<string, number>, more: Record<string, number>): number => {
  for (const [table, count] of Object.entries(more)) sum[table] = (sum[table] ?? 0) + count
  return Object.values(more).reduce((total, count) => total + count, 0)
}

const note = async (tx: Queryable, change: object): Promise<void> => {
  const [first] = await tx.query<{ id: string }>(firstOrganizationSql)
  if (first === undefined) return
  await writeOwnAudit(tx, first.id, {
    actor: 'OPERATOR',
    by: 'rotate-keys',
    eventType: 'UPDATE',
    targetType: 'ORGANIZATION',
    subTargetType: 'SECRET',
    target: { id: first.id, name: null },
    change,
  })
}

/** Rotates everything. Rejects if texts sealed with old keys keep appearing; a later start resumes. */
export const rotateKeys = async (database: Database, file: string, options: Rotation = {}): Promise<Rotated> => {
  // Refuses a file without the keys of this database, before anything is changed.
  await createSealer({ database, masterKeyFile: file })
  const { at, resumed } = await begin(database, file, options.newMasterKey ?? true)
  const sealer = await createSealer({ database, masterKeyFile: file })
  const organizations = await renewDataKeys(database, sealer, at)
  let dataKeysWrapped = await sealer.rewrap()
  const texts: Record<string, number> = {}
  let broken = 0
  for (let pass = 0, found = 1; found > 0; pass += 1) {
    if (pass === maxPasses) throw new Error('values sealed with old keys keep appearing: start the rotation again')
    const done = await resealPass(database, sealer, options.onBatch ?? (() => {}))
    broken = done.broken
    found = add(texts, done.counts)
  }
  dataKeysWrapped += await sealer.rewrap()
  await database.transaction(async (tx) => {
    await tx.query(`delete from installation where name = 'key_rotation'`)
    await note(tx, { organizations, data_keys_wrapped: dataKeysWrapped, texts })
  })
  return { organizations, dataKeysWrapped, texts, broken, resumed }
}
