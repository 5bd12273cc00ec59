/** API tokens as stored: by the hash of their text, revoked ones too, so that their use can be reported. */
import type { Database } from '../../store/database.ts'
import { writeOwnAudit } from '../../store/own-audit.ts'
import type { Scope } from './permissions.ts'

export interface TokenRow {
  id: string
  name: string
  organizationId: string
  scopes: Scope[]
  createdBy: string | null
  expiresAt: Date | null
  roleId: string | null
  isOperator: boolean
  isRevoked: boolean
}

/** Use of a revoked token, by a thief or a forgotten program: an audit row, at most one per token and hour. */
export const noteRefused = async (database: Database, token: TokenRow, address: string): Promise<void> =>
  database.transaction(async (tx) => {
    const noted = await tx.query(
      `update api_token set refused_at = clock_timestamp() where id = $1
         and (refused_at is null or refused_at < clock_timestamp() - interval '1 hour') returning 1`,
      [token.id],
    )
    if (noted.length === 0) return
    await writeOwnAudit(tx, token.organizationId, {
      actor: 'SYSTEM',
      by: 'use of a revoked token',
      eventType: 'POLICY_FAILED',
      targetType: 'ORGANIZATION',
      subTargetType: 'API_TOKEN',
      target: { id: token.id, name: token.name },
      change: { address },
    })
  })

export const readToken = async (database: Database, hash: Buffer): Promise<TokenRow | null> => {
  const [row] = await database.query<TokenRow>(
    `select id, name, organization_id as "organizationId", scopes, created_by as "createdBy", expires_at as "expiresAt",
       role_id as "roleId", is_operator as "isOperator", revoked_at is not null as "isRevoked"
     from api_token where hash = $1`,
    [hash],
  )
  return row ?? null
}
