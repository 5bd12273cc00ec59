/**
 * Argo CD apps: repositories that the Argo CD of a Kubernetes cluster keeps deployed in an environment.
 * Creating, changing, deploying and deleting them is our addition to the public API, which only reads them.
 */
import Type from 'typebox'
import { Computed, Maybe, Nullable, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import type { DeployableKind, Source, WorkloadSpec } from '../../deployments/deployments.ts'
import { deployable } from '../../facets/deployable.ts'
import { history } from '../../facets/history.ts'
import { releases } from '../../facets/releases.ts'
import {
  completeGitRepository,
  GitRepository,
  GitRepositoryRequest,
  type GitRepositorySpec,
  plainPath,
  rootOf,
  viewGitRepository,
} from '../service/git-source.ts'
import { service } from '../service/service.ts'

type AppSpec = {
  namespace: string
  git_repository: GitRepositorySpec | null
}

/** A synchronization with its hooks, and pods that start. */
const readyTimeoutMs = 15 * 60_000

/** Read before anything is created from it. */
const repositoryOf = ({ git_repository: git }: AppSpec): GitRepositorySpec => {
  if (git === null) throw new Error('an app without a repository is not deployed')
  return git
}

const source = (spec: AppSpec): Source => {
  const git = repositoryOf(spec)
  const { url, branch, git_token_id: gitTokenId } = git
  return { from: 'app', git: { url, branch, gitTokenId }, rootPath: rootOf(git) }
}

const workload = (spec: AppSpec): WorkloadSpec => {
  const { url: repository, root_path: rootPath } = repositoryOf(spec)
  return {
    entrypoint: null,
    arguments: null,
    // The app, and the cluster, decide about the resources of its pods.
    cpuMillicores: 0,
    memoryMb: 0,
    // A single entry for the whole app.
    instances: 1,
    ports: [],
    volumes: [],
    readiness: null,
    liveness: null,
    readyTimeoutMs,
    stopGraceMs: 30_000,
    app: { repository, path: plainPath(rootPath), argoNamespace: spec.namespace },
  }
}

const refusal = ({ git_repository: git }: AppSpec): string | null =>
  git === null ? 'This Argo CD app has no repository: set its git_repository.' : null

/** The workload of an Argo CD app on its cluster: for the deployment engine. Pure. */
const appRun: Omit<DeployableKind<AppSpec>, 'kind'> = { refusal, source, workload }

const namespaceWords =
  "The namespace of the cluster's Argo CD, where the Application is made; a deploy to a cluster that has it elsewhere is refused. The app itself is deployed to the namespace of its environment."

/** When a deployment last found the current release synchronized and healthy. */
const syncedSql = `(select to_char(max(w.finished_at) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
  from service_state s join deployment_service w on w.service_id = s.service_id and w.release_id = s.current_release_id
  where s.service_id = n.id and w.state = 'DEPLOYED')`

export const argocdApp = service({
  kind: 'argocd_app',
  path: 'argocdApp',
  noun: 'ArgoCdApp',
  nounWithArticle: 'an Argo CD app',
  list: { id: 'listArgoCdApps', words: 'Argo CD apps' },
  groups: false,
  spec: Type.Object({
    namespace: Maybe(
      Text(63, {
        minLength: 1,
        pattern: '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$',
        default: 'argocd',
        description: namespaceWords,
      }),
    ),
    git_repository: Maybe(Nullable(GitRepositoryRequest())),
  }),
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
    last_synced_at: syncedSql,
    manifest_revision: `(select r.commit ->> 'git_commit_id' from service_state s
      join release r on r.id = s.current_release_id where s.service_id = n.id)`,
  },
  git: ['git_repository'],
  validate: ({ git_repository: sent = null, namespace, ...rest }, _context, { previous }): AppSpec => {
    const before = (previous?.spec.git_repository ?? undefined) as GitRepositorySpec | undefined
    return {
      ...rest,
      namespace: namespace ?? 'argocd',
      git_repository: sent === null ? null : completeGitRepository(sent, before),
    }
  },
  view: ({ git_repository: kept, ...rest }, { commit, tokenName }) => ({
    ...rest,
    git_repository: kept === null ? null : viewGitRepository(kept, commit, tokenName),
  }),
  facets: [deployable(), history, releases],
  deployable: appRun,
})
