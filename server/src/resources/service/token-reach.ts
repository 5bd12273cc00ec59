/**
 * Which repositories a git token may be used for. A user who names a repository may not be allowed to read the token,
 * and could own another host, or another port of the same one: at addresses other than the token's own, only
 * administrators of the organization may use it. Each such repository is written to the token's row, where every use
 * of it is checked.
 */
import type { Principal } from '../../api/operations/operation.ts'
import { reaches, reachSql, type TokenReach } from '../../deployments/credentials/origins.ts'
import { badRequest, conflict } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'

const mostUrls = 500

interface Use {
  url: string
  tokenId: string
}

interface Token {
  id: string
  name: string
  reach: TokenReach
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null

/** Every repository in a configuration that is read with a git token, at any depth. */
const usesIn = (value: unknown): Use[] => {
  if (!isObject(value)) return []
  const { url, git_token_id: tokenId } = value
  const own = typeof url === 'string' && typeof tokenId === 'string' ? [{ url, tokenId: tokenId.toLowerCase() }] : []
  return [...own, ...Object.values(value).flatMap(usesIn)]
}

export const administers = ({ scopes, within }: Principal): boolean =>
  scopes.has('Admin') && (within === null || within.has('Admin'))

/** The uses of a token for repositories that it is not approved for yet. */
const findElsewhere = async (db: Queryable, organizationId: string, uses: readonly Use[]) => {
  if (uses.length === 0) return []
  const tokens = await db.query<Token>(
    `select id, name, ${reachSql('node')} as reach from node
     where id = any($1::uuid[]) and organization_id = $2 and kind = 'git_token'`,
    [uses.map(({ tokenId }) => tokenId), organizationId],
  )
  return uses.flatMap(({ url, tokenId }) => {
    const token = tokens.find(({ id }) => id === tokenId)
    return token === undefined || reaches(token.reach, url) ? [] : [{ url, token }]
  })
}

/**
 * Throws for a repository in `asked` that the caller may not read with the token named there; those in `kept` may
 * stay.
 */
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
  const [first] = await findElsewhere(db, principal.organizationId, uses)
  if (first === undefined) return
  const { name, reach } = first.token
  const message = `The git token ${name} is for repositories at ${reach.origins.join(', ')}, and this one is at another address (scheme, host and port): only who administers the organization may use it there.`
  throw badRequest(message, undefined, 'git_token_elsewhere')
}

/** Notes the repositories elsewhere that an administrator of the organization has put into a configuration. */
export const approveTokenUses = async (tx: Queryable, principal: Principal, asked: unknown): Promise<void> => {
  if (!administers(principal)) return
  for (const { url, token } of await findElsewhere(tx, principal.organizationId, usesIn(asked))) {
    if (token.reach.urls.length >= mostUrls)
      throw conflict(
        'git_token_urls',
        `The git token ${token.name} is used for ${mostUrls} repositories elsewhere: add their origin to its repository_origins.`,
      )
    await tx.query(
      `update node set spec = jsonb_set(spec, '{repository_urls}',
         coalesce(spec -> 'repository_urls', '[]') || to_jsonb($2::text)) where id = $1
         and not coalesce(spec -> 'repository_urls', '[]') ? $2`,
      [token.id, url],
    )
  }
}
