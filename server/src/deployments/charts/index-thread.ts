/** The thread that reads indexes of chart repositories: their charts, or where one version of a chart is. */
import { serveReads } from '../../lib/foreign-text/serve-reads.ts'
import { type ChartPlace, type ChartVersions, findChart, parseChartIndex } from './chart-index.ts'

/** `chart`: the only one to list, if any. `version`: the one whose place is wanted. */
export interface IndexJob {
  chart: string | undefined
  version: string | null
}

/** `charts`: null for a text that is not an index. `place`: null if the index does not list it. */
export interface IndexRead {
  charts: ChartVersions[] | null
  place: ChartPlace | null
}

serveReads<IndexJob, string>((text, { chart, version }) => {
  if (version !== null)
    return JSON.stringify({ charts: null, place: findChart(text, chart ?? '', version) } satisfies IndexRead)
  const all = parseChartIndex(text)
  const charts = chart === undefined ? all : (all?.filter(({ chart_name: name }) => name === chart) ?? null)
  return JSON.stringify({ charts, place: null } satisfies IndexRead)
})
