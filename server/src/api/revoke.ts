/** Revocation of API tokens: each goes with all that it made, and with what these made, in whatever organization. */
import type { Queryable } from '../store/database.ts'

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

/** What these tokens, and those that they made, were; the caller's transaction tells every replica. */
export const revokeTokens = async (tx: Queryable, ids: readonly string[]): Promise<Revoked[]> => {
  const revoked: Revoked[] = []
  // Again until nothing is left: one that was being made meanwhile is seen once we have waited for it.
  for (let last = 1; last > 0 && ids.length > 0; ) {
    const found = await tx.query<Revoked>(revokeSql, [ids])
    revoked.push(...found)
    last = found.length
  }
  await tx.query(`select pg_notify('slipway_token', '')`)
  return revoked
}
