/**
 * Reads which branches and tags a git host reports as pushed. Only a reason to poll the repository: everything that is
 * deployed is read from there. Texts are bounded and cleaned, because they are shown.
 */
import { at, textAt } from '../../lib/foreign-text/fields.ts'
import { readDelivery } from './read-delivery.ts'
import type { Envelope, Headers, Host } from './verify.ts'

interface PushedBranch {
  /** Name of a branch or of a tag: services may follow either. */
  branch: string
  /** The new head, as the host says; null for a tag, and if that is not a commit id. */
  commitId: string | null
}

export interface Push {
  /** The names that the URLs of services may have for the repository: `owner/name` in lower case. */
  paths: string[]
  branches: PushedBranch[]
  /** The pusher's name, as the host says; '' if it does not. */
  pusher: string
}

const maxBranches = 50
const maxPusher = 100

const commitIdOf = (id: string): string | null => (/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(id) ? id : null)

const isNothing = (id: string): boolean => /^0*$/.test(id)

/** The branch of `refs/heads/…` or the tag of `refs/tags/…`; none if it was deleted. */
const branchIn = (ref: string, after: string): PushedBranch[] => {
  const [, kind, branch] = /^refs\/(heads|tags)\/(.+)$/s.exec(ref) ?? []
  if (branch === undefined || isNothing(after)) return []
  // For an annotated tag it is not the id of a commit.
  return [{ branch, commitId: kind === 'tags' ? null : commitIdOf(after) }]
}

const pathOf = (url: string): string => {
  const path = url.includes('://') ? (URL.parse(url)?.pathname ?? '') : url
  return path
    .replace(/^\/+/, '')
    .replace(/(\.git)?\/*$/, '')
    .toLowerCase()
}

const clean = (name: string): string =>
  name
    .replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, ' ')
    .trim()
    .slice(0, maxPusher)
    .toWellFormed()

/** No repository and no branch has a name with line breaks or the like. */
const isName = (name: string, most: number): boolean => name.length <= most && !/\p{Cc}/u.test(name)

interface Shape {
  events: readonly string[]
  /** Names of events about pull requests. */
  requests: readonly string[]
  paths(body: unknown): string[]
  branches(body: unknown): PushedBranch[]
  pusher(body: unknown): string
}

const oneRef = (body: unknown): PushedBranch[] => branchIn(textAt(body, 'ref'), textAt(body, 'after'))

const likeGithub = (body: unknown): string[] =>
  ['full_name', 'clone_url', 'html_url'].map((name) => textAt(body, 'repository', name))

const changesOf = (body: unknown): unknown[] => {
  const changes = at(body, 'push', 'changes')
  return Array.isArray(changes) ? changes.slice(0, maxBranches) : []
}

const bitbucketRefs: Readonly<Record<string, string>> = { branch: 'heads', tag: 'tags' }

const shapes: Record<Host, Shape> = {
  GITHUB: {
    events: ['push'],
    requests: ['pull_request', 'pull_request_sync'],
    paths: likeGithub,
    branches: oneRef,
    pusher: (body) => textAt(body, 'pusher', 'name') || textAt(body, 'sender', 'login'),
  },
  GITEA: {
    events: ['push'],
    requests: ['pull_request', 'pull_request_sync'],
    paths: likeGithub,
    branches: oneRef,
    pusher: (body) => textAt(body, 'pusher', 'login') || textAt(body, 'pusher', 'username'),
  },
  GITLAB: {
    events: ['Push Hook', 'Tag Push Hook'],
    requests: ['Merge Request Hook'],
    paths: (body) => ['path_with_namespace', 'git_http_url', 'web_url'].map((name) => textAt(body, 'project', name)),
    branches: oneRef,
    pusher: (body) => textAt(body, 'user_username') || textAt(body, 'user_name'),
  },
  BITBUCKET: {
    events: ['repo:push'],
    requests: ['created', 'updated', 'fulfilled', 'rejected'].map((each) => `pullrequest:${each}`),
    paths: (body) => [textAt(body, 'repository', 'full_name'), textAt(body, 'repository', 'links', 'html', 'href')],
    branches: (body) =>
      changesOf(body).flatMap((change) =>
        branchIn(
          `refs/${bitbucketRefs[textAt(change, 'new', 'type')] ?? 'other'}/${textAt(change, 'new', 'name')}`,
          textAt(change, 'new', 'target', 'hash') || '?',
        ),
      ),
    pusher: (body) => textAt(body, 'actor', 'nickname') || textAt(body, 'actor', 'display_name'),
  },
}

export const isPush = ({ host, event }: Envelope): boolean => shapes[host].events.includes(event)

/** Whether the event is about a pull request: only its repository is read. */
export const isRequest = ({ host, event }: Envelope): boolean => shapes[host].requests.includes(event)

/** Hosts send JSON, or a form that has it in the field `payload`. */
const formFieldOf = (headers: Headers): string | undefined =>
  String(headers['content-type'] ?? '').startsWith('application/x-www-form-urlencoded') ? 'payload' : undefined

/** Null if this host sends no such body. `owner`: the owner of the webhook. The body is empty afterwards. */
export const readPush = async (
  { host }: Envelope,
  headers: Headers,
  body: Buffer,
  owner: string,
): Promise<Push | null> => {
  const parsed = await readDelivery(body, owner, formFieldOf(headers))
  if (parsed === undefined) return null
  const shape = shapes[host]
  const paths = [...new Set(shape.paths(parsed).map(pathOf))].filter((path) => path !== '' && isName(path, 2048))
  if (paths.length === 0) return null
  const branches = shape.branches(parsed).filter(({ branch }) => isName(branch, 255))
  return {
    paths: paths.map((path) => path.toWellFormed()),
    branches,
    pusher: clean(shape.pusher(parsed)),
  }
}
