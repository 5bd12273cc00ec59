/** A chart that helm installs: of a repository of charts, or in a folder of a git repository. */
import { makeChart, readChart } from '../charts/make-chart.ts'
import type { ServiceRequest, Source } from '../deployments.ts'
import { freezeWorkload, thawWorkload } from '../desired/workload.ts'
import { commitOf } from '../release/version-change.ts'
import { readChartExposure } from '../traffic/routes.ts'
import { nextCommit } from './commit.ts'
import type { Driver } from './driver.ts'

type ChartSource = Extract<Source, { from: 'chart' }>

/** Why the chart or its values do not have the requested version; null if they may. */
const versionRefusal = (
  { chart: of, valuesFiles }: ChartSource,
  { commitId, chartVersion, valuesCommitId }: Partial<ServiceRequest>,
): string | null => {
  const isOfGit = 'git' in of
  if (isOfGit && chartVersion !== undefined)
    return 'The chart of this service comes from a git repository: ask for a git_commit_id, not for a chart_version.'
  if (!isOfGit && commitId !== undefined)
    return 'The chart of this service comes from a helm repository: ask for a chart_version, not for a git_commit_id.'
  if (valuesFiles === null && valuesCommitId !== undefined)
    return 'This service has no values in a git repository: leave out values_override_git_commit_id.'
  return null
}

export const chart: Driver<ChartSource> = {
  artifact: 'chart',
  refusal: ({ missingTool }, { source, requested }) => versionRefusal(source, requested) ?? missingTool('helm'),
  // The source of its values may have changed unseen.
  next(next, { chart: of, valuesFiles }) {
    const { current, requested } = next
    const isSeen = valuesFiles === null
    if ('git' in of) {
      const from = commitOf(current)
      return isSeen ? nextCommit(next, of.git) : { of: 'chart', from, to: null, fromName: from, toName: from }
    }
    const from = current?.image ?? null
    const name = `${of.chartName} ${requested.chartVersion ?? of.chartVersion}`
    return { of: 'chart', from, to: isSeen ? name : null, fromName: from, toName: name }
  },
  make: makeChart,
  /** Fetches and renders the chart, and keeps nothing. */
  async foresee(
    { parts, cluster, organizationId, environmentId, service, requested, spec, variables, signal },
    source,
  ) {
    if (cluster.runtime.planChart === undefined) return {}
    const fetching = { parts, organizationId, signal, say: () => {} }
    const { content } = await readChart(fetching, source, requested, async () => variables)
    const ids = { organizationId, projectId: '', environmentId, serviceId: service.id, revision: '', aliases: [] }
    const workload = thawWorkload(freezeWorkload(ids, spec, source), '', { ...variables, chart: content })
    if (workload.artifact !== 'chart') return {}
    const exposure = () => readChartExposure(parts.database, service.id)
    return { objects: await cluster.runtime.planChart({ state: 'running', workload, exposure }, signal) }
  },
}
