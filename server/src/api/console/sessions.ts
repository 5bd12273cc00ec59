/**
 * Sessions of the web console: after a sign-in the page needs no token. A session is opened by two halves. One is a
 * cookie that no script can read; browsers send it to every port of our host, where services of any organization may
 * listen. The other is the page's key, which the page keeps for its own origin and sends itself; no other page has it.
 * A request with the cookie alone, or from another origin, is a request without a session: neither a form of another
 * site nor a service that received the cookie can act. Sessions end with their token, by signing out, and after a
 * week.
 */
import { timingSafeEqual } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ApiError, badRequest } from '../../lib/errors.ts'
import { isLoopbackHost } from '../../lib/net/loopback.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Database } from '../../store/database.ts'
import { type Authenticator, type Grant, keyHeader, unauthorized } from '../auth/auth.ts'
import type { Lookups } from '../auth/lookups.ts'
import type { Principal } from '../auth/principal.ts'
import type { SignInAudit } from '../auth/sign-in-audit.ts'
import { isSecure, nameFor, sentAs } from '../auth/sign-in-cookies.ts'
import { ownOrigin } from '../cors.ts'
import {
  deleteSession,
  hashOfSecret,
  newSecretText,
  readSession,
  type SessionRow,
  takeCode,
  writeSession,
} from './session-rows.ts'

const keyProtocol = 'console.'
const cookieName = 'slipway_console'
const weekMs = 7 * 24 * 3_600_000
const secretForm = /^[\w-]{43}$/
const cacheMs = 60_000
const cacheSize = 10_000

/** The two halves of a session in a request, not verified yet. */
interface Halves {
  cookie: string
  key: string
}

export interface OpenedSession {
  key: string
  expiresAt: Date
}

export interface Sessions {
  /** Null for a request that carries no session, or that a page of another origin sends. */
  halvesOf(request: FastifyRequest): Halves | null
  /** Rejects with the 401 of a missing token. */
  authenticate(halves: Halves, address: string): Promise<Principal>
  /** Opens a session for a token and sets its cookie. Rejects with the 401. */
  openByToken(request: FastifyRequest, reply: FastifyReply, token: string): Promise<OpenedSession>
  /** The same for the code of a link, which is used up. */
  openByCode(request: FastifyRequest, reply: FastifyReply, code: string): Promise<OpenedSession>
  /** Ends the session of the request, if it has one, and clears its cookie. */
  close(request: FastifyRequest, reply: FastifyReply): Promise<void>
  stop(): void
}

const writeCookie = (request: FastifyRequest, reply: FastifyReply, text: string, seconds: number): void => {
  const secure = isSecure(request) ? '; Secure' : ''
  const where = `Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure}`
  reply.header('set-cookie', `${nameFor(request, cookieName)}=${text}; ${where}`)
}

/** If it was sent twice, one was planted: neither is used. */
const cookieOf = (request: FastifyRequest): string | null => {
  const [text = '', ...more] = sentAs(request, nameFor(request, cookieName))
  return more.length === 0 && secretForm.test(text) ? text : null
}

/** Pages cannot set headers of a websocket: there, the key is one of its subprotocols. */
const keyOf = ({ headers }: FastifyRequest): string | null => {
  const protocols = headers['sec-websocket-protocol']?.split(',').map((each) => each.trim()) ?? []
  const fromProtocol = protocols.find((each) => each.startsWith(keyProtocol))?.slice(keyProtocol.length)
  const text = headers[keyHeader] ?? fromProtocol
  return typeof text === 'string' && secretForm.test(text) ? text : null
}

/** Browsers say which page a request comes from; a program may omit that, and has both halves if it sends the rest. */
export const isOwnPage = (request: FastifyRequest): boolean => {
  const { origin, 'sec-fetch-site': site } = request.headers
  return (origin === undefined || origin === ownOrigin(request)) && (site === undefined || site === 'same-origin')
}

const halvesOf = (request: FastifyRequest): Halves | null => {
  const [cookie, key] = [cookieOf(request), keyOf(request)]
  return cookie === null || key === null || !isOwnPage(request) ? null : { cookie, key }
}

/** Over plain http the session could be stolen on the network. */
export const refuseOpenly = (request: FastifyRequest): void => {
  if (isSecure(request) || isLoopbackHost(request.host)) return
  throw badRequest(
    'Open the console over https (behind a proxy, name it in SLIPWAY_TRUSTED_PROXIES) or at the address of its own machine.',
    undefined,
    'console_needs_https',
  )
}

interface Cached {
  row: SessionRow
  readMs: number
}

const createRows = (database: Database, clock: Clock, inTurn: Lookups) => {
  const cache = new Map<string, Cached>()
  let generation = 0
  return {
    clear() {
      generation += 1
      cache.clear()
    },
    async read(hash: Buffer, address: string): Promise<SessionRow | null> {
      const name = hash.toString('base64')
      const cached = cache.get(name)
      if (cached !== undefined && clock.monotonicMs() - cached.readMs < cacheMs) return cached.row
      const started = generation
      const row = await inTurn(address, () => readSession(database, hash))
      if (cache.size >= cacheSize) cache.clear()
      if (row === null) cache.delete(name)
      else if (started === generation) cache.set(name, { row, readMs: clock.monotonicMs() })
      return row
    },
  }
}

export const createSessions = async (
  { database, clock }: { database: Database; clock: Clock },
  authenticator: Authenticator,
  /** A sign-in counts as a request of the caller that it signs in; throws if there were too many. */
  count: (principal: Principal, reply: FastifyReply) => void,
  audit: SignInAudit,
): Promise<Sessions> => {
  const rows = createRows(database, clock, authenticator.inTurn)
  const stop = await database.listen('slipway_token', rows.clear)

  const authenticate = async ({ cookie, key }: Halves, address: string): Promise<Principal> => {
    const row = await rows.read(hashOfSecret(cookie), address)
    if (row === null || row.expiresAt.getTime() <= clock.now().getTime()) throw unauthorized()
    if (!timingSafeEqual(row.keyHash, hashOfSecret(key))) throw unauthorized()
    return authenticator.authenticateGrant(row, address)
  }
  const open = async (request: FastifyRequest, reply: FastifyReply, grant: Grant): Promise<OpenedSession> => {
    const [secret, key] = [newSecretText(), newSecretText()]
    const now = clock.now().getTime()
    const expiresAt = new Date(Math.min(now + weekMs, grant.expiresAt?.getTime() ?? Number.POSITIVE_INFINITY))
    await writeSession(database, { hash: hashOfSecret(secret), keyHash: hashOfSecret(key), grant, expiresAt })
    writeCookie(request, reply, secret, Math.max(1, Math.floor((expiresAt.getTime() - now) / 1000)))
    return { key, expiresAt }
  }
  return {
    halvesOf,
    authenticate,
    async openByToken(request, reply, token) {
      const { principal, grant } = await authenticator.grantOf(token, request.ip)
      count(principal, reply)
      const opened = await open(request, reply, grant)
      await audit.signedIn(principal, principal.account === null ? 'TOKEN' : 'JWT', request)
      return opened
    },
    async openByCode(request, reply, code) {
      const take = () => authenticator.inTurn(request.ip, () => takeCode(database, code))
      const tokenHash = secretForm.test(code) ? await take() : null
      if (tokenHash === null)
        throw new ApiError(
          401,
          'link_used',
          'This link has been used or has expired: sign in with the admin token, which the first start printed.',
        )
      const grant: Grant = { tokenHash, claims: null, jwtHash: null, expiresAt: null }
      const principal = await authenticator.authenticateGrant(grant, request.ip)
      count(principal, reply)
      const opened = await open(request, reply, { ...grant, expiresAt: principal.expiresAt })
      await audit.signedIn(principal, 'LINK', request)
      return opened
    },
    async close(request, reply) {
      const halves = halvesOf(request)
      const row = halves === null ? null : await rows.read(hashOfSecret(halves.cookie), request.ip)
      if (row === null || !timingSafeEqual(row.keyHash, hashOfSecret(halves!.key))) throw unauthorized()
      // Its token may have been revoked meanwhile: then the session ends all the same.
      const principal = await authenticator.authenticateGrant(row, request.ip).catch(() => null)
      await deleteSession(database, hashOfSecret(halves!.cookie))
      if (principal !== null) await audit.signedOut(principal, request)
      writeCookie(request, reply, '', 0)
    },
    stop,
  }
}
