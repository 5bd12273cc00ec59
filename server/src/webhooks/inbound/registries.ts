/**
 * Reads which images registries report as pushed, and whether they know the secret of the webhook. No registry signs
 * what it sends, so the secret is sent along: in a header (Harbor, Docker's own registry), or in the address (Docker
 * Hub). GitHub signs, as for everything else (verify.ts). Only a reason to poll the tag at the registry.
 */
import { createHmac } from 'node:crypto'
import { at, textAt } from '../../lib/foreign-text/fields.ts'
import { readDelivery } from './read-delivery.ts'
import { type Envelope, type Headers, isSame, textOf } from './verify.ts'

export interface PushedImage {
  /** The name that services may have for the image: `owner/name` in lower case, without the registry. */
  path: string
  /** Null: any. */
  tag: string | null
}

const mostImages = 50

/** Replaces the secret in an address, which is seen by more people than a header is. */
export const addressToken = (secret: string): string =>
  createHmac('sha256', secret).update('image pushes').digest('base64url')

/** The credential that a registry presents; null if none. `token`: from the address. */
export const shownBy = (headers: Headers, token: string | undefined): { token: string } | { secret: string } | null => {
  if (token !== undefined) return { token }
  const secret = textOf(headers, 'authorization')?.replace(/^(Bearer|Token) +/i, '')
  return secret === undefined ? null : { secret }
}

/** All secrets are tried, so that the time does not reveal which. */
export const isShown = (shown: { token: string } | { secret: string }, secrets: readonly string[]): boolean =>
  secrets
    .map((secret) => ('token' in shown ? isSame(shown.token, addressToken(secret)) : isSame(shown.secret, secret)))
    .includes(true)

/** Whether the event is about a package of GitHub: these contain images. */
export const isPackage = ({ host, event }: Envelope): boolean =>
  host === 'GITHUB' && (event === 'package' || event === 'registry_package')

const listAt = (value: unknown, ...path: string[]): unknown[] => {
  const found = at(value, ...path)
  return Array.isArray(found) ? found.slice(0, mostImages) : []
}

interface Named {
  path: string
  tag: string
}

/** Each finds nothing in bodies of the others. */
const shapes: readonly ((body: unknown) => Named[])[] = [
  // Docker Hub
  (body) => [{ path: textAt(body, 'repository', 'repo_name'), tag: textAt(body, 'push_data', 'tag') }],
  // Docker's own registry, which also reports pulls and layers
  (body) =>
    listAt(body, 'events')
      .filter((event) => at(event, 'action') === 'push')
      .map((event) => ({ path: textAt(event, 'target', 'repository'), tag: textAt(event, 'target', 'tag') }))
      .filter(({ tag }) => tag !== ''),
  // Harbor
  (body) =>
    listAt(body, 'event_data', 'resources').map((resource) => ({
      path: textAt(body, 'event_data', 'repository', 'repo_full_name'),
      tag: textAt(resource, 'tag'),
    })),
  // GitHub
  ...['package', 'registry_package'].map((name) => (body: unknown) => {
    const owner = textAt(body, name, 'namespace') || textAt(body, name, 'owner', 'login')
    const own = textAt(body, name, 'name')
    const tag = textAt(body, name, 'package_version', 'container_metadata', 'tag', 'name')
    return [{ path: own === '' ? '' : `${owner}/${own}`, tag }]
  }),
]

const isPath = (path: string): boolean => /^[a-z0-9]([a-z0-9._/-]{0,254})$/.test(path)
const isTag = (tag: string): boolean => /^\w[\w.-]{0,127}$/.test(tag)

/** Null if no registry sends such a body; [] if it is about something else. The body is empty afterwards. */
export const readImages = async (body: Buffer, owner: string): Promise<PushedImage[] | null> => {
  const parsed = await readDelivery(body, owner)
  if (typeof parsed !== 'object' || parsed === null) return null
  return shapes
    .flatMap((shape) => shape(parsed))
    .map(({ path, tag }) => ({ path: path.toLowerCase().replace(/^\/+/, ''), tag }))
    .filter(({ path, tag }) => isPath(path) && (tag === '' || isTag(tag)))
    .slice(0, mostImages)
    .map(({ path, tag }) => ({ path, tag: tag === '' ? null : tag }))
}
