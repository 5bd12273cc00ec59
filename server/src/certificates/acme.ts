/**
 * An ACME server (RFC 8555) as a certificate authority, by the package acme-client. Its HTTP is replaced: requests go
 * through our own outgoing client, which connects to checked addresses only, and every failure is ours to judge, because
 * the package would wait as long as a server asks it to.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import { generateKeyPair } from 'node:crypto'
import { promisify } from 'node:util'
import type * as Acme from 'acme-client'
import { readJson } from '../lib/foreign-text/read-json.ts'
import { type Outbound, OutboundFailed, OutboundRefused } from '../lib/net/outbound.ts'
import { sanitizeText } from '../lib/sanitize-text.ts'
import type { Secret } from '../lib/secret.ts'
import { AuthorityProblem, type CertificateAuthority, type ChallengeKind, type OrderView } from './authority.ts'

export interface AcmeSettings {
  directory: string
  email: string | undefined
  /** External account binding. */
  eab: { kid: string; hmacKey: Secret } | undefined
  /** Further certificate authorities to trust for the directory itself, PEM. */
  ca: string | undefined
}

interface Call {
  outbound: Outbound
  ca: string | undefined
  signal: AbortSignal
}

interface AxiosConfig {
  url?: string
  method?: string
  data?: unknown
  headers?: unknown
}

const most = 262_144
const calls = new AsyncLocalStorage<Call>()
const badNonce = 'urn:ietf:params:acme:error:badNonce'
const longestWaitMs = 7 * 86_400_000

/** PEM, ECDSA P-256. */
export const createAccountKey = async (): Promise<string> => {
  const { privateKey } = await promisify(generateKeyPair)('ec', { namedCurve: 'P-256' })
  return String(privateKey.export({ type: 'pkcs8', format: 'pem' }))
}

/** A number of seconds, or a date. */
const retryAfterIn = (text: string | undefined): number | undefined => {
  if (text === undefined) return undefined
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now()
  return Number.isFinite(ms) ? Math.min(Math.max(0, ms), longestWaitMs) : undefined
}

interface ProblemDocument {
  type?: unknown
  detail?: unknown
  subproblems?: unknown
}

const documentIn = (body: string): ProblemDocument => {
  try {
    const value = readJson(body) as ProblemDocument | null
    return typeof value === 'object' && value !== null ? value : {}
  } catch {
    return {}
  }
}

/** In the CA's words, as far as they can be shown. */
const wordsOf = ({ detail }: ProblemDocument): string =>
  typeof detail === 'string' ? sanitizeText(detail).replaceAll(/\s+/g, ' ').trim().slice(0, 500) : ''

const problemOf = (status: number, headers: Record<string, string>, body: string): AuthorityProblem => {
  const document = documentIn(body)
  const name = String(document.type ?? '')
    .split(':')
    .at(-1)
  const words = wordsOf(document)
  const retryAfterMs = retryAfterIn(headers['retry-after'])
  if (status === 429 || name === 'rateLimited')
    return new AuthorityProblem(
      'limited',
      `The certificate authority limits requests: ${words || 'it says nothing more'}`,
      retryAfterMs,
    )
  if (status >= 500 || status < 400)
    return new AuthorityProblem('silent', `The certificate authority answered with status ${status}.`, retryAfterMs)
  const kind = status === 404 || name === 'accountDoesNotExist' ? 'gone' : 'refused'
  return new AuthorityProblem(kind, `The certificate authority refused: ${words || `status ${status}`}`, retryAfterMs)
}

const headersOf = (headers: unknown): Record<string, string> => {
  const plain = (headers as { toJSON?(): Record<string, unknown> }).toJSON?.() ?? (headers as Record<string, unknown>)
  return Object.fromEntries(
    Object.entries(plain).flatMap(([name, value]) => (value == null ? [] : [[name, String(value)]])),
  )
}

/** One request of the package. Its errors have no `config`, so that the package passes them on at once. */
const send = async (config: AxiosConfig) => {
  const { outbound, ca, signal } = calls.getStore()!
  const method = (config.method ?? 'get').toUpperCase()
  const body = typeof config.data === 'string' ? { body: config.data } : {}
  const answer = await outbound
    .request({
      ...{ method, url: config.url ?? '', headers: headersOf(config.headers ?? {}), signal, maxResponseBytes: most },
      ...body,
      ...(ca === undefined ? {} : { ca }),
    })
    .catch((error: unknown) => {
      signal.throwIfAborted()
      if (error instanceof OutboundRefused)
        throw new AuthorityProblem('refused', `The certificate authority's address may not be used: ${error.message}.`)
      const why = error instanceof OutboundFailed ? error.message : 'the request failed'
      throw new AuthorityProblem('silent', `The certificate authority did not answer: ${why}.`)
    })
  const { status, headers } = answer
  if (answer.truncated) throw new AuthorityProblem('silent', "The certificate authority's answer is too large.")
  const isOk = status >= 200 && status < 300
  if (!isOk && documentIn(answer.body).type !== badNonce) throw problemOf(status, headers, answer.body)
  return { data: answer.body, status, statusText: '', headers, config, request: {} }
}

/** The package is loaded when the first certificate is needed: it is as large as the router. */
const load = async (): Promise<typeof Acme> => {
  // A bundle contains CommonJS modules only as a whole.
  const { default: acme } = (await import('acme-client')) as unknown as { default: typeof Acme }
  acme.axios.defaults.adapter = send as never
  return acme
}

const retype = (error: unknown): unknown => {
  if (error instanceof AuthorityProblem) return error
  const message = (error as Error).message ?? ''
  return new AuthorityProblem(
    'silent',
    `The certificate authority's answer cannot be used: ${sanitizeText(message).slice(0, 200)}.`,
  )
}

/** Creates the account once; for an existing one, the address is corrected. */
const makeAccount = async (client: Acme.Client, email: string | undefined): Promise<void> => {
  if (email !== undefined)
    return void (await client.createAccount({ termsOfServiceAgreed: true, contact: [`mailto:${email}`] }))
  // For an existing account the package would send an update without content, which CAs may refuse.
  const { api } = client as unknown as { api: { createAccount(data: object): Promise<unknown> } }
  await api.createAccount({ termsOfServiceAgreed: true })
}

const statuses: readonly unknown[] = ['pending', 'ready', 'processing', 'valid', 'invalid']

/** `accountKey` in PEM: read once, when it is needed. */
export const createAcmeAuthority = (
  settings: AcmeSettings,
  outbound: Outbound,
  accountKey: () => Promise<Secret>,
): CertificateAuthority => {
  const { directory, email, eab, ca } = settings
  let opening: Promise<{ acme: typeof Acme; client: Acme.Client }> | undefined

  const open = async () => {
    const [acme, key] = await Promise.all([load(), accountKey()])
    const client = new acme.Client({
      directoryUrl: directory,
      accountKey: key.reveal(),
      ...(eab === undefined ? {} : { externalAccountBinding: { kid: eab.kid, hmacKey: eab.hmacKey.reveal() } }),
    })
    await makeAccount(client, email)
    return { acme, client }
  }
  /** Runs with the account, which is created once; after a failure the next call tries again. */
  const withClient = <T>(
    signal: AbortSignal,
    work: (client: Acme.Client, acme: typeof Acme) => Promise<T>,
  ): Promise<T> =>
    calls.run({ outbound, ca, signal }, async () => {
      try {
        opening ??= open().catch((error: unknown) => {
          opening = undefined
          throw error
        })
        const { acme, client } = await opening
        return await work(client, acme)
      } catch (error) {
        signal.throwIfAborted()
        // It may have lost its accounts too.
        if (error instanceof AuthorityProblem && error.kind === 'gone') opening = undefined
        throw retype(error)
      }
    })
  const read = (client: Acme.Client, url: string) => client.getOrder({ url } as Acme.Order)

  const challengeOf = async (client: Acme.Client, order: Acme.Order, kind: ChallengeKind) => {
    const authorizations = await client.getAuthorizations(order)
    const failed = authorizations.flatMap(({ challenges }) => challenges).find(({ error }) => error != null)
    const problem = failed === undefined ? null : wordsOf(failed.error as ProblemDocument)
    const [pending] = authorizations.filter(({ status }) => status === 'pending')
    const found = pending?.challenges.find(({ type }) => type === kind)
    if (pending === undefined) return { problem, challenge: null, isAsked: false }
    if (found === undefined) return { problem, challenge: null, isAsked: true }
    const answer = await client.getChallengeKeyAuthorization(found)
    const { token, url, status } = found
    const challenge = { kind, token, answer, url, isAnswered: status !== 'pending' }
    return { problem, challenge, isAsked: true }
  }

  return {
    order: (host, signal) =>
      withClient(signal, async (client) => {
        const { url } = await client.createOrder({ identifiers: [{ type: 'dns', value: host }] })
        return url
      }),
    look: (orderUrl, kind, signal) =>
      withClient(signal, async (client): Promise<OrderView> => {
        const order = await read(client, orderUrl)
        if (!statuses.includes(order.status)) throw new Error('the order has an unknown state')
        const own = order.error == null ? null : wordsOf(order.error as ProblemDocument)
        if (order.status !== 'pending' && order.status !== 'invalid')
          return { status: order.status, challenge: null, problem: own }
        const { problem, challenge, isAsked } = await challengeOf(client, order, kind)
        // Everything is proved, and the order's status follows shortly.
        const status = order.status === 'pending' && !isAsked ? 'processing' : order.status
        return { status, challenge, problem: problem ?? own }
      }),
    answer: (challengeUrl, signal) =>
      withClient(signal, async (client) => {
        await client.completeChallenge({ url: challengeUrl } as Parameters<Acme.Client['completeChallenge']>[0])
      }),
    async createKey() {
      const { crypto } = await load()
      return String(await crypto.createPrivateEcdsaKey('P-256'))
    },
    finalize: (orderUrl, host, key, signal) =>
      withClient(signal, async (client, acme) => {
        const [, csr] = await acme.crypto.createCsr({ altNames: [host] }, key)
        await client.finalizeOrder(await read(client, orderUrl), csr)
      }),
    certificate: (orderUrl, signal) =>
      withClient(signal, async (client) => {
        const order = await read(client, orderUrl)
        // The package would wait for it.
        if (order.status !== 'valid') throw new Error('the order is not finished')
        return client.getCertificate(order)
      }),
    async alpnPair(host, answer) {
      const { crypto } = await load()
      const authorization = { identifier: { type: 'dns', value: host } } as Acme.Authorization
      const key = String(await crypto.createPrivateEcdsaKey('P-256'))
      const [, certificate] = await crypto.createAlpnCertificate(authorization, answer, key)
      return { certificate: String(certificate), key }
    },
  }
}
