/**
 * The conversation with a registry of images (distribution API, version 2): which images and tags it has. Promises that
 * a password goes to the registry and to the token service that it names, over https or within this machine's network
 * only, and that answers are read up to a cap.
 */
import { isNear } from './near.ts'
import type { Outbound, OutboundResponse } from './outbound.ts'
import type { Secret } from './secret.ts'

export interface RegistryAccess {
  /** `https://registry.example.org`; what follows the host is not used. */
  url: string
  username: string | null
  password: Secret<string> | null
}

/** The registry said no, or something that is no answer. `code` is `denied`, `missing`, `unsupported` or `failed`. */
export class RegistryError extends Error {
  readonly code: 'denied' | 'missing' | 'unsupported' | 'failed'

  constructor(code: RegistryError['code'], message: string) {
    super(message)
    this.name = 'RegistryError'
    this.code = code
  }
}

export interface RegistryClient {
  /** Tags of a repository, at most 1000. */
  tags(image: string): Promise<string[]>
  /** Whether a tag is there. */
  hasTag(image: string, tag: string): Promise<boolean>
  /** Names of its repositories, at most 1000; many public registries do not tell. */
  images(): Promise<string[]>
}

const pageSize = 100
const maxPages = 10
const maxResponseBytes = 4 << 20
const accept = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ')

const isHub = (host: string): boolean => /^((index|hub|registry-1|www)\.)?docker\.(io|com)$/.test(host)

/** Where the API is: one public registry has it elsewhere than its name says. */
const originOf = (url: string): URL => {
  const { origin, hostname } = new URL(url)
  return new URL(isHub(hostname) ? 'https://registry-1.docker.io' : origin)
}

/** `realm="…",service="…"` of a challenge. */
const parseChallenge = (header: string): Record<string, string> =>
  Object.fromEntries([...header.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name!.toLowerCase(), value!]))

const parseJson = (text: string): Record<string, unknown> => {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>
  } catch {}
  throw new RegistryError('failed', 'The registry did not answer as a registry.')
}

const stringsOf = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((each) => typeof each === 'string') : []

const refuseStatus = (status: number): void => {
  if (status === 401 || status === 403) throw new RegistryError('denied', 'The registry does not admit this login.')
  if (status === 404) throw new RegistryError('missing', 'The registry has no such image.')
  if (status === 405 || status === 400) throw new RegistryError('unsupported', 'The registry does not tell this.')
  if (status !== 200) throw new RegistryError('failed', `The registry answered with status ${status}.`)
}

const nextPath = (response: OutboundResponse): string | null =>
  /<([^>]+)>\s*;\s*rel="?next"?/.exec(response.headers.link ?? '')?.[1] ?? null

/** `signal` ends whatever is asked of it. */
export const createRegistryClient = (
  outbound: Outbound,
  access: RegistryAccess,
  signal?: AbortSignal,
): RegistryClient => {
  const origin = originOf(access.url)
  let authorization: string | null = null

  const basic = async (to: URL): Promise<string | null> => {
    const { username, password } = access
    if (username === null || password === null) return null
    if (to.protocol === 'http:' && (origin.protocol === 'https:' || !(await isNear(outbound, to))))
      throw new RegistryError('denied', 'A password is not sent over plain http: use an https address.')
    return `Basic ${Buffer.from(`${username}:${password.reveal()}`).toString('base64')}`
  }

  const send = (method: string, url: URL, more: Record<string, string | null>): Promise<OutboundResponse> => {
    const headers = Object.fromEntries(Object.entries({ accept, ...more }).filter(([, value]) => value !== null))
    return outbound.request({ method, url, headers: headers as Record<string, string>, maxResponseBytes, signal })
  }

  /** What the registry's challenge asks for: the login itself, or a token that another service makes of it. */
  const authorize = async (challenge: string): Promise<string | null> => {
    if (!/^bearer /i.test(challenge)) return basic(origin)
    const { realm = '', service, scope } = parseChallenge(challenge)
    if (!URL.canParse(realm)) throw new RegistryError('failed', 'The registry names no token service.')
    const url = new URL(realm)
    if (service !== undefined) url.searchParams.set('service', service)
    if (scope !== undefined) url.searchParams.set('scope', scope)
    const response = await send('GET', url, { authorization: await basic(url) })
    refuseStatus(response.status)
    const { token, access_token: other } = parseJson(response.body)
    const text = token ?? other
    return typeof text === 'string' ? `Bearer ${text}` : null
  }

  const ask = async (method: string, path: string): Promise<OutboundResponse> => {
    const url = new URL(path, origin)
    if (url.origin !== origin.origin) throw new RegistryError('failed', 'The registry leads to another host.')
    const first = await send(method, url, { authorization })
    if (first.status !== 401) return first
    authorization = await authorize(first.headers['www-authenticate'] ?? '')
    return authorization === null ? first : send(method, url, { authorization })
  }

  const listAll = async (path: string, field: string): Promise<string[]> => {
    const found: string[] = []
    let next: string | null = `${path}?n=${pageSize}`
    for (let page = 0; next !== null && page < maxPages; page += 1) {
      const response = await ask('GET', next)
      refuseStatus(response.status)
      found.push(...stringsOf(parseJson(response.body)[field]))
      next = nextPath(response)
    }
    return found
  }

  const nameOf = (image: string): string =>
    isHub(new URL(access.url).hostname) && !image.includes('/') ? `library/${image}` : image

  return {
    tags: (image) => listAll(`/v2/${nameOf(image)}/tags/list`, 'tags'),
    async hasTag(image, tag) {
      const { status } = await ask('HEAD', `/v2/${nameOf(image)}/manifests/${tag}`)
      if (status === 404) return false
      refuseStatus(status)
      return true
    },
    images: () => listAll('/v2/_catalog', 'repositories'),
  }
}
