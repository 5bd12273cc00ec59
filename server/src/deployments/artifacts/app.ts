/** An app of the cluster's Argo CD, at a commit. */

import { openGitSource } from '../credentials/git-source.ts'
import type { Source } from '../deployments.ts'
import { fetchSource } from '../images/make-image.ts'
import { enter } from '../progress/service-run.ts'
import { nextCommit } from './commit.ts'
import type { Driver } from './driver.ts'

export const app: Driver<Extract<Source, { from: 'app' }>> = {
  artifact: 'app',
  refusal: (place, { spec }) => (spec.app === undefined ? null : place.app(spec.app)),
  next: (next, { git }) => nextCommit(next, git),
  /** This server reads the commit with the service's token: one the organization may read, whatever Argo CD may. */
  async make(run, source) {
    await enter(run, 'building')
    const commit = await fetchSource(run, source)
    const { credentials } = await openGitSource(run.parts, run.claim.organizationId, source.git)
    const { git_commit_id: id } = commit
    const login = credentials?.reveal() ?? null
    return {
      ...{ image: `app of ${source.rootPath} at ${id.slice(0, 12)}`, commit, source: null },
      sealed: { app: { commit: id, login } },
      hidden: login === null ? [] : [login.password],
    }
  },
}
