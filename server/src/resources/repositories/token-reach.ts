/**
 * Where a git token may be sent. Whoever names a repository may not read the token, and could have a host of their own
 * there: only who administers the organization may use one for a repository at another host than that of its API.
 */
import type { Principal } from '../../api/operations/operation.ts'
import { isOfHost } from '../../deployments/git-hosts/git-host.ts'
import { badRequest } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'

interface Use {
  url: string
  tokenId: string
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null

/** Every repository in a configuration that is read with a git token, however deep it is. */
const usesIn = (value: unknown): Use[] => {
  if (!isObject(value)) return []
  const { url, git_token_id: tokenId } = value
  const own = typeof url === 'string' && typeof tokenId === 'string' ? [{ url, tokenId: tokenId.toLowerCase() }] : []
  return [...own, ...Object.values(value).flatMap(usesIn)]
}

const administers = ({ scopes, within }: Principal): boolean =>
  scopes.has('Admin') && (within === null || within.has('Admin'))

const isAtOwnHost = (url: string, apiUrl: string): boolean => {
  const [repository, api] = [URL.parse(url), URL.parse(apiUrl)]
  return repository !== null && api !== null && isOfHost(repository, api)
}

/** Throws for a repository in `asked` that the caller may not read with the token named there; what `kept` has may stay. */
export const refuseTokensElsewhere = async (
  db: Queryable,
  principal: Principal,
  asked: unknown,
  kept: unknown = null,
): Promise<void> => {
  if (administers(principal)) return
  const known = usesIn(kept)
  const isKnown = (use: Use): boolean => known.some(({ url, tokenId }) => url === use.url && tokenId === use.tokenId)
  const uses = usesIn(asked).filter((use) => !isKnown(use))
  if (uses.length === 0) return
  const tokens = await db.query<{ id: string; name: string; apiUrl: string }>(
    `select id, name, spec ->> 'git_api_url' as "apiUrl" from node
     where id = any($1::uuid[]) and organization_id = $2 and kind = 'git_token'`,
    [uses.map(({ tokenId }) => tokenId), principal.organizationId],
  )
  for (const { url, tokenId } of uses) {
    const token = tokens.find(({ id }) => id === tokenId)
    if (token === undefined || isAtOwnHost(url, token.apiUrl)) continue
    const message = `The git token ${token.name} is for the host of its git_api_url, and this repository is at another one: only who administers the organization may use it there.`
    throw badRequest(message, undefined, 'git_token_elsewhere')
  }
}
