/**
 * A session with an image registry (distribution API, version 2): requests that answer its challenge. Promises that a
 * password goes only to the registry and the token service it names, and only over https or within this machine's
 * network; that a token goes only to the registry; and that every hop passes the policy for outgoing requests.
 */

import { Readable } from 'node:stream'
import { ForeignTextError, readLargeJson } from '../foreign-text/read-json.ts'
import type { Outbound } from '../net/outbound.ts'
import type { OutboundStream } from '../net/outbound-stream.ts'
import { isPrivateHost } from '../net/private-host.ts'
import { isRateLimited, untilWhen } from '../net/rate-limit.ts'
import { isRedirect, redirectTarget } from '../net/redirects.ts'
import { noteDate } from '../net/seen-clocks.ts'
import type { Secret } from '../secret.ts'

export type RegistryLogin = Secret<{ username: string; password: string }>

/** The registry refused, or its response is invalid. `code` is `denied`, `missing`, `unsupported` or `failed`. */
export class RegistryError extends Error {
  readonly code: 'denied' | 'missing' | 'unsupported' | 'failed'

  constructor(code: RegistryError['code'], message: string) {
    super(message)
    this.name = 'RegistryError'
    this.code = code
  }
}

export interface RegistrySession {
  /**
   * Any status is a result, except redirects, which are followed unless something is written; a 401 is answered once,
   * unless a streamed body was sent. `path` may be an address of the registry. Destroy the answer's body unless it is
   * read.
   */
  open(method: 'GET' | 'HEAD' | 'POST' | 'PATCH' | 'PUT', path: string, options: AskOptions): Promise<RegistryAnswer>
  /**
   * The credentials that an engine on another machine needs for its own requests: a token, or null if none is
   * required.
   */
  token(path: string): Promise<{ kind: 'basic' | 'none' } | { kind: 'token'; token: string }>
}

interface AskOptions {
  maxBytes: number
  headers?: Record<string, string>
  body?: Buffer | Readable
  /** How long the registry may neither send nor accept data. Default 30000. */
  silenceMs?: number
  signal?: AbortSignal
}

interface Followed {
  answer: RegistryAnswer
  challenge: string | null
}

const maxTokenBytes = 128 << 10
const maxRedirects = 5
const writes = new Set(['POST', 'PATCH', 'PUT'])

export const isHub = (host: string): boolean => /^((index|hub|registry-1|www)\.)?docker\.(io|com)$/.test(host)

/** The address of the API: one public registry has it at a different host. */
const apiOrigin = (url: URL): URL => new URL(isHub(url.hostname) ? 'https://registry-1.docker.io' : url.origin)

/** `realm="…",service="…"` of a challenge. */
const parseChallenge = (header: string): Record<string, string> =>
  Object.fromEntries([...header.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name!.toLowerCase(), value!]))

/** A larger announced length is not allocated in advance. */
const mostAnnounced = 64 << 20

/** The bytes of an answer, in a buffer of their own; briefly in memory twice if their length was not announced. */
export const readAll = async ({ headers, body }: OutboundStream): Promise<Buffer> => {
  const announced = Number(headers['content-length'])
  if (announced > 0 && announced <= mostAnnounced) {
    const bytes = Buffer.allocUnsafeSlow(announced)
    let size = 0
    for await (const chunk of body) size += (chunk as Buffer).copy(bytes, size)
    return size === announced ? bytes : Buffer.from(bytes.subarray(0, size))
  }
  const chunks: Buffer[] = []
  for await (const chunk of body) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

const notARegistry = () =>
  new RegistryError('failed', 'The response is not that of a container registry: check its URL.')

/** The object that a registry has sent, up to the usual bounds. */
export const readObject = async (bytes: Buffer | string, owner: string): Promise<Record<string, unknown>> => {
  const value = await readLargeJson(bytes, { owner }).catch((error: unknown) => {
    throw error instanceof ForeignTextError ? notARegistry() : error
  })
  if (typeof value === 'object' && value !== null) return value as Record<string, unknown>
  throw notARegistry()
}

/** An answer of a registry, and whether this server has a login there. */
interface RegistryAnswer extends OutboundStream {
  hasLogin: boolean
}

export const refuseStatus = ({
  status,
  headers,
  hasLogin,
}: Pick<OutboundStream, 'status' | 'headers'> & Partial<RegistryAnswer>): void => {
  if (isRateLimited(status, headers)) {
    const until = untilWhen(headers, Date.now())
    throw new RegistryError(
      'failed',
      `The registry has received too many requests and refuses more${until} (status ${status}).`,
    )
  }
  if (status === 401 || status === 403)
    throw new RegistryError(
      'denied',
      hasLogin === false ? 'The registry requires a login.' : 'The registry rejected this login.',
    )
  if (status === 404) throw new RegistryError('missing', 'The image does not exist in the registry.')
  if (status === 405 || status === 400)
    throw new RegistryError('unsupported', 'The registry does not provide this information.')
  if (status !== 200 && status !== 206)
    throw new RegistryError('failed', `The registry answered with status ${status}.`)
}

/** Only these two fields: anything else that an address returns is ignored. */
const tokenOf = async (text: string, owner: string): Promise<string> => {
  const answer = await readObject(text, owner)
  const found = ['token', 'access_token'].map((name) => (Object.hasOwn(answer, name) ? answer[name] : undefined))
  const token = found.find((each) => typeof each === 'string' && /^[\x21-\x7e]{1,65536}$/.test(each))
  if (typeof token !== 'string') throw new RegistryError('failed', "The registry's token service returned no token.")
  return token
}

/** `signal` aborts all requests. */
export const createRegistrySession = (
  outbound: Outbound,
  { url, login }: { url: URL; login: RegistryLogin | null },
  signal?: AbortSignal,
): RegistrySession => {
  const origin = apiOrigin(url)
  let authorization: string | null = null

  const signalOf = (own?: AbortSignal): AbortSignal | undefined =>
    own === undefined || signal === undefined ? (own ?? signal) : AbortSignal.any([own, signal])

  const basic = async (to: URL): Promise<string | null> => {
    if (login === null) return null
    if (to.protocol === 'http:' && (origin.protocol === 'https:' || !(await isPrivateHost(outbound, to))))
      throw new RegistryError('denied', 'A password cannot be sent over plain http: use an https URL.')
    const { username, password } = login.reveal()
    return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
  }

  /** The target of a redirect. From https it may only lead to https. */
  const targetOf = (from: URL, { headers }: OutboundStream): URL => {
    const target = redirectTarget(from, headers.location)
    if (target === null) throw new RegistryError('failed', 'The registry redirects to an address that is not allowed.')
    return target
  }

  /** Null if no credential is requested, or not by the registry. */
  const challengeOf = (target: URL, { status, headers }: OutboundStream): string | null =>
    status === 401 && target.origin === origin.origin ? (headers['www-authenticate'] ?? '') : null

  /** The target of a redirect gets no credential, unless it is the registry itself. */
  const follow = async (method: string, first: URL, options: AskOptions): Promise<Followed> => {
    let target = first
    let sends = authorization !== null
    for (let hops = 0; ; hops += 1) {
      sends &&= target.origin === origin.origin
      const headers = { ...options.headers, ...(sends ? { authorization: authorization! } : {}) }
      const { signal: own, ...rest } = options
      const opened = await outbound.open({ ...rest, method, url: target, headers, signal: signalOf(own) })
      noteDate(target.host, opened.headers.date)
      const answer = { ...opened, hasLogin: login !== null }
      if (!isRedirect(answer.status) || writes.has(method)) return { answer, challenge: challengeOf(target, answer) }
      answer.body.destroy()
      if (hops === maxRedirects) throw new RegistryError('failed', 'The registry redirects in a loop.')
      target = targetOf(target, answer)
    }
  }

  const fetchToken = async (challenge: string): Promise<string> => {
    const { realm = '', service, scope } = parseChallenge(challenge)
    const at = URL.parse(realm)
    if (at === null) throw new RegistryError('failed', 'The registry does not name a token service.')
    if (service !== undefined) at.searchParams.set('service', service)
    if (scope !== undefined) at.searchParams.set('scope', scope)
    const own = await basic(at)
    const { body, truncated, ...answer } = await outbound.request({
      method: 'GET',
      url: at,
      headers: { accept: 'application/json', ...(own === null ? {} : { authorization: own }) },
      maxResponseBytes: maxTokenBytes,
      signal,
    })
    refuseStatus({ ...answer, hasLogin: own !== null })
    if (truncated) throw notARegistry()
    return tokenOf(body, at.host)
  }

  /** The credential for the registry's challenge: the login itself, or a token issued for it by another service. */
  const authorize = async (challenge: string): Promise<string | null> =>
    /^bearer /i.test(challenge) ? `Bearer ${await fetchToken(challenge)}` : basic(origin)

  const at = (path: string): URL => {
    const url = new URL(path, origin)
    if (url.origin !== origin.origin) throw new RegistryError('failed', 'The registry redirects to another host.')
    return url
  }

  return {
    async open(method, path, options) {
      const url = at(path)
      const { answer, challenge } = await follow(method, url, options)
      if (challenge === null || options.body instanceof Readable) return answer
      const next = await authorize(challenge).catch((error: unknown) => {
        answer.body.destroy()
        throw error
      })
      if (next === null) return answer
      answer.body.destroy()
      authorization = next
      return (await follow(method, url, options)).answer
    },
    async token(path) {
      const { answer, challenge } = await follow('GET', at(path), { maxBytes: 1 << 20 })
      answer.body.destroy()
      if (challenge === null) return { kind: 'none' }
      if (!/^bearer /i.test(challenge)) return { kind: 'basic' }
      return { kind: 'token', token: await fetchToken(challenge) }
    },
  }
}
