/** A service's repository for a builder: its owner, and the credentials with which it is read. */
import type { GitSource } from '../../builds/builder.ts'
import type { BuildSpec } from '../deployments.ts'
import type { DeploymentParts } from '../parts.ts'

/** Rejects with a `DeploymentError` when its git token was deleted or has expired; warns of one that soon will be. */
export const openGitSource = async (
  parts: Pick<DeploymentParts, 'gitCredentials'>,
  organizationId: string,
  { url, branch, gitTokenId }: BuildSpec['git'],
  warn: (sentence: string) => void = () => {},
): Promise<GitSource> => {
  if (gitTokenId === null) return { organizationId, url, branch }
  const { credentials, warning } = await parts.gitCredentials({ organizationId, gitTokenId, url })
  if (warning !== null) warn(warning)
  return { organizationId, url, branch, ...(credentials === undefined ? {} : { credentials }) }
}
