/**
 * Sessions of the console and the codes that open one, stored as hashes. A code is deleted by the statement that reads
 * it, so that it opens one session, whichever server is asked.
 */
import { createHash, randomBytes } from 'node:crypto'
import type { Database, Queryable } from '../../store/database.ts'
import type { Grant } from '../auth/auth.ts'

const codeMinutes = 15
const mostPerToken = 50

export const newSecretText = (): string => randomBytes(32).toString('base64url')

export const hashOfSecret = (text: string): Buffer => createHash('sha256').update(text).digest()

export interface SessionRow extends Grant {
  keyHash: Buffer
  expiresAt: Date
}

export const readSession = async (db: Queryable, hash: Buffer): Promise<SessionRow | null> => {
  const [row] = await db.query<SessionRow>(
    `select key_hash as "keyHash", expires_at as "expiresAt", token_hash as "tokenHash", claims, jwt_hash as "jwtHash"
     from console_session where hash = $1`,
    [hash],
  )
  return row ?? null
}

/** Repeated sign-ins end the oldest sessions of the same token, or of the same JWT. */
const forgetOldest = (column: 'token_hash' | 'jwt_hash'): string => `delete from console_session where hash in (
  select hash from console_session where ${column} = $1 order by created_at desc, hash offset ${mostPerToken})`

export const writeSession = (
  database: Database,
  { hash, keyHash, grant, expiresAt }: { hash: Buffer; keyHash: Buffer; grant: Grant; expiresAt: Date },
): Promise<void> =>
  database.transaction(async (tx) => {
    const { tokenHash, claims, jwtHash } = grant
    await tx.query(
      `insert into console_session (hash, key_hash, token_hash, claims, jwt_hash, expires_at)
       values ($1, $2, $3, $4, $5, $6)`,
      [hash, keyHash, tokenHash, claims === null ? null : JSON.stringify(claims), jwtHash, expiresAt],
    )
    if (tokenHash !== null) await tx.query(forgetOldest('token_hash'), [tokenHash])
    else await tx.query(forgetOldest('jwt_hash'), [jwtHash])
  })

/** Ends a session on every server, with its streams. */
export const deleteSession = (database: Database, hash: Buffer): Promise<void> =>
  database.transaction(async (tx) => {
    await tx.query('delete from console_session where hash = $1', [hash])
    await tx.query(`select pg_notify('slipway_token', '')`)
  })

/** A code that signs in once as the token with this hash, within a quarter of an hour. */
export const createCode = async (db: Queryable, tokenHash: Buffer): Promise<string> => {
  const code = newSecretText()
  await db.query(
    `insert into console_code (hash, token_hash, expires_at)
     values ($1, $2, clock_timestamp() + interval '${codeMinutes} minutes')`,
    [hashOfSecret(code), tokenHash],
  )
  return code
}

/** Returns the hash of a code's token and deletes the code; null for an invalid one. */
export const takeCode = async (db: Queryable, code: string): Promise<Buffer | null> => {
  const [row] = await db.query<{ tokenHash: Buffer; isValid: boolean }>(
    `delete from console_code where hash = $1
     returning token_hash as "tokenHash", expires_at > clock_timestamp() as "isValid"`,
    [hashOfSecret(code)],
  )
  return row?.isValid === true ? row.tokenHash : null
}

export const deleteEndedConsoleSessions = async (db: Queryable): Promise<void> => {
  await db.query('delete from console_session where expires_at < clock_timestamp()')
  await db.query('delete from console_code where expires_at < clock_timestamp()')
}
