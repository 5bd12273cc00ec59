/**
 * The user and password for a git token and one repository. An expired token is sent nowhere, and none to a repository
 * that it is not for.
 */
import { DeploymentError } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import type { Database } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'
import type { GitAccess, GitTokenUse } from '../parts.ts'
import { originOf, reaches, reachSql, type TokenReach } from './origins.ts'

// The user that each kind of host expects with a token.
const users: Record<string, string> = { GITHUB: 'x-access-token', GITLAB: 'oauth2', BITBUCKET: 'x-token-auth' }

interface TokenRow {
  name: string
  type: string
  workspace: string | null
  sealed: string | null
  expiry: string | null
  isExpired: boolean
  expiresSoon: boolean
  reach: TokenReach
}

const warnedDays = 7
const day = (ahead: number): string =>
  `to_char(clock_timestamp() at time zone 'utc' + interval '${ahead} days', 'YYYY-MM-DD')`

/** SQL: whether the last day of a git token's row is over, in UTC. Compared as text: a calendar may lack the date. */
export const isExpiredSql = (row: string): string => `coalesce(${row}.spec ->> 'expired_at' < ${day(0)}, false)`

const tokenSql = `select t.name, t.spec ->> 'type' as type, t.spec ->> 'workspace' as workspace,
    t.sealed ->> 'token' as sealed, t.spec ->> 'expired_at' as expiry, ${isExpiredSql('t')} as "isExpired",
    coalesce(t.spec ->> 'expired_at' <= ${day(warnedDays)}, false) as "expiresSoon", ${reachSql('t')} as reach
  from node t where t.id = $1 and t.organization_id = $2 and t.kind = 'git_token'`

const warningOf = ({ name, expiry, expiresSoon }: TokenRow): string | null =>
  expiresSoon ? `The git token ${name} expires on ${expiry}: replace it before then, or deployments will fail.` : null

/** The refusal for a repository that a token may not be used for. */
export const tokenElsewhere = (name: string): string =>
  `The git token ${name} is not for the address of this repository: an administrator of the organization can add its origin to repository_origins of the token.`

/** Rejects with a `DeploymentError` if the token was deleted, has expired, has no text or is not for this repository. */
export const readGitCredentials = async (
  database: Database,
  sealer: Sealer,
  { organizationId, gitTokenId, url, isApproved = false }: GitTokenUse,
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
  if (!isApproved && !reaches(row.reach, url))
    throw new DeploymentError('git_token_elsewhere', tokenElsewhere(row.name))
  const token = await sealer.open(organizationId, { table: 'node', row: gitTokenId, column: 'token' }, row.sealed)
  const username = (row.type === 'BITBUCKET' ? row.workspace : null) ?? users[row.type] ?? 'git'
  const origins = [...new Set([...row.reach.origins, originOf(url) ?? ''])]
  return { credentials: new Secret({ username, password: token.reveal(), origins }), warning: warningOf(row) }
}
