/**
 * Who asks: API tokens under `Token` and `Bearer` alike. Promises one answer for every cause of failure, revocation on
 * every replica within a second (NOTIFY empties the cache), and a token's text nowhere but in its creation's answer.
 * Knows no path and no scope's meaning. A dead process loses at most a minute of `last_used_at`.
 */
import { createHash, randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { ApiError } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import type { Database, Queryable } from '../store/database.ts'
import type { Principal, Scope } from './operation.ts'
import type { Parts } from './parts.ts'

const prefix = 'slip_'
const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const tokenForm = /^slip_[0-9A-Za-z]{49}$/
const minimumAdminTokenLength = 24
const maximumTokenLength = 8192
const clockGraceMs = 60_000
const cacheSize = 10_000
const cacheMs = 60_000

const toBase62 = (value: bigint, length: number): string => {
  let text = ''
  for (let rest = value; text.length < length; rest /= 62n) text = alphabet[Number(rest % 62n)] + text
  return text
}

const checksum = (text: string): string => toBase62(BigInt(crc32(text)), 6)

/** A new token's text: 32 random bytes and a checksum, so that junk is refused without a look-up. */
export const newTokenText = (): string => {
  const random = toBase62(BigInt(`0x${randomBytes(32).toString('hex')}`), 43)
  return `${prefix}${random}${checksum(random)}`
}

/** False for text that has our prefix and cannot be one of our tokens. */
const isPlausible = (text: string): boolean => {
  if (text.length > maximumTokenLength || text.length === 0) return false
  if (!tokenForm.test(text)) return true
  return checksum(text.slice(5, 48)) === text.slice(48)
}

const hashOf = (text: string): Buffer => createHash('sha256').update(text).digest()

/** The one answer to a missing, unknown, expired or revoked token. */
export const unauthorized = (): ApiError =>
  new ApiError(401, 'unauthorized', 'A valid token is required in the Authorization header.', {
    headers: { 'www-authenticate': 'Bearer' },
  })

/** The token in an Authorization header; null when there is none of a known form. */
export const tokenInHeader = (header: string | undefined): string | null => {
  const match = /^(?:token|bearer) +(\S+) *$/i.exec(header ?? '')
  return match === null ? null : match[1]!
}

interface Cached {
  principal: Principal
  readMs: number
  usedMs: number
}

export interface Authenticator {
  /** Rejects with the 401. `address` is the caller's, for `last_used_ip`. */
  authenticate(token: string | null, address: string): Promise<Principal>
  close(): void
}

const readToken = async (database: Database, hash: Buffer): Promise<Principal | null> => {
  const [row] = await database.query<{
    id: string
    name: string
    organizationId: string
    scopes: Scope[]
    createdBy: string | null
    expiresAt: Date | null
  }>(
    `select id, name, organization_id as "organizationId", scopes, created_by as "createdBy", expires_at as "expiresAt"
     from api_token where hash = $1 and revoked_at is null`,
    [hash],
  )
  if (row === undefined) return null
  const { id, scopes, ...rest } = row
  return { ...rest, tokenId: id, scopes: new Set(scopes) }
}

export const createAuthenticator = async (parts: Parts): Promise<Authenticator> => {
  const { database, clock, log } = parts
  const cache = new Map<string, Cached>()
  // A token read while a revocation arrives must not stay in the cache.
  let generation = 0
  const stop = await database.listen('slipway_token', () => {
    generation += 1
    cache.clear()
  })

  const isExpired = ({ expiresAt }: Principal): boolean =>
    expiresAt !== null && clock.now().getTime() > expiresAt.getTime() + clockGraceMs

  const noteUse = (entry: Cached, address: string): void => {
    const now = clock.monotonicMs()
    if (now - entry.usedMs < 60_000) return
    entry.usedMs = now
    database
      .query('update api_token set last_used_at = clock_timestamp(), last_used_ip = $2 where id = $1', [
        entry.principal.tokenId,
        address,
      ])
      .catch((error: unknown) => log.warn({ err: error }, 'the use of a token could not be noted'))
  }
  const load = async (token: string): Promise<Cached | null> => {
    const started = generation
    const principal = await readToken(database, hashOf(token))
    if (principal === null) return null
    const entry = { principal, readMs: clock.monotonicMs(), usedMs: Number.NEGATIVE_INFINITY }
    if (started === generation) {
      if (cache.size >= cacheSize) cache.clear()
      cache.set(token, entry)
    }
    return entry
  }
  return {
    async authenticate(token, address) {
      if (token === null || !isPlausible(token)) throw unauthorized()
      const cached = cache.get(token)
      const fresh = cached !== undefined && clock.monotonicMs() - cached.readMs < cacheMs
      const entry = fresh ? cached : await load(token)
      if (entry === null) cache.delete(token)
      if (entry === null || isExpired(entry.principal)) throw unauthorized()
      if (cached !== undefined && entry !== cached) entry.usedMs = cached.usedMs
      noteUse(entry, address)
      return entry.principal
    },
    close: stop,
  }
}

export interface NewToken {
  organizationId: string
  name: string
  description?: string | null
  scopes: readonly Scope[]
  expiresAt: Date | null
  createdBy: string | null
}

/** Writes a token and answers its id and text; the text is nowhere kept. 23505 when the name is taken. */
export const createToken = async (
  db: Queryable,
  token: NewToken,
  text = newTokenText(),
): Promise<{ id: string; token: string }> => {
  const id = newId()
  await db.query(
    `insert into api_token (id, organization_id, name, description, prefix, hash, scopes, created_by, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [
      id,
      token.organizationId,
      token.name,
      token.description ?? null,
      text.slice(0, 10),
      hashOf(text),
      token.scopes,
      token.createdBy,
      token.expiresAt,
    ],
  )
  return { id, token: text }
}

const readFileIfThere = async (path: string): Promise<string | null> => {
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

const isKnown = async (db: Queryable, text: string): Promise<boolean> =>
  (await db.query('select 1 from api_token where hash = $1 and revoked_at is null', [hashOf(text)])).length > 0

/** Makes `text` an Admin token of the organization, in the place of the one that had the name. */
const putAdminToken = async (parts: Parts, organizationId: string, name: string, text: string): Promise<void> => {
  if (await isKnown(parts.database, text)) return
  await parts.database.transaction(async (tx) => {
    await tx.query(
      `update api_token set revoked_at = clock_timestamp()
       where organization_id = $1 and lower(name) = lower($2) and revoked_at is null`,
      [organizationId, name],
    )
    await tx.query('delete from api_token where hash = $1', [hashOf(text)])
    await createToken(tx, { organizationId, name, scopes: ['Admin'], expiresAt: null, createdBy: null }, text)
    await tx.query(`select pg_notify('slipway_token', '')`)
  })
}

/**
 * The Admin token of the first start: `SLIPWAY_ADMIN_TOKEN` as it is, else the one in `<dataDir>/admin-token` (made
 * when it is not there, mode 0600). `created` says that this call made it.
 */
export const ensureAdminToken = async (
  parts: Parts,
  organizationId: string,
): Promise<{ token: string; created: boolean; file: string | null }> => {
  const given = parts.settings.adminToken?.reveal()
  if (given !== undefined) {
    if (given.length < minimumAdminTokenLength || /\s/.test(given))
      throw new Error(`SLIPWAY_ADMIN_TOKEN must have at least ${minimumAdminTokenLength} characters and no blanks`)
    await putAdminToken(parts, organizationId, 'SLIPWAY_ADMIN_TOKEN', given)
    return { token: given, created: false, file: null }
  }
  const file = join(parts.settings.dataDir, 'admin-token')
  const kept = await readFileIfThere(file)
  const token = kept ?? newTokenText()
  if (kept === null) await writeFile(file, `${token}\n`, { mode: 0o600 })
  await putAdminToken(parts, organizationId, 'first start', token)
  return { token, created: kept === null, file }
}
