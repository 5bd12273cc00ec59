/**
 * One conversation with a registry of images (distribution API, version 2): requests that answer its challenge. Promises
 * that a password goes to the registry and to the token service that it names, over https or within this machine's
 * network only; that a token goes to nobody but the registry; and that every hop passes the policy for outgoing requests.
 */
import { isNear } from './near.ts'
import type { Outbound } from './outbound.ts'
import type { OutboundStream } from './outbound-stream.ts'
import type { Secret } from './secret.ts'

export type RegistryLogin = Secret<{ username: string; password: string }>

/** The registry said no, or something that is no answer. `code` is `denied`, `missing`, `unsupported` or `failed`. */
export class RegistryError extends Error {
  readonly code: 'denied' | 'missing' | 'unsupported' | 'failed'

  constructor(code: RegistryError['code'], message: string) {
    super(message)
    this.name = 'RegistryError'
    this.code = code
  }
}

export interface RegistrySession {
  /** Any status is a result but redirects, which are followed; a 401 is answered once. Destroy the body unless it is read. */
  open(method: 'GET' | 'HEAD', path: string, options: AskOptions): Promise<OutboundStream>
  /** What the engine of another machine needs to ask by itself: a token, or null where none is asked for. */
  token(path: string): Promise<{ kind: 'basic' | 'none' } | { kind: 'token'; token: string }>
}

export interface AskOptions {
  maxBytes: number
  headers?: Record<string, string>
  signal?: AbortSignal
}

interface Followed {
  answer: OutboundStream
  challenge: string | null
}

const maxTokenBytes = 128 << 10
const maxRedirects = 5
const redirects = new Set([301, 302, 303, 307, 308])

export const isHub = (host: string): boolean => /^((index|hub|registry-1|www)\.)?docker\.(io|com)$/.test(host)

/** Where the API is: one public registry has it elsewhere than its name says. */
const apiOrigin = (url: URL): URL => new URL(isHub(url.hostname) ? 'https://registry-1.docker.io' : url.origin)

/** `realm="…",service="…"` of a challenge. */
const parseChallenge = (header: string): Record<string, string> =>
  Object.fromEntries([...header.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name!.toLowerCase(), value!]))

export const readAll = async ({ body }: OutboundStream): Promise<Buffer> => {
  const chunks: Buffer[] = []
  for await (const chunk of body) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

const notARegistry = () => new RegistryError('failed', 'The registry did not answer as a registry.')

export const parseObject = (text: string): Record<string, unknown> => {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>
  } catch {}
  throw notARegistry()
}

export const refuseStatus = (status: number): void => {
  if (status === 401 || status === 403) throw new RegistryError('denied', 'The registry does not admit this login.')
  if (status === 404) throw new RegistryError('missing', 'The registry has no such image.')
  if (status === 405 || status === 400) throw new RegistryError('unsupported', 'The registry does not tell this.')
  if (status !== 200 && status !== 206)
    throw new RegistryError('failed', `The registry answered with status ${status}.`)
}

/** Only these two names, letter by letter: what else an address answers that is no token service goes nowhere. */
const tokenOf = (text: string): string => {
  const answer = parseObject(text)
  const found = ['token', 'access_token'].map((name) => (Object.hasOwn(answer, name) ? answer[name] : undefined))
  const token = found.find((each) => typeof each === 'string' && /^[\x21-\x7e]{1,65536}$/.test(each))
  if (typeof token !== 'string') throw new RegistryError('failed', 'The token service of the registry gave no token.')
  return token
}

/** `signal` ends whatever is asked. */
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
    if (to.protocol === 'http:' && (origin.protocol === 'https:' || !(await isNear(outbound, to))))
      throw new RegistryError('denied', 'A password is not sent over plain http: use an https address.')
    const { username, password } = login.reveal()
    return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
  }

  /** The target of a redirect. From https it leads to https only. */
  const targetOf = (from: URL, { headers }: OutboundStream): URL => {
    const target = URL.parse(headers.location ?? '', from.href)
    if (target === null || (from.protocol === 'https:' && target.protocol !== 'https:'))
      throw new RegistryError('failed', 'The registry leads to an address that cannot be used.')
    return target
  }

  /** Null where nothing is asked for, or somebody else than the registry asks. */
  const challengeOf = (target: URL, { status, headers }: OutboundStream): string | null =>
    status === 401 && target.origin === origin.origin ? (headers['www-authenticate'] ?? '') : null

  /** Whoever a redirect leads to gets no credential, unless it is the registry itself. */
  const follow = async (method: string, first: URL, options: AskOptions): Promise<Followed> => {
    let target = first
    let sends = authorization !== null
    for (let hops = 0; ; hops += 1) {
      sends &&= target.origin === origin.origin
      const headers = { ...options.headers, ...(sends ? { authorization: authorization! } : {}) }
      const { maxBytes } = options
      const answer = await outbound.open({ method, url: target, headers, maxBytes, signal: signalOf(options.signal) })
      if (!redirects.has(answer.status)) return { answer, challenge: challengeOf(target, answer) }
      answer.body.destroy()
      if (hops === maxRedirects) throw new RegistryError('failed', 'The registry leads in a circle.')
      target = targetOf(target, answer)
    }
  }

  const fetchToken = async (challenge: string): Promise<string> => {
    const { realm = '', service, scope } = parseChallenge(challenge)
    const at = URL.parse(realm)
    if (at === null) throw new RegistryError('failed', 'The registry names no token service.')
    if (service !== undefined) at.searchParams.set('service', service)
    if (scope !== undefined) at.searchParams.set('scope', scope)
    const own = await basic(at)
    const { status, body, truncated } = await outbound.request({
      method: 'GET',
      url: at,
      headers: { accept: 'application/json', ...(own === null ? {} : { authorization: own }) },
      maxResponseBytes: maxTokenBytes,
      signal,
    })
    refuseStatus(status)
    if (truncated) throw notARegistry()
    return tokenOf(body)
  }

  /** What the registry's challenge asks for: the login itself, or a token that another service makes of it. */
  const authorize = async (challenge: string): Promise<string | null> =>
    /^bearer /i.test(challenge) ? `Bearer ${await fetchToken(challenge)}` : basic(origin)

  const at = (path: string): URL => {
    const url = new URL(path, origin)
    if (url.origin !== origin.origin) throw new RegistryError('failed', 'The registry leads to another host.')
    return url
  }

  return {
    async open(method, path, options) {
      const url = at(path)
      const { answer, challenge } = await follow(method, url, options)
      if (challenge === null) return answer
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
