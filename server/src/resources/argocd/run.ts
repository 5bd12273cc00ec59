/** What an Argo CD app is to be on its cluster: for the deployment engine. Pure. */
import type { DeployableKind, Source, WorkloadSpec } from '../../deployments/deployments.ts'
import { type GitRepositorySpec, plainPath, rootOf } from '../service/git-source.ts'

export type AppSpec = {
  namespace: string
  git_repository: GitRepositorySpec | null
}

/** A synchronization with its hooks, and pods that start. */
const readyTimeoutMs = 15 * 60_000

/** Asked before anything is made of it. */
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
    // What its pods take is the business of the app, and of the cluster.
    cpuMillicores: 0,
    memoryMb: 0,
    // The one that stands for it.
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

export const appRun: Omit<DeployableKind<AppSpec>, 'kind'> = { refusal, source, workload }
