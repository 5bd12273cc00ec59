/**
 * Reading from an image registry: which images and tags it has (the protocol is in registry-session.ts). Promises that
 * responses are read up to a limit and pages never lead to another host.
 */
import type { Outbound, OutboundResponse } from '../net/outbound.ts'
import { Secret } from '../secret.ts'
import { createRegistrySession, isHub, RegistryError, readAll, readObject, refuseStatus } from './registry-session.ts'

export { RegistryError }

interface RegistryAccess {
  /** `https://registry.example.org`; the path is ignored. */
  url: string
  username: string | null
  password: Secret<string> | null
}

export interface RegistryClient {
  tags(image: string): Promise<string[]>
  hasTag(image: string, tag: string): Promise<boolean>
  /** Names of its repositories, at most 1000; many public registries do not list them. */
  images(): Promise<string[]>
}

const pageSize = 100
const maxPages = 10
const mostNames = 1000
const maxBytes = 4 << 20
const accept = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ')

const stringsOf = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((each) => typeof each === 'string') : []

const nextPath = ({ headers }: Pick<OutboundResponse, 'headers'>): string | null =>
  /<([^>]+)>\s*;\s*rel="?next"?/.exec(headers.link ?? '')?.[1] ?? null

/** `signal` aborts all requests. */
export const createRegistryClient = (
  outbound: Outbound,
  { url: text, username, password }: RegistryAccess,
  signal?: AbortSignal,
): RegistryClient => {
  const url = new URL(text)
  const login = username === null || password === null ? null : new Secret({ username, password: password.reveal() })
  const session = createRegistrySession(outbound, { url, login }, signal)
  const ask = (method: 'GET' | 'HEAD', path: string) => session.open(method, path, { maxBytes, headers: { accept } })

  const listAll = async (path: string, field: string): Promise<string[]> => {
    let found: string[] = []
    let next: string | null = `${path}?n=${pageSize}`
    for (let page = 0; next !== null && page < maxPages; page += 1) {
      const response = await ask('GET', next)
      const body = await readAll(response)
      refuseStatus(response)
      found = found.concat(stringsOf((await readObject(body, url.host))[field])).slice(0, mostNames)
      next = nextPath(response)
    }
    return found
  }

  const nameOf = (image: string): string => (isHub(url.hostname) && !image.includes('/') ? `library/${image}` : image)

  return {
    tags: (image) => listAll(`/v2/${nameOf(image)}/tags/list`, 'tags'),
    async hasTag(image, tag) {
      const answer = await ask('HEAD', `/v2/${nameOf(image)}/manifests/${tag}`)
      answer.body.destroy()
      if (answer.status === 404) return false
      refuseStatus(answer)
      return true
    },
    images: () => listAll('/v2/_catalog', 'repositories'),
  }
}
