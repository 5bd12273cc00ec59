/**
 * Argo CD apps: deployed by another system, shown next to an environment's own services. Creating, changing and
 * deleting them is our addition to the public API, which only reads them.
 */
import Type from 'typebox'
import { AllRecorded, Computed, Maybe, Nullable, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { deployable } from '../../facets/deployable.ts'
import {
  completeGitRepository,
  GitRepository,
  GitRepositoryRequest,
  type GitRepositorySpec,
  viewGitRepository,
} from '../service/git-source.ts'
import { service } from '../service/service.ts'
import { undeployable } from '../service/undeployable.ts'

export const argocdApp = service({
  kind: 'argocd_app',
  path: 'argocdApp',
  noun: 'ArgoCdApp',
  nounWithArticle: 'an Argo CD app',
  list: { id: 'listArgoCdApps', words: 'Argo CD apps' },
  groups: false,
  spec: Type.Object(
    AllRecorded({
      namespace: Maybe(Text(63, { minLength: 1, pattern: '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$', default: 'argocd' })),
      git_repository: Maybe(Nullable(GitRepositoryRequest())),
    }),
  ),
  record: {
    namespace: Text(63),
    environment_id: Uuid(),
    cluster_id: Uuid(),
    last_synced_at: Nullable(Timestamp()),
    manifest_revision: Nullable(Text()),
    git_repository: Computed(Nullable(GitRepository())),
  },
  columns: {
    environment_id: 'n.parent_id',
    cluster_id: `(select e.spec ->> 'cluster_id' from node e where e.id = n.parent_id)`,
    // This server does not synchronize apps.
    last_synced_at: 'null::text',
    manifest_revision: 'null::text',
  },
  git: ['git_repository'],
  validate: ({ git_repository: sent = null, ...rest }, _context, { previous }) => {
    const before = (previous?.spec.git_repository ?? undefined) as GitRepositorySpec | undefined
    return { ...rest, git_repository: sent === null ? null : completeGitRepository(sent, before) }
  },
  view: ({ git_repository: kept, ...rest }, { commit, tokenName }) => ({
    ...rest,
    git_repository: kept === null ? null : viewGitRepository(kept as GitRepositorySpec, commit, tokenName),
  }),
  facets: [deployable({ stops: false, status: false })],
  deployable: {
    ...undeployable(
      'An Argo CD app is deployed by the Argo CD of a Kubernetes cluster; the local cluster is a Docker engine.',
    ),
  },
})
