/**
 * Secrets at rest. Each value is sealed with AES-256-GCM under its organization's data key, which is itself sealed
 * under a master key from a file. A sealed text is bound to its organization and place: moved to another row, it cannot
 * be opened. Refuses to start with data whose master key is missing. Nothing is left half done if the process dies
 * here.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import { newId } from '../../lib/ids.ts'
import { Secret } from '../../lib/secret.ts'
import type { Database, Queryable } from '../database.ts'
import { createMasterKey, type MasterKey, readMasterKeys } from './master-key.ts'

/** Where a sealed text is stored; it can be opened nowhere else. */
export interface SealedPlace {
  table: string
  row: string
  column: string
}

export interface Sealer {
  /** `v1.<master key>.<data key>.<nonce>.<ciphertext>.<tag>`. Outside transactions, unless `prepare` went before. */
  seal(organizationId: string, place: SealedPlace, plaintext: string): Promise<string>
  /**
   * Reads the organization's data key, or creates it, so that sealing inside a transaction needs no second connection.
   */
  prepare(organizationId: string): Promise<void>
  /** Rejects if the text was changed or belongs elsewhere, or its keys no longer exist. */
  open(organizationId: string, place: SealedPlace, sealed: string): Promise<Secret<string>>
  /** Seals every data key again with the first master key; returns how many. The other keys may then be removed. */
  rewrap(): Promise<number>
  /** New values of this organization get a new data key, on every replica; old ones stay readable. */
  rotateDataKey(organizationId: string): Promise<void>
  /** The organization's data keys as the database has them: wrapped by a master key, newest first. */
  dataKeys(organizationId: string): Promise<WrappedKey[]>
  /**
   * Adds data keys that an earlier `dataKeys` returned and this database lacks, for reading alone. Rejects with a
   * one-line error if one was not wrapped for this organization by a master key of ours.
   */
  addDataKeys(organizationId: string, keys: readonly WrappedKey[]): Promise<void>
}

/** A data key that only the holder of its master key can open. */
export interface WrappedKey {
  id: string
  masterKeyId: string
  wrapped: string
}

/** Notifies every replica that data keys have changed; empty payload. */
const channel = 'slipway_data_key'

/** The master keys known to this process: read again when a data key needs another one. */
interface MasterKeys {
  first(): MasterKey
  find(id: string): Promise<MasterKey>
}

interface DataKey {
  id: string
  masterKeyId: string
  key: Buffer
  uses: number
}

interface DataKeyRow {
  id: string
  organization_id: string
  master_key_id: string
  wrapped: string
}

// Random nonces repeat with a chance of 2^-61 at this count; far below what GCM allows.
const usesPerDataKey = 200_000

/** Values sealed long ago may need older keys than the current one. */
const mostKeysAtOnce = 20

const encrypt = (key: Buffer, aad: string, plaintext: Buffer): string[] => {
  const nonce = randomBytes(12)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(aad))
  const text = Buffer.concat([cipher.update(plaintext), cipher.final()])
  return [nonce, text, cipher.getAuthTag()].map((part) => part.toString('base64url'))
}

const decrypt = (key: Buffer, aad: string, parts: readonly string[]): Buffer => {
  const [nonce, text, tag] = parts.map((part) => Buffer.from(part, 'base64url')) as [Buffer, Buffer, Buffer]
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: 16 })
  decipher.setAAD(Buffer.from(aad)).setAuthTag(tag)
  return Buffer.concat([decipher.update(text), decipher.final()])
}

const valueAad = (organizationId: string, place: SealedPlace): string =>
  JSON.stringify(['v1', organizationId, place.table, place.row, place.column])

const keyAad = (organizationId: string, dataKeyId: string): string =>
  JSON.stringify(['v1', organizationId, 'data_key', dataKeyId])

const createMasterKeys = (file: string, loaded: readonly MasterKey[]): MasterKeys => {
  let keys = loaded
  const known = (id: string) => keys.find((each) => each.id === id)
  return {
    first: () => keys[0]!,
    async find(id) {
      // A rotation adds a key to the file while we run.
      if (known(id) === undefined) keys = (await readMasterKeys(file)) ?? keys
      const found = known(id)
      if (found === undefined) throw new Error('a data key is sealed with a master key that is not in the key file')
      return found
    },
  }
}

const unwrap = async (keys: MasterKeys, row: DataKeyRow): Promise<DataKey> => {
  const master = await keys.find(row.master_key_id)
  const key = decrypt(master.key, keyAad(row.organization_id, row.id), row.wrapped.split('.'))
  return { id: row.id, masterKeyId: master.id, key, uses: 0 }
}

const wrap = (master: MasterKey, organizationId: string, dataKeyId: string, key: Buffer): string =>
  encrypt(master.key, keyAad(organizationId, dataKeyId), key).join('.')

/** The keys that fit the data. Throws a one-line error if they do not; creates a file only if nothing is sealed yet. */
const loadMasterKeys = async (database: Database, file: string): Promise<MasterKey[]> => {
  const used = await database.query<{ master_key_id: string }>('select distinct master_key_id from data_key')
  let keys = await readMasterKeys(file)
  if (keys === null) {
    if (used.length > 0)
      throw new Error(
        `the master key file ${file} is missing, but the database has secrets sealed with it: restore the file`,
      )
    await createMasterKey(file)
    keys = await readMasterKeys(file)
  }
  const missing = used.filter(({ master_key_id }) => !keys?.some(({ id }) => id === master_key_id))
  if (keys === null || missing.length > 0)
    throw new Error(`the master key file ${file} does not have the key that sealed this database's secrets: restore it`)
  return keys
}

/** Reads and makes data keys; remembers them, since opening one costs a statement. */
const createKeyring = (database: Database, keys: MasterKeys) => {
  const byId = new Map<string, Promise<DataKey>>()
  const current = new Map<string, Promise<DataKey>>()

  const remember = <K>(map: Map<K, Promise<DataKey>>, at: K, load: () => Promise<DataKey>): Promise<DataKey> => {
    const known = map.get(at)
    if (known !== undefined) return known
    const loading = load()
    map.set(at, loading)
    loading.catch(() => map.delete(at))
    return loading
  }
  const readCurrent = async (organizationId: string): Promise<DataKey | undefined> => {
    const [row] = await database.query<DataKeyRow>(
      `select id, organization_id, master_key_id, wrapped from data_key where organization_id = $1 and retired_at is null`,
      [organizationId],
    )
    return row && unwrap(keys, row)
  }
  const create = async (organizationId: string, db: Queryable = database): Promise<void> => {
    const id = newId()
    const master = keys.first()
    await db.query(
      `insert into data_key (id, organization_id, master_key_id, wrapped) values ($1, $2, $3, $4)
       on conflict (organization_id) where retired_at is null do nothing`,
      [id, organizationId, master.id, wrap(master, organizationId, id, randomBytes(32))],
    )
  }
  const loadCurrent = async (organizationId: string): Promise<DataKey> => {
    const found = await readCurrent(organizationId)
    if (found !== undefined) return found
    // Of two first writers one inserts; both then read the same row.
    await create(organizationId)
    const made = await readCurrent(organizationId)
    if (made === undefined) throw new Error('the data key of an organization was retired while it was created')
    return made
  }
  const loadById = async (organizationId: string, id: string): Promise<DataKey> => {
    const [row] = await database.query<DataKeyRow>(
      `select id, organization_id, master_key_id, wrapped from data_key where id = $1 and organization_id = $2`,
      [id, organizationId],
    )
    if (row === undefined) throw new Error('the data key of a sealed value no longer exists')
    return unwrap(keys, row)
  }
  return {
    current: (organizationId: string) => remember(current, organizationId, () => loadCurrent(organizationId)),
    byId: (organizationId: string, id: string) =>
      remember(byId, `${organizationId} ${id}`, () => loadById(organizationId, id)),
    // Made at once, under our first master key: another replica may not know that one yet.
    renew: async (organizationId: string) => {
      await database.transaction(async (tx) => {
        await tx.query(
          `update data_key set retired_at = clock_timestamp() where organization_id = $1 and retired_at is null`,
          [organizationId],
        )
        await create(organizationId, tx)
        await tx.query(`select pg_notify('${channel}', '')`)
      })
      current.delete(organizationId)
    },
    /** Replaces the known keys once the new ones are read: sealing does not wait for that. */
    refresh: async () => {
      for (const organizationId of [...current.keys()]) {
        const fresh = await loadCurrent(organizationId).catch(() => null)
        if (fresh === null) current.delete(organizationId)
        else if ((await current.get(organizationId))?.id !== fresh.id)
          current.set(organizationId, Promise.resolve(fresh))
      }
    },
    forget: () => {
      current.clear()
      byId.clear()
    },
  }
}

const rewrapAll = async (database: Database, keys: MasterKeys): Promise<number> => {
  const first = keys.first()
  const rows = await database.query<DataKeyRow>(
    `select id, organization_id, master_key_id, wrapped from data_key where master_key_id <> $1`,
    [first.id],
  )
  for (const row of rows) {
    const { key } = await unwrap(keys, row)
    await database.query(`update data_key set master_key_id = $2, wrapped = $3 where id = $1 and master_key_id = $4`, [
      row.id,
      first.id,
      wrap(first, row.organization_id, row.id, key),
      row.master_key_id,
    ])
  }
  return rows.length
}

/** A sealed value that no key can open; anything else that `open` rejects with is about keys or the database. */
export class DamagedValue extends Error {}

/**
 * Reads the master keys, creating the file (mode 0600) if the database has no data key yet. Rejects with a clear
 * one-line error if the file is missing, unreadable or not the one that sealed this database.
 */
export const createSealer = async (options: { database: Database; masterKeyFile: string }): Promise<Sealer> => {
  const { database } = options
  const keys = createMasterKeys(options.masterKeyFile, await loadMasterKeys(database, options.masterKeyFile))
  const keyring = createKeyring(database, keys)
  await database.listen(channel, () => void keyring.refresh())

  const open = async (organizationId: string, place: SealedPlace, sealed: string): Promise<Secret<string>> => {
    const [version, , dataKeyId = '', ...parts] = sealed.split('.')
    if (version !== 'v1' || parts.length !== 3)
      throw new DamagedValue(`a sealed value of ${place.table} has an unknown format`)
    const { key } = await keyring.byId(organizationId, dataKeyId)
    try {
      return new Secret(decrypt(key, valueAad(organizationId, place), parts).toString('utf8'))
    } catch (cause) {
      throw new DamagedValue(`a sealed value of ${place.table} cannot be opened: it was changed or moved`, { cause })
    }
  }
  return {
    open,
    async prepare(organizationId) {
      await keyring.current(organizationId)
    },
    async seal(organizationId, place, plaintext) {
      const dataKey = await keyring.current(organizationId)
      dataKey.uses++
      if (dataKey.uses === usesPerDataKey) await keyring.renew(organizationId)
      const parts = encrypt(dataKey.key, valueAad(organizationId, place), Buffer.from(plaintext, 'utf8'))
      return ['v1', dataKey.masterKeyId, dataKey.id, ...parts].join('.')
    },
    async rewrap() {
      const count = await rewrapAll(database, keys)
      keyring.forget()
      return count
    },
    rotateDataKey: (organizationId) => keyring.renew(organizationId),
    dataKeys: (organizationId) =>
      database.query<WrappedKey>(
        `select id, master_key_id as "masterKeyId", wrapped from data_key where organization_id = $1
         order by retired_at is null desc, created_at desc limit ${mostKeysAtOnce}`,
        [organizationId],
      ),
    async addDataKeys(organizationId, added) {
      for (const { id, masterKeyId, wrapped } of added) {
        await unwrap(keys, { id, organization_id: organizationId, master_key_id: masterKeyId, wrapped }).catch(
          (cause) => {
            throw new DamagedValue('a data key was not wrapped by a master key of this server', { cause })
          },
        )
        await database.query(
          `insert into data_key (id, organization_id, master_key_id, wrapped, retired_at)
           values ($1, $2, $3, $4, clock_timestamp()) on conflict do nothing`,
          [id, organizationId, masterKeyId, wrapped],
        )
      }
    },
  }
}
