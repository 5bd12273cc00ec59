/**
 * Sign-in by browser: the authorization code flow with PKCE. The ID token goes to the page that asked, in the fragment
 * of its URL, which no server sees; the page then sends it as its Bearer token. Signing out ends it. State between the
 * steps is in signed cookies; only ended sessions are stored here.
 */

import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { decodeJwt } from 'jose'
import { ApiError, badRequest, unavailable } from '../../lib/errors.ts'
import { readJson } from '../../lib/foreign-text/read-json.ts'
import { readFingerprintKey } from '../../store/installation.ts'
import type { OidcSettings, Parts } from '../parts.ts'
import { tooManyRequests } from '../rate-limit.ts'
import { createThrottle, type Throttle } from '../throttle.ts'
import { createAccounts } from './accounts.ts'
import { tokenInHeader, unauthorized } from './auth.ts'
import { endSession, sessionHash } from './ended-sessions.ts'
import { type Claims, createOidc, endpointIn, type Oidc, type OidcParts, readDocument } from './oidc.ts'
import type { Principal } from './principal.ts'
import type { AccountRef, SignInAudit } from './sign-in-audit.ts'
import { type Cookies, createCookies } from './sign-in-cookies.ts'

const attemptCookie = 'slipway_sign_in'
const sessionCookie = 'slipway_session'
const attemptSeconds = 600
const perMinute = 60
const keepDocumentMs = 600_000

interface Attempt {
  state: string
  nonce: string
  verifier: string
  returnTo: string
}

/** A path on this server; anything that could lead elsewhere becomes the start page. */
export const safeReturn = (text: unknown): string =>
  typeof text === 'string' && text.length <= 1024 && /^\/(?![/\\])[\x21-\x7e]*$/.test(text) && !/[#\\]/.test(text)
    ? text
    : '/'

const random = (): string => randomBytes(32).toString('base64url')

/** The address by which the browser reached us: the issuer compares it with the registered one. */
const redirectUri = (request: FastifyRequest): string =>
  [request.protocol === 'https' ? 'https:' : 'http:', '', request.headers.host ?? '127.0.0.1', 'auth', 'callback'].join(
    '/',
  )

const readAttempt = (signIn: SignIn, request: FastifyRequest): Attempt | null => {
  const { state, nonce, verifier, returnTo } = signIn.cookies.read(request, attemptCookie) ?? {}
  const texts = [state, nonce, verifier, returnTo]
  return texts.every((text) => typeof text === 'string') ? ({ state, nonce, verifier, returnTo } as Attempt) : null
}

const isSame = (left: string, right: string): boolean => {
  const [a, b] = [left, right].map((text) => createHash('sha256').update(text).digest())
  return timingSafeEqual(a!, b!)
}

interface SignIn {
  settings: OidcSettings
  clientId: string
  parts: OidcParts
  oidc: Oidc
  cookies: Cookies
  audit: SignInAudit
  principalOf(claims: Claims): Promise<Principal | null>
  all: Parts
  document(): Promise<Record<string, unknown>>
}

const orUnavailable = (error: unknown): never => {
  throw error instanceof ApiError
    ? error
    : unavailable('issuer_unavailable', 'The sign-in provider does not answer.', 5, error)
}

const createSignIn = async (
  parts: Parts,
  settings: OidcSettings,
  clientId: string,
  audit: SignInAudit,
): Promise<SignIn> => {
  const { clock, log, issuerOutbound: outbound = parts.outbound } = parts
  const root = await readFingerprintKey(parts.database, parts.sealer)
  const key = createHmac('sha256', root).update('slipway cookies of signing in').digest()
  const own = { clock, log, outbound }
  let kept: { document: Record<string, unknown>; readMs: number } | undefined
  return {
    settings,
    clientId,
    parts: own,
    oidc: createOidc(settings, own),
    cookies: createCookies(key, () => clock.now().getTime()),
    audit,
    principalOf: createAccounts(parts, settings.adminEmails),
    all: parts,
    async document() {
      if (kept === undefined || clock.monotonicMs() - kept.readMs > keepDocumentMs)
        kept = { document: await readDocument(own, settings.issuer).catch(orUnavailable), readMs: clock.monotonicMs() }
      return kept.document
    },
  }
}

const begin = async (signIn: SignIn, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
  const { return_to: wanted } = request.query as Record<string, unknown>
  const attempt: Attempt = { state: random(), nonce: random(), verifier: random(), returnTo: safeReturn(wanted) }
  const url = new URL(endpointIn(await signIn.document(), 'authorization_endpoint', signIn.settings.issuer))
  const asked = {
    response_type: 'code',
    client_id: signIn.clientId,
    redirect_uri: redirectUri(request),
    scope: 'openid email profile',
    state: attempt.state,
    nonce: attempt.nonce,
    code_challenge: createHash('sha256').update(attempt.verifier).digest('base64url'),
    code_challenge_method: 'S256',
  }
  for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value)
  signIn.cookies.write(request, reply, attemptCookie, attempt, attemptSeconds)
  reply.redirect(url.href, 302)
}

const basic = (id: string, secret: string): string =>
  `Basic ${Buffer.from([id, secret].map(encodeURIComponent).join(':')).toString('base64')}`

const exchange = async (signIn: SignIn, code: string, attempt: Attempt, redirect: string): Promise<string> => {
  const { clientId, settings, parts } = signIn
  const secret = settings.clientSecret?.reveal()
  const form = new URLSearchParams({ grant_type: 'authorization_code', code, redirect_uri: redirect })
  form.set('code_verifier', attempt.verifier)
  if (secret === undefined) form.set('client_id', clientId)
  const answer = await parts.outbound.request({
    method: 'POST',
    url: endpointIn(await signIn.document(), 'token_endpoint', settings.issuer),
    headers: {
      'content-type': 'application/x-www-form-urlencoded',
      accept: 'application/json',
      ...(secret === undefined ? {} : { authorization: basic(clientId, secret) }),
    },
    body: form.toString(),
  })
  if (answer.status >= 500) throw unavailable('issuer_unavailable', 'The sign-in provider does not answer.', 5)
  const { id_token: token } = answer.status === 200 ? (readJson(answer.body) as { id_token?: unknown }) : {}
  if (typeof token !== 'string') throw unauthorized()
  return token
}

/** Exchanges the code for the issuer's token, for the browser that requested it. */
const receive = async (signIn: SignIn, request: FastifyRequest, attempt: Attempt | null) => {
  const { code, state, error } = request.query as Record<string, unknown>
  if (attempt === null || typeof state !== 'string' || !isSame(state, attempt.state))
    throw badRequest(
      'This sign-in was not started in this browser, or has expired: start again.',
      undefined,
      'sign_in_unknown',
    )
  if (typeof error === 'string' || typeof code !== 'string')
    throw badRequest('The sign-in provider denied access.', undefined, 'sign_in_refused')
  const token = await exchange(signIn, code, attempt, redirectUri(request)).catch(orUnavailable)
  const claims = await signIn.oidc.verify(token)
  if (claims === null || decodeJwt(token).nonce !== attempt.nonce) throw unauthorized()
  const principal = await signIn.principalOf(claims)
  if (principal !== null) await signIn.audit.signedIn(principal, 'OIDC', request)
  return { token, principal }
}

const finish = async (signIn: SignIn, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
  const attempt = readAttempt(signIn, request)
  signIn.cookies.clear(request, reply, attemptCookie)
  const { token, principal } = await receive(signIn, request, attempt).catch(async (error: unknown) => {
    if (error instanceof ApiError && error.status < 500) await signIn.audit.failed('OIDC', request.ip)
    throw error
  })
  const { exp = 0 } = decodeJwt(token)
  const seconds = Math.max(0, Math.ceil(exp - signIn.all.clock.now().getTime() / 1000))
  const account = principal?.account ?? null
  const by = account === null ? {} : { accountId: account.id, name: principal!.name }
  const session = { hash: sessionHash(token).toString('base64url'), exp, ...by }
  signIn.cookies.write(request, reply, sessionCookie, session, seconds)
  reply.redirect(`${safeReturn(attempt!.returnTo)}#id_token=${token}`, 302)
}

interface Session {
  hash: Buffer
  exp: number
  /** Null if the account is not known. */
  by: Principal | AccountRef | null
}

const sessionOf = async (signIn: SignIn, request: FastifyRequest): Promise<Session | null> => {
  const token = tokenInHeader(request.headers.authorization)
  const claims = token === null ? null : await signIn.oidc.verify(token)
  if (claims !== null)
    return { hash: sessionHash(token!), exp: decodeJwt(token!).exp!, by: await signIn.principalOf(claims) }
  const { hash, exp, accountId, name } = signIn.cookies.read(request, sessionCookie) ?? {}
  if (typeof hash !== 'string' || typeof exp !== 'number') return null
  const by = typeof accountId === 'string' && typeof name === 'string' ? { accountId, name } : null
  return { hash: Buffer.from(hash, 'base64url'), exp, by }
}

const signOut = async (signIn: SignIn, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
  const session = await sessionOf(signIn, request)
  if (session !== null) await endSession(signIn.all.database, session.hash, session.exp)
  if (session !== null && session.by !== null) await signIn.audit.signedOut(session.by, request)
  signIn.cookies.clear(request, reply, sessionCookie)
  const { end_session_endpoint: end } = await signIn.document()
  if (typeof end !== 'string') return void reply.redirect('/', 302)
  const url = new URL(endpointIn(await signIn.document(), 'end_session_endpoint', signIn.settings.issuer))
  url.searchParams.set('client_id', signIn.clientId)
  reply.redirect(url.href, 302)
}

export const addSignIn = async (app: FastifyInstance, parts: Parts, audit: SignInAudit): Promise<void> => {
  const { oidc: settings, rateLimit } = parts.settings
  if (settings?.clientId === undefined) return
  const signIn = await createSignIn(parts, settings, settings.clientId, audit)
  const throttle: Throttle = createThrottle(rateLimit === 0 ? 0 : perMinute, parts.clock)
  const page = (path: string, show: (signIn: SignIn, request: FastifyRequest, reply: FastifyReply) => Promise<void>) =>
    app.get(path, async (request, reply) => {
      const allowance = throttle.take(request.ip)
      if (!allowance.admitted) throw tooManyRequests(allowance)
      await show(signIn, request, reply)
      return reply
    })
  page('/auth/sign-in', begin)
  page('/auth/callback', finish)
  page('/auth/sign-out', signOut)
}
