/** A service's repository for a builder: whose it is, and with which credentials it is read. */
import type { GitSource } from '../../builds/builder.ts'
import type { BuildSpec } from '../deployments.ts'
import type { DeploymentParts } from '../parts.ts'

/** Rejects with a `DeploymentError` when its git token was deleted or has expired. */
export const openGitSource = async (
  parts: Pick<DeploymentParts, 'gitCredentials'>,
  organizationId: string,
  { url, branch, gitTokenId }: BuildSpec['git'],
): Promise<GitSource> => {
  const credentials = gitTokenId === null ? undefined : await parts.gitCredentials(organizationId, gitTokenId)
  return { organizationId, url, branch, ...(credentials === undefined ? {} : { credentials }) }
}
