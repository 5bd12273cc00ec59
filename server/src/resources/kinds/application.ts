/** Applications: built from a git repository, run on the environment's cluster. */
import Type from 'typebox'
import type { Context } from '../../api/operations/operation.ts'
import type { Change } from '../../api/operations/resource.ts'
import { Computed, Flag, Maybe, OneOf, Whole } from '../../api/operations/schema.ts'
import { deployable } from '../../facets/deployable.ts'
import { customDomains } from '../../facets/domains/custom-domain.ts'
import { serviceLinks } from '../../facets/domains/links.ts'
import { history } from '../../facets/history.ts'
import { logs } from '../../facets/logs.ts'
import { releases } from '../../facets/releases.ts'
import { advancedSettings } from '../../facets/settings/advanced-settings.ts'
import { deploymentRestrictions } from '../../facets/settings/deployment-restriction.ts'
import { applicationSettings, buildLimitsIn } from '../../facets/settings/settings.ts'
import { sourceArchive } from '../../facets/source-archive.ts'
import {
  Build,
  type BuildFields,
  completeBuild,
  GitRepository,
  gitSourceOf,
  isInternal,
  viewGitRepository,
} from '../service/git-source.ts'
import { autoPreview, Healthchecks } from '../service/parts.ts'
import {
  completeRunning,
  Running,
  type RunningRequest,
  type RunningSpec,
  sizeFields,
  workloadOf,
} from '../service/running.ts'
import { type Filled, service } from '../service/service.ts'

const spec = Type.Object({
  ...Running(),
  ...Build(),
  build_mode: Maybe(OneOf(['DOCKER'], { default: 'DOCKER' })),
  auto_preview: Maybe(Flag({ default: true, description: autoPreview })),
})

/** Checks and completes a whole configuration. */
const complete = async (
  body: Filled<typeof spec, RunningRequest>,
  context: Context,
  change: Change<RunningSpec & BuildFields>,
) => {
  const built = completeBuild(body, change.previous?.spec ?? {}, '', change.id)
  return { ...(await completeRunning(body, context, change)), ...built }
}

export const application = service({
  kind: 'application',
  path: 'application',
  noun: 'Application',
  nounWithArticle: 'an application',
  list: { id: 'listApplication', words: 'applications' },
  spec,
  record: {
    git_repository: Computed(GitRepository()),
    healthchecks: Healthchecks(),
    maximun_gpu: Maybe(Computed(Whole(0))),
  },
  git: ['git_repository'],
  validate: complete,
  view: ({ git_repository: kept, autoscaling: _, ...rest }, git) => ({
    ...rest,
    git_repository: viewGitRepository(kept, git.commit, git.tokenName),
    maximun_gpu: 0,
  }),
  facets: [
    deployable({ speaksRunning: true }),
    history,
    releases,
    logs,
    serviceLinks,
    advancedSettings(applicationSettings, 'AdvancedSettings'),
    customDomains('CustomDomain'),
    deploymentRestrictions,
    sourceArchive,
  ],
  deployable: {
    source: (kept) => gitSourceOf(kept, buildLimitsIn(kept)),
    workload: workloadOf,
    sizeFields,
    push: ({ auto_deploy: isWanted, git_repository: git }) => (isWanted === true || isInternal(git) ? {} : null),
  },
})
