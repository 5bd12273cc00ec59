/** The commit of a repository that a deploy would bring. */
import { DeploymentError } from '../../lib/errors.ts'
import { openGitSource } from '../credentials/git-source.ts'
import type { BuildSpec } from '../deployments.ts'
import { commitOf, type Version } from '../release/version-change.ts'
import type { Next } from './driver.ts'

const headTimeoutMs = 5000

/** The head of the branch; null when it cannot be read in time. */
const readHead = async ({ parts, organizationId }: Next, git: BuildSpec['git']): Promise<string | null> => {
  try {
    return await parts.builder.head(await openGitSource(parts, organizationId, git), headTimeoutMs)
  } catch (error) {
    // The token was deleted: the deployment will report it.
    if (error instanceof DeploymentError) return null
    throw error
  }
}

export const nextCommit = async (next: Next, git: BuildSpec['git']): Promise<Version> => {
  const from = commitOf(next.current)
  const { commitId, redeploy } = next.requested
  const stays = commitId ?? (redeploy === true ? from : null)
  // A commit that this service has already deployed reveals nothing new.
  if (stays !== null && (commitId === undefined || commitId === from)) return { of: 'commit', from, to: stays }
  const head = await readHead(next, git)
  // A commit requested by its id is shown only while its host lets this organization read the repository: an id does
  // not prove access.
  return { of: 'commit', from, to: head === null ? null : (commitId ?? head) }
}
