/** A Helm chart: from a chart repository, or from git, with its own values. */
import { Autocomplete, SegmentedControl, Select, Textarea } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { client, inPath, resultsOf } from '../../api/client.ts'
import { usePlace } from '../../ui/place.ts'
import { useHelmRepositories } from './choices.ts'
import { type FormProps, NameField, nameFrom } from './fields.tsx'
import { type Git, GitFields } from './git.tsx'

interface ChartSource {
  repository?: string
  chart_name: string
  chart_version: string
}

interface Source {
  helm_repository?: ChartSource
  git_repository?: Git
}

interface ChartProps extends Pick<FormProps, 'problem'> {
  chart: ChartSource
  put(fields: Partial<ChartSource>): void
}

const ChartFields = ({ chart, put, problem }: ChartProps) => {
  const { organizationId = '' } = usePlace()
  const repositories = useHelmRepositories()
  const charts = useQuery({
    queryKey: ['charts', chart.repository],
    queryFn: async () => {
      const path = { organizationId, helmRepositoryId: chart.repository! }
      const url = '/organization/{organizationId}/helmRepository/{helmRepositoryId}/charts'
      return resultsOf(client.GET(url, inPath(path)))
    },
    enabled: organizationId !== '' && chart.repository !== undefined,
    retry: false,
    staleTime: 60_000,
  })
  const versions = charts.data?.find(({ chart_name: name }) => name === chart.chart_name)?.versions ?? []
  return (
    <>
      <Select
        label="Chart repository"
        required
        data={repositories.all.map(({ id, name, url }) => ({ value: id, label: `${name} (${url ?? ''})` }))}
        value={chart.repository ?? null}
        onChange={(id) => put(id === null ? {} : { repository: id })}
        error={problem('/source/helm_repository/repository') ?? repositories.problem}
      />
      {repositories.all.length > 0 || !repositories.isKnown ? null : (
        <p className="note warn">
          The organization has no chart repository yet.{' '}
          <Link to="/o/$organizationId/$section" params={{ organizationId, section: 'charts' }}>
            Add one
          </Link>
          , or take the chart from git.
        </p>
      )}
      <div className="grid" style={{ gridTemplateColumns: 'repeat(auto-fit, minmax(180px, 1fr))' }}>
        <Autocomplete
          label="Chart"
          required
          data={charts.data?.map(({ chart_name: name }) => name) ?? []}
          value={chart.chart_name}
          onChange={(name) => put({ chart_name: name })}
          error={problem('/source/helm_repository/chart_name')}
        />
        <Autocomplete
          label="Version"
          required
          data={[...versions]}
          value={chart.chart_version}
          onChange={(version) => put({ chart_version: version })}
          error={problem('/source/helm_repository/chart_version')}
        />
      </div>
      <span role="status" className="small bad-text unless-empty">
        {charts.error?.message ?? ''}
      </span>
    </>
  )
}

interface Override {
  file?: { raw: { values: { name: string; content: string }[] } }
}

export const HelmForm = ({ body, change, problem }: FormProps) => {
  const source = body.source as Source
  const values = (body.values_override as Override | undefined)?.file?.raw.values[0]?.content ?? ''
  const put = (next: Source, word: string | undefined): void => {
    const before = source.git_repository?.url ?? source.helm_repository?.chart_name ?? ''
    const isNamed = body.name === undefined || body.name === '' || body.name === nameFrom(before)
    change({ source: next, ...(isNamed && word !== undefined ? { name: nameFrom(word) } : {}) })
  }
  return (
    <>
      <p className="note">
        Charts are installed by a Kubernetes cluster. On a cluster that is a Docker engine, the service is stored, and a
        deployment of it is refused with the reason.
      </p>
      <SegmentedControl
        aria-label="Where the chart is"
        data={[
          { value: 'repository', label: 'A chart repository' },
          { value: 'git', label: 'A git repository' },
        ]}
        value={source.git_repository === undefined ? 'repository' : 'git'}
        onChange={(value) =>
          change({
            source:
              value === 'git'
                ? { git_repository: { url: '' } }
                : { helm_repository: { chart_name: '', chart_version: '' } },
          })
        }
      />
      {source.git_repository === undefined ? (
        <ChartFields
          chart={source.helm_repository!}
          put={(fields) => put({ helm_repository: { ...source.helm_repository!, ...fields } }, fields.chart_name)}
          problem={problem}
        />
      ) : (
        <GitFields
          git={source.git_repository}
          put={(fields) => put({ git_repository: { ...source.git_repository!, ...fields } }, fields.url)}
          problem={problem}
          pointer="/source/git_repository"
        />
      )}
      <NameField {...{ body, change, problem }} />
      <Textarea
        label="Values (YAML)"
        description="Instead of the values that the chart has by itself."
        autosize
        minRows={4}
        maxRows={18}
        spellCheck={false}
        value={values}
        onChange={(event) => {
          const content = event.currentTarget.value
          const file = { raw: { values: [{ name: 'values.yaml', content }] } }
          change({ values_override: content === '' ? undefined : { file } })
        }}
        error={problem('/values_override')}
        styles={{ input: { fontFamily: 'var(--mono)', fontSize: 13 } }}
      />
    </>
  )
}
