/**
 * The git host of a repository, as its git token opens it. A repository without a token, or at another host than its
 * token's, has no git host for us: nothing is reported to it and nothing asked from it.
 */
import { DeploymentError } from '../../lib/errors.ts'
import type { Outbound } from '../../lib/net/outbound.ts'
import type { Database } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import { isExpiredSql } from '../credentials/git-credentials.ts'
import { originOf, reachSql, type TokenReach } from '../credentials/origins.ts'
import {
  type Comment,
  type CommitStatus,
  forms,
  type Hook,
  type HostForm,
  type HostKind,
  isListAnswer,
  lengthOf,
  type PullRequest,
} from './hosts.ts'
import { askHost, GitHostError, type HostRequest, type HostToken } from './request.ts'

export { GitHostError } from './request.ts'

interface HostParts {
  database: Database
  sealer: Sealer
  outbound: Outbound
}

export interface GitHost {
  kind: HostKind
  report(status: CommitStatus, signal: AbortSignal): Promise<void>
  /** Makes the host call this address, once per event, with this secret. */
  hook(url: string, secret: string, signal: AbortSignal): Promise<void>
  /** The open ones; not complete if there are more than are read. */
  pullRequests(signal: AbortSignal): Promise<{ requests: PullRequest[]; isComplete: boolean }>
  /** Writes the comment that has the mark, or changes the existing one. */
  comment(number: number, mark: string, text: string, signal: AbortSignal): Promise<void>
}

const maxPages = 17

/** Gitea and Forgejo have no type of token of their own; their API has its own path. */
const kindOf = (type: string, apiUrl: string): HostKind | null => {
  if (type === 'GITHUB' && new URL(apiUrl).pathname.endsWith('/api/v1')) return 'GITEA'
  return type in forms ? (type as HostKind) : null
}

/** '' for one that cannot be decoded. */
const pathOf = ({ pathname }: URL): string => {
  try {
    return decodeURIComponent(pathname).replace(/^\/+|(\.git)?\/*$/g, '')
  } catch {
    return ''
  }
}

/** The same name, or that without `api.`: a repository elsewhere may have the path of one that the host has. */
const hasHostName = (repository: URL, api: URL): boolean =>
  repository.hostname === api.hostname || `api.${repository.hostname}` === api.hostname

/** `owner/name` of a repository at the host of this API, at one of its token's origins; null for one elsewhere. Pure. */
const repositoryAt = (repositoryUrl: string, apiUrl: string, origins: readonly string[]): string | null => {
  const [repository, api] = [URL.parse(repositoryUrl), URL.parse(apiUrl)]
  if (repository === null || api === null || !/^https?:$/.test(repository.protocol)) return null
  const path = pathOf(repository)
  const isThere = hasHostName(repository, api) && origins.includes(originOf(repositoryUrl) ?? '')
  return isThere && /^[^\s?#]+(\/[^\s/?#]+)+$/.test(path) && !path.includes('..') ? path : null
}

interface TokenRow {
  type: string
  apiUrl: string
  sealed: string | null
  expired: boolean
  reach: TokenReach
}

const readToken = async ({ database }: HostParts, organizationId: string, id: string): Promise<TokenRow> => {
  const [row] = await database.query<TokenRow>(
    `select t.spec ->> 'type' as type, t.spec ->> 'git_api_url' as "apiUrl", t.sealed ->> 'token' as sealed,
       ${isExpiredSql('t')} as expired, ${reachSql('t')} as reach from node t where t.id = $1 and t.organization_id = $2 and t.kind = 'git_token'`,
    [id, organizationId],
  )
  if (row === undefined || row.sealed === null)
    throw new DeploymentError('git_token_missing', 'The git token of this repository has been deleted.')
  if (row.expired) throw new DeploymentError('git_token_expired', 'The git token of this repository has expired.')
  return row
}

const oneOfUs = (hooks: readonly Hook[], url: string): Hook[] =>
  hooks.filter((hook) => hook.url === url && hook.id !== '')

/** One may be on two pages, if another was closed meanwhile. */
const distinct = (requests: readonly PullRequest[]): PullRequest[] => [
  ...new Map(requests.map((each) => [each.number, each])).values(),
]

/** Page after page, up to the one that contains the wanted item, if any. */
const readPages = async <T>(
  { perPage, read }: { perPage: number; read(value: unknown): T[] },
  ask: (page: number) => Promise<unknown>,
  isLast: (each: T) => boolean,
): Promise<{ found: T[]; isComplete: boolean }> => {
  let found: T[] = []
  for (let page = 1; page <= maxPages; page += 1) {
    const value = await ask(page)
    const items = read(value)
    found = found.concat(items)
    if (lengthOf(value) < perPage || items.some(isLast)) return { found, isComplete: true }
  }
  return { found, isComplete: false }
}

const hostOf = (parts: HostParts, token: HostToken, kind: HostKind, repository: string): GitHost => {
  const form: HostForm = forms[kind]
  const send = (request: HostRequest, signal: AbortSignal, accepts: readonly number[] = []) =>
    askHost(parts.outbound, token, request, signal, accepts)
  const list = async (path: string, signal: AbortSignal): Promise<unknown> => {
    const { value } = await send({ method: 'GET', path }, signal)
    if (!isListAnswer(value)) throw new GitHostError('refused', 'The response is not that of a git host.')
    return value
  }
  return {
    kind,
    async report(status, signal) {
      await send(form.status(repository, status), signal, form.hasStatus)
    },
    async hook(url, secret, signal) {
      const { hooks } = form
      const read = async () => oneOfUs(hooks.read(await list(hooks.list(repository), signal)), url)
      const [first] = await read()
      await send(
        first === undefined ? hooks.make(repository, url, secret) : hooks.change(repository, first.id, url, secret),
        signal,
      )
      // Two concurrent calls may have made two; one that died may have left one.
      const [, ...others] = (await read()).toSorted((a, b) => (a.id < b.id ? -1 : 1))
      for (const { id } of others) await send(hooks.remove(repository, id), signal, [404])
    },
    async pullRequests(signal) {
      const { requests } = form
      const { found, isComplete } = await readPages(
        requests,
        (page) => list(requests.list(repository, page), signal),
        () => false,
      )
      return { requests: distinct(found), isComplete }
    },
    async comment(number, mark, text, signal) {
      const { comments } = form
      const isOwn = (each: Comment): boolean => each.id !== '' && each.text.includes(mark)
      const { found, isComplete } = await readPages(
        comments,
        (page) => list(comments.list(repository, number, page), signal),
        isOwn,
      )
      const own = found.find(isOwn)
      if (own?.text === text) return
      // Another one each time would flood the request with comments.
      if (own === undefined && !isComplete) throw new GitHostError('refused', 'There are too many comments already.')
      await send(
        own === undefined ? comments.make(repository, number, text) : comments.change(repository, number, own.id, text),
        signal,
      )
    },
  }
}

/** Null for a repository without a host that we know. Rejects with a `DeploymentError` without a usable token. */
export const openGitHost = async (
  parts: HostParts,
  organizationId: string,
  url: string,
  gitTokenId: string | null,
): Promise<GitHost | null> => {
  if (gitTokenId === null || !/^https?:/.test(url)) return null
  const row = await readToken(parts, organizationId, gitTokenId)
  const apiUrl = row.apiUrl.replace(/\/+$/, '')
  const repository = repositoryAt(url, apiUrl, row.reach.origins)
  const kind = repository === null ? null : kindOf(row.type, apiUrl)
  if (repository === null || kind === null) return null
  const text = await parts.sealer.open(organizationId, { table: 'node', row: gitTokenId, column: 'token' }, row.sealed!)
  return hostOf(parts, { apiUrl, text }, kind, repository)
}
