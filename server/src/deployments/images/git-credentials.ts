/** The user and password for a git token. An expired one is never sent to its host. */
import type { GitSource } from '../../builds/builder.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import type { Database } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'

// What each kind of host expects as the user for a token.
const users: Record<string, string> = { GITHUB: 'x-access-token', GITLAB: 'oauth2', BITBUCKET: 'x-token-auth' }

interface TokenRow {
  name: string
  type: string
  workspace: string | null
  sealed: string | null
  expiry: string | null
  isExpired: boolean
  expiresSoon: boolean
}

const warnedDays = 7
const day = (ahead: number): string =>
  `to_char(clock_timestamp() at time zone 'utc' + interval '${ahead} days', 'YYYY-MM-DD')`

/** SQL: whether the last day of a git token's row is over, in UTC. Compared as text: a calendar may lack the date. */
export const isExpiredSql = (row: string): string => `coalesce(${row}.spec ->> 'expired_at' < ${day(0)}, false)`

const tokenSql = `select t.name, t.spec ->> 'type' as type, t.spec ->> 'workspace' as workspace,
    t.sealed ->> 'token' as sealed, t.spec ->> 'expired_at' as expiry, ${isExpiredSql('t')} as "isExpired",
    coalesce(t.spec ->> 'expired_at' <= ${day(warnedDays)}, false) as "expiresSoon"
  from node t where t.id = $1 and t.organization_id = $2 and t.kind = 'git_token'`

export interface GitAccess {
  credentials: GitSource['credentials']
  /** A sentence for a token that expires soon. */
  warning: string | null
}

const warningOf = ({ name, expiry, expiresSoon }: TokenRow): string | null =>
  expiresSoon ? `The git token ${name} expires on ${expiry}: replace it before then, or deployments will fail.` : null

/** Rejects with a `DeploymentError` when the token was deleted, has expired, or has no text. */
export const readGitCredentials = async (
  database: Database,
  sealer: Sealer,
  organizationId: string,
  gitTokenId: string,
): Promise<GitAccess> => {
  const [row] = await database.query<TokenRow>(tokenSql, [gitTokenId, organizationId])
  if (row === undefined || row.sealed === null)
    throw new DeploymentError(
      'git_token_missing',
      'The git token of this service has been deleted: choose another one.',
    )
  if (row.isExpired)
    throw new DeploymentError(
      'git_token_expired',
      `The git token ${row.name} expired on ${row.expiry}: change its token and its expired_at, or choose another one.`,
    )
  const token = await sealer.open(organizationId, { table: 'node', row: gitTokenId, column: 'token' }, row.sealed)
  const username = (row.type === 'BITBUCKET' ? row.workspace : null) ?? users[row.type] ?? 'git'
  return { credentials: new Secret({ username, password: token.reveal() }), warning: warningOf(row) }
}
