/** The values that a chart is installed with, beside its own. */
import { Link } from '@tanstack/react-router'
import type * as read from '../../api/queries.ts'
import { useMay } from '../../ui/place.ts'
import { ClusterNote } from './cluster-note.tsx'

interface Override {
  set: [string, string][]
  set_string: [string, string][]
  set_json: [string, string][]
  file: {
    raw: { values: { name: string; content: string }[] } | null
    git: { git_repository: { url: string; branch: string }; paths: string[] } | null
  } | null
}

const Values = ({ override: { set, set_string: texts, set_json: json, file } }: { override: Override }) => {
  const pairs = [
    ...set.map((pair) => ['set', ...pair]),
    ...texts.map((pair) => ['set-string', ...pair]),
    ...json.map((pair) => ['set-json', ...pair]),
  ]
  const files = file?.raw?.values ?? []
  const git = file?.git ?? null
  if (pairs.length === 0 && files.length === 0 && git === null)
    return <p className="dim">None: the chart is installed with its own values.</p>
  return (
    <div className="stack">
      {pairs.length === 0 ? null : (
        <pre className="code">{pairs.map(([how, name, value]) => `--${how} ${name}=${value}`).join('\n')}</pre>
      )}
      {git === null ? null : (
        <p className="wrap">
          From <span className="mono">{git.git_repository.url}</span> ({git.git_repository.branch}):{' '}
          <span className="mono">{git.paths.join(', ')}</span>
        </p>
      )}
      {files.map(({ name, content }) => (
        <div key={name} className="stack tight">
          <h3 className="mono">{name}</h3>
          <pre className="code">{content}</pre>
        </div>
      ))}
    </div>
  )
}

export const ChartValues = ({ service }: { service: read.Service }) => {
  const may = useMay()
  return (
    <>
      <ClusterNote service={service} />
      <section className="card">
        <header>
          <h2>Values</h2>
          {may('write') ? (
            <Link
              className="push"
              to="/s/$kind/$serviceId/$section"
              params={{ kind: 'helm', serviceId: service.id, section: 'settings' }}
            >
              Change
            </Link>
          ) : null}
        </header>
        <div className="body">
          <Values override={service.raw.values_override as Override} />
        </div>
      </section>
    </>
  )
}
