/** The facts and the state of a service. */

import { PasswordInput } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Fragment, useState } from 'react'
import { answerOf, client, inPath } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { useStream } from '../../api/stream.ts'
import { Breakable } from '../../ui/breakable.tsx'
import { Copied } from '../../ui/dialog.tsx'
import { Icon } from '../../ui/icons.tsx'
import { Answer, Waiting } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { ListTable } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { Time } from '../../ui/time.tsx'
import { ClusterNote } from './cluster-note.tsx'
import { factsOf, isProse } from './facts.ts'
import { Outputs } from './outputs.tsx'
import { Runs } from './runs.tsx'
import { isCron, type Shown, staysUp } from './shown.ts'
import { LastRun, TerraformActions } from './terraform.tsx'

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

/** The values with which a chart is installed, beside its defaults. */
const ChartValues = ({ service }: { service: read.Service }) => {
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

const Usage = ({ id, wasDeployed }: { id: string; wasDeployed: boolean }) => {
  interface Metric {
    current: number
    limit: number
    unit: string
  }
  const [instances, setInstances] = useState<{ pod_name: string; cpu: Metric; memory: Metric }[] | null>(null)
  useStream<NonNullable<typeof instances>>(`/service/metrics?service=${id}`, { onMessage: setInstances })
  if (instances === null || instances.length === 0)
    return (
      <div className="body dim">
        {instances === null ? (
          <Waiting what="the engine" isInline />
        ) : (
          `No instances are running.${wasDeployed ? '' : ' They start when the service is deployed.'}`
        )}
      </div>
    )
  return (
    <ListTable label="Instances" heads={{ Instance: '', CPU: 'tight', Memory: 'tight' }}>
      {instances.map(({ pod_name: name, cpu, memory }) => (
        <tr key={name}>
          <td style={{ width: '100%', minWidth: 110, maxWidth: 0 }}>
            <span className="mono clip" style={{ display: 'block' }} title={name}>
              {name}
            </span>
          </td>
          <td className="tight">
            {cpu.current / 1000} of {cpu.limit / 1000} cores
          </td>
          <td className="tight">
            {memory.current} of {memory.limit} MB
          </td>
        </tr>
      ))}
    </ListTable>
  )
}

const Links = ({ service }: { service: read.Service }) => {
  const links = useQuery(read.links(service.environmentId))
  if (links.data === undefined)
    return <span className="dim">{links.error === null ? '…' : 'They cannot be read now.'}</span>
  const mine = links.data.filter(({ service_id }) => service_id === service.id)
  if (mine.length === 0) return <span className="dim">none: no port is public</span>
  return mine.map(({ url }) => (
    <a key={url} href={url} target="_blank" rel="noreferrer" className="wrap small" style={{ display: 'block' }}>
      <Breakable text={url} />
    </a>
  ))
}

const Credentials = ({ id }: { id: string }) => {
  const [isShown, show] = useState(false)
  const asked = useQuery({
    queryKey: ['credentials', id],
    queryFn: () => answerOf(client.GET('/database/{databaseId}/masterCredentials', inPath({ databaseId: id }))),
    enabled: isShown,
    gcTime: 0,
    retry: false,
  })
  if (!isShown)
    return (
      <SmallButton leftSection={<Icon name="eye" size={14} />} onClick={() => show(true)}>
        Show credentials
      </SmallButton>
    )
  return (
    <Answer of={asked}>
      {({ host, port, login, password }) => (
        <div className="stack">
          <div>
            <span className="strong">Host and port</span>
            <Copied label="Host and port" value={`${host}:${port}`} />
          </div>
          <div>
            <span className="strong">Login</span>
            <Copied label="Login" value={login} />
          </div>
          <PasswordInput
            label="Password"
            readOnly
            value={password}
            visibilityToggleButtonProps={{ 'aria-label': 'Show the password' }}
          />
          <SmallButton onClick={() => void navigator.clipboard.writeText(password)}>Copy the password</SmallButton>
        </div>
      )}
    </Answer>
  )
}

/** The middle of the page, by kind. */
const Main = ({ service, status }: Shown) => {
  if (staysUp(service))
    return (
      <section className="card">
        <header>
          <h2>Instances</h2>
          <span className="dim small push">live</span>
        </header>
        <Usage id={service.id} wasDeployed={status === undefined || status.last_deployment_date != null} />
      </section>
    )
  if (service.kind === 'job')
    return (
      <>
        {isCron(service) ? (
          <Runs service={service} status={status} />
        ) : (
          <p className="dim">It runs when its environment is deployed, stopped or deleted: see the deployments.</p>
        )}
        <Outputs service={service} />
      </>
    )
  if (service.kind === 'terraform')
    return (
      <>
        <TerraformActions service={service} />
        <LastRun service={service} />
      </>
    )
  if (service.kind === 'helm') return <ChartValues service={service} />
  return (
    <>
      <ClusterNote service={service} />
      <div className="note">
        The Argo CD of the cluster keeps this app at the deployed commit, and puts right what is changed by hand.
      </div>
    </>
  )
}

export const Overview = ({ service, status }: Shown) => {
  const may = useMay()
  return (
    <div className="split">
      <div className="stack">
        {status?.restarts === undefined ? null : (
          <div className="note warn">
            <strong>It restarted {status.restarts.restart_count} times.</strong>{' '}
            <span className="wrap">{status.restarts.message}</span>
          </div>
        )}
        <Main service={service} status={status} />
      </div>
      <section className="card">
        <header>
          <h2>About</h2>
        </header>
        <div className="body">
          <dl className="facts">
            {factsOf(service).map(([name, value]) => (
              <Fragment key={name}>
                <dt>{name}</dt>
                <dd className={`wrap ${isProse(name, value) ? '' : 'mono'}`}>
                  {name === 'Synchronized' ? <Time at={value} /> : <Breakable text={value} />}
                </dd>
              </Fragment>
            ))}
            {['application', 'container', 'helm'].includes(service.kind) ? (
              <>
                <dt>Addresses</dt>
                <dd>
                  <Links service={service} />
                </dd>
              </>
            ) : null}
            <dt>Deployed</dt>
            <dd>{status === undefined ? '…' : <Time at={status.last_deployment_date} />}</dd>
            {service.description === null || service.description === '' ? null : (
              <>
                <dt>Description</dt>
                <dd>{service.description}</dd>
              </>
            )}
          </dl>
          {service.kind === 'database' && may('write') ? (
            <div style={{ marginTop: 14 }}>
              <Credentials id={service.id} />
            </div>
          ) : null}
        </div>
      </section>
    </div>
  )
}
