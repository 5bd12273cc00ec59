/** The id of the control plane that writes marks, so that a restarted one is not taken for another one. */
import { createHash } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { hostname } from 'node:os'
import type { Queryable } from '../../store/database.ts'

/** A copied folder is another writer; one folder is used by one process at a time. */
const ofFolder = async (dataDir: string): Promise<string> => {
  const { dev, ino, birthtimeMs } = await stat(dataDir)
  return `${hostname()} ${dev} ${ino} ${birthtimeMs}`
}

/** All servers of a database are one control plane; a copy of the database has another address. */
const ofDatabase = async (db: Queryable): Promise<string> => {
  const [row] = await db.query<{ text: string }>(
    `select concat_ws(' ', s.system_identifier, d.oid, host(inet_server_addr()), inet_server_port()) as text
     from pg_control_system() s, pg_database d where d.datname = current_database()`,
  )
  return row!.text
}

/** `isShared`: the database is not in the data directory, and other servers may work on it. */
export const readWriter = async (db: Queryable, dataDir: string, isShared: boolean): Promise<string> => {
  const text = isShared ? await ofDatabase(db) : await ofFolder(dataDir)
  return createHash('sha256').update(text).digest('hex').slice(0, 24)
}
