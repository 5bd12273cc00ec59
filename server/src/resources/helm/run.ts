/** What a helm service installs, and how: for the deployment engine. Pure. */
import type { ChartSpec, DeployableKind, Source, ValuePair, WorkloadSpec } from '../../deployments/deployments.ts'
import { type GitRepositorySpec, plainPath, rootOf, sourceUrlOf } from '../service/git-source.ts'
import type { SourceSpec, ValuesSpec } from './chart.ts'

export type ChartedSpec = {
  source: SourceSpec
  values_override: ValuesSpec
  timeout_sec: number
  allow_cluster_wide_resources: boolean
}

const longestSeconds = 86_400

const gitOf = (git: GitRepositorySpec): Extract<ChartSpec['chart'], { git: unknown }>['git'] => ({
  url: sourceUrlOf(git),
  branch: git.branch,
  gitTokenId: git.git_token_id,
})

export const chartIn = (source: SourceSpec): ChartSpec['chart'] => {
  if ('git_repository' in source) return { git: gitOf(source.git_repository), rootPath: rootOf(source.git_repository) }
  const { repository: repositoryId, chart_name: chartName, chart_version: chartVersion } = source.helm_repository
  return { repositoryId, chartName, chartVersion }
}

const source = ({ source: of, values_override: values }: ChartedSpec): Source => {
  const { git = null, raw = null } = values.file ?? {}
  return {
    from: 'chart',
    chart: chartIn(of),
    valuesFiles: git && { git: gitOf(git.git_repository), paths: git.paths.map(plainPath) },
    rawValues: (raw?.values ?? []).map(({ content }) => content),
    set: values.set as ValuePair[],
    setString: values.set_string as ValuePair[],
    setJson: values.set_json as ValuePair[],
  }
}

const workload = ({
  timeout_sec: seconds,
  allow_cluster_wide_resources: allowClusterWide,
}: ChartedSpec): WorkloadSpec => ({
  entrypoint: null,
  arguments: null,
  // The chart, and the cluster, decide about the resources of its pods.
  cpuMillicores: 0,
  memoryMb: 0,
  instances: 0,
  ports: [],
  volumes: [],
  readiness: null,
  liveness: null,
  readyTimeoutMs: 0,
  stopGraceMs: 30_000,
  chart: { waitSeconds: seconds === 0 ? longestSeconds : seconds, allowClusterWide },
})

export const chartRun: Omit<DeployableKind<ChartedSpec>, 'kind'> = { source, workload }
