/** The three git providers: how to ask each for the repositories that a token can access. */
import type { Context } from '../../api/operations/operation.ts'
import { isExpiredSql } from '../../deployments/credentials/git-credentials.ts'
import { askHost, GitHostError, type HostToken } from '../../deployments/git-hosts/request.ts'
import { badRequest } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'

type Json = Record<string, unknown>

interface ProviderToken extends HostToken {
  id: string
  workspace: string | null
}

interface ProviderRepository {
  id: string
  name: string
  url: string
  default_branch: string
  is_private: boolean
}

interface Provider {
  /** The path and query of a page of repositories. */
  list(token: ProviderToken, page: number): string
  one(name: string): string
  itemsOf(answer: unknown): Json[]
  repositoryOf(item: Json): Omit<ProviderRepository, 'id' | 'is_private'> & { id: unknown; is_private: unknown }
}

const pageSize = 100
const maxPages = 10
const patienceMs = 30_000

const at = (value: unknown, ...path: (string | number)[]): unknown =>
  path.reduce<unknown>((inner, key) => (inner as Json | undefined | null)?.[key], value)
const text = (value: unknown): string => (typeof value === 'string' ? value : '')
const isObject = (value: unknown): value is Json => typeof value === 'object' && value !== null
const listOf = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : [])
const encodeAll = (name: string): string => name.split('/').map(encodeURIComponent).join('/')

const cloneUrl = (links: unknown): string =>
  text(at(listOf(at(links, 'clone')).find(({ name }) => name === 'https') ?? {}, 'href')).replace(/\/\/[^/@]*@/, '//')

export const providers = {
  GITHUB: {
    list: (_, page) => `/user/repos?per_page=${pageSize}&page=${page}&sort=full_name`,
    one: (name) => `/repos/${encodeAll(name)}`,
    itemsOf: listOf,
    repositoryOf: (item) => ({
      id: item.id,
      name: text(item.full_name),
      url: text(item.clone_url),
      default_branch: text(item.default_branch),
      is_private: item.private,
    }),
  },
  GITLAB: {
    list: (_, page) => `/projects?membership=true&simple=true&order_by=id&per_page=${pageSize}&page=${page}`,
    one: (name) => `/projects/${encodeURIComponent(name)}`,
    itemsOf: listOf,
    repositoryOf: (item) => ({
      id: item.id,
      name: text(item.path_with_namespace),
      url: text(item.http_url_to_repo),
      default_branch: text(item.default_branch),
      is_private: item.visibility !== undefined && item.visibility !== 'public',
    }),
  },
  BITBUCKET: {
    list: ({ workspace }, page) =>
      `/repositories/${encodeURIComponent(workspace ?? '')}?pagelen=${pageSize}&page=${page}`,
    one: (name) => `/repositories/${encodeAll(name)}`,
    itemsOf: (answer) => listOf(at(answer, 'values')),
    repositoryOf: (item) => ({
      id: item.uuid,
      name: text(item.full_name),
      url: cloneUrl(item.links),
      default_branch: text(at(item, 'mainbranch', 'name')),
      is_private: item.is_private,
    }),
  },
} satisfies Record<string, Provider>

export type ProviderName = keyof typeof providers

export const expiredToken = 'The git token has expired: change its token and its expired_at, or choose another one.'

interface TokenRow {
  id: string
  type: string
  api_url: string
  workspace: string | null
  sealed: string | null
  expired: boolean
}

/** The requested token, else the oldest of this provider. */
export const readProviderToken = async (
  { parts, db, principal, query }: Context,
  name: ProviderName,
): Promise<ProviderToken> => {
  const { organizationId } = principal
  const wanted = typeof query.gitTokenId === 'string' ? query.gitTokenId : null
  if (wanted !== null && !isUuid(wanted)) throw badRequest('gitTokenId: must be an id')
  const [row] = await db.query<TokenRow>(
    `select id, spec ->> 'type' as type, spec ->> 'git_api_url' as api_url, spec ->> 'workspace' as workspace,
       sealed ->> 'token' as sealed, ${isExpiredSql('node')} as expired from node
     where organization_id = $1 and kind = 'git_token' and spec ->> 'type' = $2 and ($3::uuid is null or id = $3::uuid)
     order by expired, created_at, id limit 1`,
    [organizationId, name, wanted],
  )
  if (row === undefined || row.sealed === null)
    throw badRequest(
      wanted === null
        ? `Listing repositories requires a git token for ${name}, and this organization has none: create one first.`
        : `gitTokenId: this organization has no such git token for ${name}`,
      undefined,
      'git_token_missing',
    )
  if (row.expired) throw badRequest(expiredToken, undefined, 'git_token_expired')
  const sealedPlace = { table: 'node', row: row.id, column: 'token' }
  const opened = await parts.sealer.open(organizationId, sealedPlace, row.sealed)
  return { id: row.id, apiUrl: row.api_url.replace(/\/+$/, ''), workspace: row.workspace, text: opened }
}

const noAnswer = (): Error =>
  badRequest(
    'The response is not that of a git host: check the address of the git token.',
    undefined,
    'git_unreachable',
  )

const isRefusal = ({ code }: GitHostError): boolean => code === 'denied' || code === 'missing'

const ask = async ({ parts }: Context, token: ProviderToken, path: string, signal: AbortSignal): Promise<unknown> => {
  try {
    return (await askHost(parts.outbound, token, { method: 'GET', path }, signal)).value
  } catch (error) {
    if (!(error instanceof GitHostError)) throw error
    throw badRequest(error.message, undefined, isRefusal(error) ? 'git_denied' : 'git_unreachable')
  }
}

const recordOf = (provider: Provider, item: Json): ProviderRepository => {
  const { id, is_private, ...rest } = provider.repositoryOf(item)
  return { id: String(id ?? ''), ...rest, is_private: is_private === true }
}

/** Up to 1000 repositories that the token can access. */
export const listRepositories = async (context: Context, name: ProviderName): Promise<ProviderRepository[]> => {
  const provider: Provider = providers[name]
  const token = await readProviderToken(context, name)
  let found: ProviderRepository[] = []
  const signal = AbortSignal.timeout(patienceMs)
  for (let page = 1; page <= maxPages; page += 1) {
    const items = provider.itemsOf(await ask(context, token, provider.list(token, page), signal)).slice(0, pageSize)
    found = found.concat(items.map((item) => recordOf(provider, item)))
    if (items.length < pageSize) break
  }
  return found
}

export const findRepository = async (
  context: Context,
  name: ProviderName,
  token: ProviderToken,
  repository: string,
): Promise<ProviderRepository> => {
  const provider: Provider = providers[name]
  const item = await ask(context, token, provider.one(repository), AbortSignal.timeout(patienceMs))
  if (!isObject(item)) throw noAnswer()
  return recordOf(provider, item)
}
