/**
 * Authentication: API tokens and, if an issuer is configured, its JWTs, as `Token` or `Bearer`. Promises one response
 * for every cause of failure, revocation on every replica within a second (NOTIFY empties the cache), and that a
 * token's text appears only in the response that created it. Knows no paths and no meaning of scopes. A killed process
 * loses at most a minute of `last_used_at`.
 */
import { createHash, randomBytes } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { decodeJwt } from 'jose'
import { ApiError } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Database, Queryable } from '../../store/database.ts'
import type { Parts } from '../parts.ts'
import { createAccounts } from './accounts.ts'
import { sessionHash } from './ended-sessions.ts'
import { createLookups, type Lookups } from './lookups.ts'
import { type Claims, createOidc, looksLikeJwt } from './oidc.ts'
import { type Scope, scopesOfRole } from './permissions.ts'
import type { Principal } from './principal.ts'
import { readRole } from './role-rows.ts'
import { noteRefused, readToken, type TokenRow } from './token-rows.ts'

const prefix = 'slip_'
const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const tokenForm = /^slip_[0-9A-Za-z]{49}$/
const maximumTokenLength = 8192
const clockGraceMs = 60_000
const cacheSize = 10_000
const cacheMs = 60_000
const refusedPauseMs = 600_000

const toBase62 = (value: bigint, length: number): string => {
  let text = ''
  for (let rest = value; text.length < length; rest /= 62n) text = alphabet[Number(rest % 62n)] + text
  return text
}

const checksum = (text: string): string => toBase62(BigInt(crc32(text)), 6)

/** A new token's text: 32 random bytes and a checksum, so that junk is refused without a lookup. */
export const newTokenText = (): string => {
  const random = toBase62(BigInt(`0x${randomBytes(32).toString('hex')}`), 43)
  return `${prefix}${random}${checksum(random)}`
}

/** False for text that has our prefix but cannot be one of our tokens. */
const isPlausible = (text: string): boolean => {
  if (text.length > maximumTokenLength || text.length === 0) return false
  if (!tokenForm.test(text)) return true
  return checksum(text.slice(5, 48)) === text.slice(48)
}

export const hashOf = (text: string): Buffer => createHash('sha256').update(text).digest()

/** The same response for a missing, unknown, expired or revoked token. */
export const unauthorized = (): ApiError =>
  new ApiError(401, 'unauthorized', 'A valid token is required in the Authorization header.', {
    headers: { 'www-authenticate': 'Bearer' },
  })

/** The half of a console's session that its page sends; the other is a cookie. */
export const keyHeader = 'slipway-console-key'

/** The token in an Authorization header; null if there is none in a known form. */
export const tokenInHeader = (header: string | undefined): string | null =>
  /^(?:token|bearer) +(\S+) *$/i.exec(header ?? '')?.[1] ?? null

/** The password of basic authentication; the user name does not matter. */
export const passwordInHeader = (header: string | undefined): string | null => {
  const encoded = /^basic +([A-Za-z0-9+/]{1,16384}=*) *$/i.exec(header ?? '')?.[1]
  if (encoded === undefined) return null
  const text = Buffer.from(encoded, 'base64').toString('utf8')
  const colon = text.indexOf(':')
  return colon === -1 ? null : text.slice(colon + 1)
}

interface Cached {
  principal: Principal
  /** For a token with a role: what the role grants is read with every request. */
  roleId: string | null
  readMs: number
  usedMs: number
}

/** The part of a token that a session of it stores: the hash of an API token, or the verified claims of a JWT. */
export interface Grant {
  tokenHash: Buffer | null
  claims: Claims | null
  /** The session of the issuer that the JWT belongs to. */
  jwtHash: Buffer | null
  expiresAt: Date | null
}

export interface Authenticator {
  /** Rejects with the 401. `address` is the caller's, for `last_used_ip`. */
  authenticate(token: string | null, address: string): Promise<Principal>
  /** The owner of a valid token, and the part of it that a session may store. Rejects with the 401. */
  grantOf(token: string, address: string): Promise<{ principal: Principal; grant: Grant }>
  /** As the token itself, with the rights that it has now. Rejects with the 401. */
  authenticateGrant(grant: Grant, address: string): Promise<Principal>
  /** For lookups before the caller is authenticated. */
  inTurn: Lookups
  close(): void
}

const toPrincipal = (row: TokenRow): { principal: Principal; roleId: string | null } => {
  const { id, scopes, roleId, isRevoked: _, ...rest } = row
  const principal = {
    ...rest,
    tokenId: id,
    scopes: new Set(scopes),
    role: null,
    within: null,
    account: null,
    memberships: [],
  }
  return { principal, roleId }
}

/** A token without its role is worthless; a role cannot be deleted while a token uses it. */
const withRole = async (database: Database, { principal, roleId }: Cached): Promise<Principal> => {
  if (roleId === null) return principal
  const role = await readRole(database, principal.organizationId, roleId)
  if (role === null) throw unauthorized()
  const within = principal.scopes.size === 0 ? null : principal.scopes
  return { ...principal, role, within, scopes: scopesOfRole(role) }
}

interface JwtAuthentication {
  verify(token: string): Promise<Claims>
  principalOf(claims: Claims, session: Buffer): Promise<Principal>
}

const createJwtAuthentication = (parts: Parts): JwtAuthentication | null => {
  const { settings, issuerOutbound: outbound = parts.outbound, clock, log } = parts
  if (settings.oidc === undefined) return null
  const oidc = createOidc(settings.oidc, { outbound, clock, log })
  const principalOf = createAccounts(parts, settings.oidc.adminEmails)
  return {
    async verify(token) {
      const claims = await oidc.verify(token)
      if (claims === null) throw unauthorized()
      return claims
    },
    async principalOf(claims, session) {
      const principal = await principalOf(claims, session)
      if (principal === null) throw unauthorized()
      return principal
    },
  }
}

export const createAuthenticator = async (parts: Parts): Promise<Authenticator> => {
  const { database, clock, log } = parts
  // By the token's text; apart, by its hash: a hash is never taken for a token.
  const [byText, byHash] = [new Map<string, Cached>(), new Map<string, Cached>()]
  const inTurn = createLookups()
  // A token read while a revocation arrives must not stay in the cache.
  let generation = 0
  const stop = await database.listen('slipway_token', () => {
    generation += 1
    byText.clear()
    byHash.clear()
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
  const refusedMs = new Map<string, number>()
  const onRefused = (token: TokenRow, address: string): void => {
    const now = clock.monotonicMs()
    if (now - (refusedMs.get(token.id) ?? Number.NEGATIVE_INFINITY) < refusedPauseMs) return
    if (refusedMs.size >= cacheSize) refusedMs.clear()
    refusedMs.set(token.id, now)
    noteRefused(database, token, address).catch((error: unknown) =>
      log.warn({ err: error }, 'the use of a revoked token could not be noted'),
    )
  }
  const load = async (cache: Map<string, Cached>, name: string, hash: Buffer, address: string) => {
    const started = generation
    const found = await inTurn(address, () => readToken(database, hash))
    if (found?.isRevoked === true) onRefused(found, address)
    if (found === null || found.isRevoked) return null
    const entry = { ...toPrincipal(found), readMs: clock.monotonicMs(), usedMs: Number.NEGATIVE_INFINITY }
    if (started === generation) {
      if (cache.size >= cacheSize) cache.clear()
      cache.set(name, entry)
    }
    return entry
  }
  const jwts = createJwtAuthentication(parts)
  const find = async (cache: Map<string, Cached>, name: string, hash: () => Buffer, address: string) => {
    const cached = cache.get(name)
    const fresh = cached !== undefined && clock.monotonicMs() - cached.readMs < cacheMs
    const entry = fresh ? cached : await load(cache, name, hash(), address)
    if (entry === null) cache.delete(name)
    if (entry === null || isExpired(entry.principal)) throw unauthorized()
    if (cached !== undefined && entry !== cached) entry.usedMs = cached.usedMs
    noteUse(entry, address)
    return entry.roleId === null ? entry.principal : withRole(database, entry)
  }
  const authenticate = async (token: string | null, address: string): Promise<Principal> => {
    if (token !== null && jwts !== null && looksLikeJwt(token))
      return jwts.principalOf(await jwts.verify(token), sessionHash(token))
    if (token === null || !isPlausible(token)) throw unauthorized()
    return find(byText, token, () => hashOf(token), address)
  }
  return {
    authenticate,
    async grantOf(token, address) {
      const principal = await authenticate(token, address)
      if (jwts === null || !looksLikeJwt(token)) {
        const { expiresAt } = principal
        return { principal, grant: { tokenHash: hashOf(token), claims: null, jwtHash: null, expiresAt } }
      }
      const claims = await jwts.verify(token)
      const expiresAt = new Date(decodeJwt(token).exp! * 1000)
      return { principal, grant: { tokenHash: null, claims, jwtHash: sessionHash(token), expiresAt } }
    },
    async authenticateGrant({ tokenHash, claims, jwtHash }, address) {
      if (tokenHash !== null) return find(byHash, tokenHash.toString('base64'), () => tokenHash, address)
      if (jwts === null || claims === null || jwtHash === null) throw unauthorized()
      return jwts.principalOf(claims, jwtHash)
    },
    inTurn,
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
  /** Decides instead of scopes; scopes, if any, then narrow it. */
  roleId?: string | null
  isOperator?: boolean
}

/** Writes a token and returns its id and text; the text is stored nowhere. Throws 23505 if the name is taken. */
export const createToken = async (
  db: Queryable,
  token: NewToken,
  text = newTokenText(),
): Promise<{ id: string; token: string }> => {
  const id = newId()
  await db.query(
    `insert into api_token (id, organization_id, name, description, prefix, hash, scopes, created_by, expires_at,
       role_id, is_operator) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
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
      token.roleId ?? null,
      token.isOperator ?? false,
    ],
  )
  return { id, token: text }
}
