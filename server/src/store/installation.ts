/** Facts of this installation that all replicas share, created on first use. */
import { randomBytes } from 'node:crypto'
import { newId } from '../lib/ids.ts'
import type { Database } from './database.ts'
import type { Sealer } from './keys/seal.ts'

/** Represents the installation where an organization is required. */
export const installationId = '00000000-0000-0000-0000-000000000000'

const fact = async (database: Database, name: string, make: () => Promise<string> | string): Promise<string> => {
  const read = async () =>
    (await database.query<{ value: string }>('select value from installation where name = $1', [name]))[0]?.value
  const found = await read()
  if (found !== undefined) return found
  await database.query('insert into installation (name, value) values ($1, $2) on conflict do nothing', [
    name,
    await make(),
  ])
  return (await read())!
}

/** SQL for the name by which people reach the published ports of this machine. */
export const publishedHostSql = `coalesce((select value from installation where name = 'outside_host'), 'localhost')`

export const savePublishedHost = async (database: Database, host: string): Promise<void> => {
  await database.query(
    `insert into installation (name, value) values ('outside_host', $1)
     on conflict (name) do update set value = excluded.value where installation.value <> excluded.value`,
    [host],
  )
}

/** The label value on everything this installation creates on an engine. */
export const readOwnerId = (database: Database): Promise<string> => fact(database, 'owner', newId)

/** 32 random bytes, sealed at rest: the key of deployment fingerprints. */
export const readFingerprintKey = async (database: Database, sealer: Sealer): Promise<Buffer> => {
  const place = { table: 'installation', row: 'fingerprint_key', column: 'value' }
  const make = () => sealer.seal(installationId, place, randomBytes(32).toString('base64'))
  const sealed = await fact(database, 'fingerprint_key', make)
  return Buffer.from((await sealer.open(installationId, place, sealed)).reveal(), 'base64')
}
