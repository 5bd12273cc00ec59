/**
 * JWTs of the one issuer that the operator configures. Promises that a token never chooses its own key, algorithm or
 * issuer; keys come from the issuer's published set, cached for ten minutes and fetched again for an unknown key at
 * most once a minute. Keeps no durable state. Knows nothing of accounts.
 */

import {
  createLocalJWKSet,
  decodeProtectedHeader,
  errors,
  type JSONWebKeySet,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
} from 'jose'
import { unavailable } from '../../lib/errors.ts'
import { readJson } from '../../lib/foreign-text/read-json.ts'
import type { Log } from '../../lib/log.ts'
import type { Outbound } from '../../lib/net/outbound.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { OidcSettings } from '../parts.ts'

/** The claims of a verified token; texts are cut to lengths that the database can store. */
export interface Claims {
  issuer: string
  subject: string
  email: string | null
  emailVerified: boolean
  name: string | null
  nickname: string | null
  firstName: string | null
  lastName: string | null
  picture: string | null
}

export interface Oidc {
  /** Null for anything but a valid token. Rejects with a 503 if the issuer's keys cannot be fetched. */
  verify(token: string): Promise<Claims | null>
}

const algorithms = ['RS256', 'ES256', 'EdDSA']
const types = [undefined, 'jwt', 'at+jwt', 'application/at+jwt']
const selfChosen = ['jwk', 'jku', 'x5u', 'x5c', 'crit', 'b64']
const maxTokenLength = 8192
const graceSeconds = 60
const maxLifeSeconds = 24 * 3600
const keepKeysMs = 600_000
const refetchMs = 60_000
const failedMs = 5000
const keepVerifiedMs = 10_000
const maxVerified = 5000
const maxDocumentBytes = 512 * 1024

/** Whether a bearer token has the form of a JWT, and so is never one of ours. */
export const looksLikeJwt = (token: string): boolean => /^eyJ[\w-]*\.[\w-]+\.[\w-]*$/.test(token)

const headerFits = (token: string): boolean => {
  const header = decodeProtectedHeader(token)
  return (
    algorithms.includes(header.alg ?? '') &&
    types.includes(header.typ?.toLowerCase()) &&
    selfChosen.every((name) => !(name in header))
  )
}

const textOf = (value: unknown, maxLength = 255): string | null =>
  typeof value === 'string' && value !== '' && !value.includes('\0') ? value.slice(0, maxLength) : null

/** Already issued, and valid for a day at most: a stolen one has limited use. */
const isShortLived = ({ exp, iat }: JWTPayload, now: number): boolean =>
  typeof iat === 'number' && iat <= now + graceSeconds && exp! <= iat + maxLifeSeconds

const claimsOf = (payload: JWTPayload, now: number): Claims | null => {
  const subject = textOf(payload.sub, 1024)
  if (subject === null || subject.length > 255 || !isShortLived(payload, now)) return null
  return {
    issuer: payload.iss!,
    subject,
    email: textOf(payload.email, 320),
    emailVerified: payload.email_verified === true,
    name: textOf(payload.name),
    nickname: textOf(payload.nickname) ?? textOf(payload.preferred_username),
    firstName: textOf(payload.given_name),
    lastName: textOf(payload.family_name),
    picture: textOf(payload.picture, 2048),
  }
}

export interface OidcParts {
  outbound: Outbound
  clock: Clock
  log: Log
}

/** A URL from the issuer's discovery document; throws if it has no usable one. */
export const endpointIn = (document: Record<string, unknown>, name: string, issuer: string): string => {
  const url = document[name]
  const protocol = typeof url === 'string' ? URL.parse(url)?.protocol : undefined
  // Plain http is accepted only from an issuer that itself uses http, which the settings allow only on this machine.
  if (protocol !== 'https:' && !(protocol === 'http:' && issuer.startsWith('http:')))
    throw new Error(`the issuer's discovery document has no usable ${name}`)
  return url as string
}

const fetchJson = async <Document = Record<string, unknown>>(
  { outbound }: OidcParts,
  url: string,
): Promise<Document> => {
  const headers = { accept: 'application/json' }
  const answer = await outbound.request({ method: 'GET', url, headers, maxResponseBytes: maxDocumentBytes })
  if (answer.status !== 200 || answer.truncated) throw new Error(`the issuer answered with status ${answer.status}`)
  return readJson(answer.body, { mostValues: 10_000 }) as Document
}

export const readDocument = async (parts: OidcParts, issuer: string): Promise<Record<string, unknown>> => {
  const document = await fetchJson(parts, `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`)
  if (document.issuer !== issuer) throw new Error("the issuer's discovery document names another issuer")
  return document
}

const fetchKeys = async (parts: OidcParts, issuer: string): Promise<JWTVerifyGetKey> => {
  const url = endpointIn(await readDocument(parts, issuer), 'jwks_uri', issuer)
  return createLocalJWKSet(await fetchJson<JSONWebKeySet>(parts, url))
}

/** The issuer's keys: one fetch at a time; the old ones are used as long as new ones cannot be fetched. */
const createKeys = (parts: OidcParts, issuer: string) => {
  const { clock, log } = parts
  let keys: JWTVerifyGetKey | undefined
  let fetchedMs = Number.NEGATIVE_INFINITY
  let triedMs = Number.NEGATIVE_INFINITY
  let renewedMs = Number.NEGATIVE_INFINITY
  let fetching: Promise<void> | undefined
  const load = async (): Promise<void> => {
    triedMs = clock.monotonicMs()
    try {
      keys = await fetchKeys(parts, issuer)
      fetchedMs = triedMs
    } catch (error) {
      log.warn({ err: error }, 'the keys of the OIDC issuer could not be read')
    }
  }
  const refresh = (pauseMs: number): Promise<void> => {
    if (fetching === undefined && clock.monotonicMs() - triedMs < pauseMs) return Promise.resolve()
    fetching ??= load().finally(() => {
      fetching = undefined
    })
    return fetching
  }
  return {
    async get(): Promise<JWTVerifyGetKey> {
      if (keys === undefined) await refresh(failedMs)
      else if (clock.monotonicMs() - fetchedMs > keepKeysMs) await refresh(refetchMs)
      if (keys === undefined) throw unavailable('issuer_unavailable', 'The sign-in provider does not answer.', 5)
      return keys
    },
    /** True if the keys have changed. */
    async renew(): Promise<boolean> {
      if (fetching === undefined && clock.monotonicMs() - renewedMs < refetchMs) return false
      if (fetching === undefined) renewedMs = clock.monotonicMs()
      const before = keys
      await refresh(0)
      return keys !== before
    },
  }
}

export const createOidc = ({ issuer, audience }: OidcSettings, parts: OidcParts): Oidc => {
  const keys = createKeys(parts, issuer)
  const verified = new Map<string, { claims: Claims; untilMs: number }>()
  const check = async (token: string): Promise<JWTPayload> => {
    const options = { issuer, audience: [...audience], algorithms, clockTolerance: graceSeconds }
    const now = { currentDate: parts.clock.now(), requiredClaims: ['exp', 'iat', 'sub'] }
    return (await jwtVerify(token, await keys.get(), { ...options, ...now })).payload
  }
  const checkAgain = async (token: string): Promise<JWTPayload> => {
    try {
      return await check(token)
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey) || !(await keys.renew())) throw error
      return check(token)
    }
  }
  const keep = (token: string, claims: Claims, exp: number): Claims => {
    if (verified.size >= maxVerified) verified.clear()
    const leftMs = (exp + graceSeconds) * 1000 - parts.clock.now().getTime()
    verified.set(token, { claims, untilMs: parts.clock.monotonicMs() + Math.min(keepVerifiedMs, leftMs) })
    return claims
  }
  return {
    async verify(token) {
      const known = verified.get(token)
      if (known !== undefined && parts.clock.monotonicMs() < known.untilMs) return known.claims
      verified.delete(token)
      try {
        if (token.length > maxTokenLength || !headerFits(token)) return null
        const payload = await checkAgain(token)
        const claims = claimsOf(payload, parts.clock.now().getTime() / 1000)
        return claims === null ? null : keep(token, claims, payload.exp!)
      } catch (error) {
        if (error instanceof errors.JOSEError || error instanceof TypeError) return null
        throw error
      }
    },
  }
}
