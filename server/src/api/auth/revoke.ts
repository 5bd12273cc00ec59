/**
 * Revocation of API tokens: each is revoked with all tokens it created, and those they created, in any organization.
 */
import type { Queryable } from '../../store/database.ts'

export interface Revoked {
  id: string
  organizationId: string
  name: string
}

const revokeSql = `with recursive lost as (
    select id from api_token where id = any($1)
    union select t.id from lost join api_token t on t.created_by = lost.id
  ) update api_token set revoked_at = clock_timestamp() where id in (select id from lost) and revoked_at is null
  returning id, organization_id as "organizationId", name`

/** The rows of these tokens and of those they created; the caller's transaction notifies every replica. */
export const revokeTokens = async (tx: Queryable, ids: readonly string[]): Promise<Revoked[]> => {
  const revoked: Revoked[] = []
  // Repeat until nothing is left: a token that was being created meanwhile is visible once we have waited for it.
  for (let last = 1; last > 0 && ids.length > 0; ) {
    const found = await tx.query<Revoked>(revokeSql, [ids])
    for (const each of found) revoked.push(each)
    last = found.length
  }
  await tx.query(`select pg_notify('slipway_token', '')`)
  return revoked
}
