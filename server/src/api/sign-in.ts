/**
 * Signing in by the browser: the authorization code flow with PKCE. The ID token goes to the page that asked, in the
 * fragment of its address, which no server sees; it is what that page then sends as its Bearer token. Nothing is kept
 * here: what must last from the first step to the last is in a cookie of the browser's own, for ten minutes.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { decodeJwt } from 'jose'
import { ApiError, badRequest, unavailable } from '../lib/errors.ts'
import { unauthorized } from './auth.ts'
import { createOidc, endpointIn, type Oidc, type OidcParts, type OidcSettings, readDocument } from './oidc.ts'
import type { Parts } from './parts.ts'
import { createLimiter, tooManyRequests } from './rate-limit.ts'

const cookieName = 'slipway_sign_in'
const cookieSeconds = 600
const perMinute = 60
const keepDocumentMs = 600_000

interface Attempt {
  state: string
  nonce: string
  verifier: string
  returnTo: string
}

/** A path of this server; whatever could lead elsewhere becomes the first page. */
export const safeReturn = (text: unknown): string =>
  typeof text === 'string' && text.length <= 1024 && /^\/(?![/\\])[\x21-\x7e]*$/.test(text) && !/[#\\]/.test(text)
    ? text
    : '/'

const random = (): string => randomBytes(32).toString('base64url')

const isSecure = ({ headers }: FastifyRequest): boolean => headers['x-forwarded-proto'] === 'https'

/** As the browser has reached us: the issuer compares it with what is registered there. */
const redirectUri = (request: FastifyRequest): string =>
  [isSecure(request) ? 'https:' : 'http:', '', request.headers.host ?? '127.0.0.1', 'auth', 'callback'].join('/')

const setCookie = (request: FastifyRequest, reply: FastifyReply, value: string, seconds: number): void => {
  const secure = isSecure(request) ? '; Secure' : ''
  reply.header('set-cookie', `${cookieName}=${value}; Path=/auth; Max-Age=${seconds}; HttpOnly; SameSite=Lax${secure}`)
}

const readCookie = (request: FastifyRequest): Attempt | null => {
  const found = new RegExp(`(?:^|; )${cookieName}=([\\w-]{1,4000})(?:;|$)`).exec(request.headers.cookie ?? '')
  if (found === null) return null
  try {
    const { state, nonce, verifier, returnTo } = JSON.parse(Buffer.from(found[1]!, 'base64url').toString('utf8'))
    const texts = [state, nonce, verifier, returnTo]
    return texts.every((text) => typeof text === 'string') ? { state, nonce, verifier, returnTo } : null
  } catch {
    return null
  }
}

const isSame = (left: string, right: string): boolean => {
  const [a, b] = [left, right].map((text) => createHash('sha256').update(text).digest())
  return timingSafeEqual(a!, b!)
}

interface Desk {
  settings: OidcSettings
  clientId: string
  parts: OidcParts
  oidc: Oidc
  document(): Promise<Record<string, unknown>>
}

const orUnavailable = (error: unknown): never => {
  throw error instanceof ApiError
    ? error
    : unavailable('issuer_unavailable', 'The sign-in provider does not answer.', 5, error)
}

const createDesk = (parts: Parts, settings: OidcSettings, clientId: string): Desk => {
  const { clock, log, issuerOutbound: outbound = parts.outbound } = parts
  const own = { clock, log, outbound }
  let kept: { document: Record<string, unknown>; readMs: number } | undefined
  return {
    settings,
    clientId,
    parts: own,
    oidc: createOidc(settings, own),
    async document() {
      if (kept === undefined || clock.monotonicMs() - kept.readMs > keepDocumentMs)
        kept = { document: await readDocument(own, settings.issuer).catch(orUnavailable), readMs: clock.monotonicMs() }
      return kept.document
    },
  }
}

const begin = async (desk: Desk, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
  const { return_to: wanted } = request.query as Record<string, unknown>
  const attempt: Attempt = { state: random(), nonce: random(), verifier: random(), returnTo: safeReturn(wanted) }
  const url = new URL(endpointIn(await desk.document(), 'authorization_endpoint', desk.settings.issuer))
  const asked = {
    response_type: 'code',
    client_id: desk.clientId,
    redirect_uri: redirectUri(request),
    scope: 'openid email profile',
    state: attempt.state,
    nonce: attempt.nonce,
    code_challenge: createHash('sha256').update(attempt.verifier).digest('base64url'),
    code_challenge_method: 'S256',
  }
  for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value)
  setCookie(request, reply, Buffer.from(JSON.stringify(attempt)).toString('base64url'), cookieSeconds)
  reply.redirect(url.href, 302)
}

const basic = (id: string, secret: string): string =>
  `Basic ${Buffer.from([id, secret].map(encodeURIComponent).join(':')).toString('base64')}`

const exchange = async (desk: Desk, code: string, attempt: Attempt, redirect: string): Promise<string> => {
  const { clientId, settings, parts } = desk
  const secret = settings.clientSecret?.reveal()
  const form = new URLSearchParams({ grant_type: 'authorization_code', code, redirect_uri: redirect })
  form.set('code_verifier', attempt.verifier)
  if (secret === undefined) form.set('client_id', clientId)
  const answer = await parts.outbound.request({
    method: 'POST',
    url: endpointIn(await desk.document(), 'token_endpoint', settings.issuer),
    headers: {
      'content-type': 'application/x-www-form-urlencoded',
      accept: 'application/json',
      ...(secret === undefined ? {} : { authorization: basic(clientId, secret) }),
    },
    body: form.toString(),
  })
  if (answer.status >= 500) throw unavailable('issuer_unavailable', 'The sign-in provider does not answer.', 5)
  const { id_token: token } = answer.status === 200 ? (JSON.parse(answer.body) as { id_token?: unknown }) : {}
  if (typeof token !== 'string') throw unauthorized()
  return token
}

const finish = async (desk: Desk, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
  const { code, state, error } = request.query as Record<string, unknown>
  const attempt = readCookie(request)
  setCookie(request, reply, '', 0)
  if (attempt === null || typeof state !== 'string' || !isSame(state, attempt.state))
    throw badRequest('This sign-in was not begun here, or too long ago: begin again.', undefined, 'sign_in_unknown')
  if (typeof error === 'string' || typeof code !== 'string')
    throw badRequest('The sign-in provider did not let you in.', undefined, 'sign_in_refused')
  const token = await exchange(desk, code, attempt, redirectUri(request)).catch(orUnavailable)
  if ((await desk.oidc.verify(token)) === null || decodeJwt(token).nonce !== attempt.nonce) throw unauthorized()
  reply.redirect(`${safeReturn(attempt.returnTo)}#id_token=${token}`, 302)
}

const leave = async (desk: Desk, reply: FastifyReply): Promise<void> => {
  const { end_session_endpoint: end } = await desk.document()
  if (typeof end !== 'string') return void reply.redirect('/', 302)
  const url = new URL(endpointIn(await desk.document(), 'end_session_endpoint', desk.settings.issuer))
  url.searchParams.set('client_id', desk.clientId)
  reply.redirect(url.href, 302)
}

/** The pages of signing in, where an issuer and a client of it are configured. */
export const addSignIn = (app: FastifyInstance, parts: Parts): void => {
  const { oidc: settings, rateLimit } = parts.settings
  if (settings?.clientId === undefined) return
  const desk = createDesk(parts, settings, settings.clientId)
  const limiter = createLimiter(rateLimit === 0 ? 0 : perMinute, parts.clock)
  const page = (path: string, show: (desk: Desk, request: FastifyRequest, reply: FastifyReply) => Promise<void>) =>
    app.get(path, async (request, reply) => {
      const allowance = limiter.take(request.ip)
      if (!allowance.admitted) throw tooManyRequests(allowance)
      await show(desk, request, reply)
      return reply
    })
  page('/auth/sign-in', begin)
  page('/auth/callback', finish)
  page('/auth/sign-out', (at, _request, reply) => leave(at, reply))
}
