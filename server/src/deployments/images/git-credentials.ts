/** The user and password for a git token. */
import type { GitSource } from '../../builds/builder.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import type { Database } from '../../store/database.ts'
import type { Sealer } from '../../store/keys/seal.ts'

// What each kind of host expects as the user for a token.
const users: Record<string, string> = { GITHUB: 'x-access-token', GITLAB: 'oauth2', BITBUCKET: 'x-token-auth' }

interface TokenRow {
  type: string
  workspace: string | null
  sealed: string | null
}

/** Rejects with a `DeploymentError` when the token was deleted or has no text. */
export const readGitCredentials = async (
  database: Database,
  sealer: Sealer,
  organizationId: string,
  gitTokenId: string,
): Promise<GitSource['credentials']> => {
  const [row] = await database.query<TokenRow>(
    `select spec ->> 'type' as type, spec ->> 'workspace' as workspace, sealed ->> 'token' as sealed
     from node where id = $1 and organization_id = $2 and kind = 'git_token'`,
    [gitTokenId, organizationId],
  )
  if (row === undefined || row.sealed === null)
    throw new DeploymentError(
      'git_token_missing',
      'The git token of this service has been deleted: choose another one.',
    )
  const token = await sealer.open(organizationId, { table: 'node', row: gitTokenId, column: 'token' }, row.sealed)
  const username = (row.type === 'BITBUCKET' ? row.workspace : null) ?? users[row.type] ?? 'git'
  return new Secret({ username, password: token.reveal() })
}
