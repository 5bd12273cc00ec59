/**
 * Sessions that accounts have ended: their JWT is refused until it expires, on every replica, starting with the next
 * request. A token is identified by the content that its issuer signed, because the signature itself can be encoded in
 * more than one way.
 */
import { createHash } from 'node:crypto'
import type { Database, Queryable } from '../../store/database.ts'

const graceSeconds = 60

export const sessionHash = (jwt: string): Buffer =>
  createHash('sha256')
    .update(jwt.slice(0, jwt.lastIndexOf('.')))
    .digest()

/** Refuses the session from now on and ends its open streams. `exp` is the token's. */
export const endSession = (database: Database, hash: Buffer, exp: number): Promise<void> =>
  database.transaction(async (tx) => {
    await tx.query(
      `insert into ended_session (hash, expires_at) values ($1, to_timestamp($2::float8)) on conflict (hash) do nothing`,
      [hash, exp + graceSeconds],
    )
    await tx.query(`select pg_notify('slipway_token', '')`)
  })

export const deleteEndedSessions = async (db: Queryable): Promise<void> => {
  await db.query('delete from ended_session where expires_at < clock_timestamp()')
}
