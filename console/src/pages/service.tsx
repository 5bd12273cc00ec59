/** An application, a container or a database: what it is and does now, its versions, logs, variables and settings. */

import { forms } from 'virtual:forms'
import { Button, PasswordInput, TextInput } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { answerOf, client, Problem, toProblem } from '../api/client.ts'
import * as read from '../api/queries.ts'
import { useStream } from '../api/stream.ts'
import { Actions } from '../ui/actions.tsx'
import { SchemaForm } from '../ui/form.tsx'
import { Icon } from '../ui/icons.tsx'
import { LogView, useLines } from '../ui/log-view.tsx'
import { Answer, Empty, Failure } from '../ui/notices.tsx'
import { useMay } from '../ui/place.ts'
import { PlanDialog } from '../ui/plan.tsx'
import { Freshness, isBusy, StateMark, shownState } from '../ui/state.tsx'
import { Tabs } from '../ui/tabs.tsx'
import { Time } from '../ui/time.tsx'
import { tell, tellProblem } from '../ui/toasts.tsx'
import { Variables } from '../ui/variables.tsx'
import { kindWords } from './environment.tsx'

interface Shown {
  service: read.Service
  status: read.ServiceStatus | undefined
}

const Usage = ({ id }: { id: string }) => {
  interface Metric {
    current: number
    limit: number
    unit: string
  }
  const [instances, setInstances] = useState<{ pod_name: string; cpu: Metric; memory: Metric }[] | null>(null)
  useStream<NonNullable<typeof instances>>(`/service/metrics?service=${id}`, { onMessage: setInstances })
  if (instances === null || instances.length === 0)
    return <p className="dim">{instances === null ? 'Asking the engine …' : 'No instance runs.'}</p>
  return (
    <div className="scroll">
      <table className="list">
        <thead>
          <tr>
            <th>Instance</th>
            <th className="tight">CPU</th>
            <th className="tight">Memory</th>
          </tr>
        </thead>
        <tbody>
          {instances.map(({ pod_name: name, cpu, memory }) => (
            <tr key={name}>
              <td style={{ maxWidth: 260 }}>
                <span className="mono clip" style={{ display: 'block' }} title={name}>
                  {name}
                </span>
              </td>
              <td className="tight">
                {cpu.current} of {cpu.limit} m
              </td>
              <td className="tight">
                {memory.current} of {memory.limit} MB
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

const Links = ({ service }: { service: read.Service }) => {
  const links = useQuery(read.links(service.environmentId))
  const mine = (links.data ?? []).filter(({ service_id }) => service_id === service.id)
  if (mine.length === 0) return <span className="dim">none: no port is public</span>
  return mine.map(({ url }) => (
    <a key={url} href={url} target="_blank" rel="noreferrer" className="wrap" style={{ display: 'block' }}>
      {url}
    </a>
  ))
}

const Credentials = ({ id }: { id: string }) => {
  const [isShown, show] = useState(false)
  const asked = useQuery({
    queryKey: ['credentials', id],
    queryFn: () =>
      answerOf(client.GET('/database/{databaseId}/masterCredentials', { params: { path: { databaseId: id } } })),
    enabled: isShown,
    gcTime: 0,
    retry: false,
  })
  if (!isShown)
    return (
      <Button
        size="compact-sm"
        variant="default"
        leftSection={<Icon name="eye" size={14} />}
        onClick={() => show(true)}
      >
        Show credentials
      </Button>
    )
  return (
    <Answer of={asked}>
      {({ host, port, login, password }) => (
        <div className="stack">
          <TextInput label="Host and port" readOnly value={`${host}:${port}`} />
          <TextInput label="Login" readOnly value={login} />
          <PasswordInput
            label="Password"
            readOnly
            value={password}
            visibilityToggleButtonProps={{ 'aria-label': 'Show the password' }}
          />
        </div>
      )}
    </Answer>
  )
}

const sourceOf = ({ raw, version }: read.Service) => {
  const git = raw.git_repository as { url: string; branch: string } | undefined
  return git === undefined ? (version ?? '–') : `${git.url} (${git.branch})`
}

const Overview = ({ service, status }: Shown) => (
  <div className="split">
    <div className="stack">
      {status?.restarts === undefined ? null : (
        <div className="note warn">
          <strong>It restarted {status.restarts.restart_count} times.</strong>{' '}
          <span className="wrap">{status.restarts.message}</span>
        </div>
      )}
      <section className="card">
        <header>
          <h2>Instances</h2>
          <span className="dim small push">live</span>
        </header>
        <div className="body" style={{ padding: status?.running_state === 'RUNNING' ? 0 : undefined }}>
          <Usage id={service.id} />
        </div>
      </section>
    </div>
    <section className="card">
      <header>
        <h2>About</h2>
      </header>
      <div className="body">
        <dl className="facts">
          <dt>Source</dt>
          <dd className="mono">{sourceOf(service)}</dd>
          {service.version === null ? null : (
            <>
              <dt>Version</dt>
              <dd className="mono">{service.version}</dd>
            </>
          )}
          <dt>Addresses</dt>
          <dd>
            <Links service={service} />
          </dd>
          <dt>Deployed</dt>
          <dd>
            <Time at={status?.last_deployment_date} />
          </dd>
          {service.description === null || service.description === '' ? null : (
            <>
              <dt>Description</dt>
              <dd>{service.description}</dd>
            </>
          )}
          {service.kind === 'database' ? (
            <>
              <dt>Access</dt>
              <dd>
                <Credentials id={service.id} />
              </dd>
            </>
          ) : null}
        </dl>
      </div>
    </section>
  </div>
)

const Deployments = ({ service }: Shown) => {
  const { kind, id, environmentId, name } = service
  const releases = useQuery(read.releases(kind, id, environmentId))
  const history = useQuery(read.serviceHistory(kind, id, environmentId))
  const may = useMay()
  const [asked, ask] = useState<string | null>(null)
  const byExecution = new Map((releases.data ?? []).map((each) => [each.execution_id, each]))
  return (
    <Answer of={history}>
      {(rows) =>
        rows.length === 0 ? (
          <Empty title="It was never deployed" />
        ) : (
          <div className="card scroll">
            <table className="list">
              <thead>
                <tr>
                  <th>Version</th>
                  <th className="tight">Result</th>
                  <th className="optional">By</th>
                  <th className="tight">When</th>
                  <th className="tight">
                    <span className="hidden-text">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {rows.map(({ identifier, status, auditing_data: audit, details }) => {
                  const release = byExecution.get(identifier.execution_id)
                  const words =
                    details.commit === null || details.commit === undefined
                      ? `${details.image_name ?? ''}${details.tag === undefined ? '' : `:${details.tag}`}`
                      : `${details.commit.git_commit_id.slice(0, 7)} ${details.commit.message.split('\n')[0]}`
                  return (
                    <tr key={identifier.execution_id}>
                      <td style={{ maxWidth: 420 }}>
                        <Link
                          to="/e/$environmentId/deployments/$executionId"
                          params={{ environmentId, executionId: identifier.execution_id }}
                          search={{ service: id }}
                          className="main clip"
                          style={{ display: 'block' }}
                        >
                          {words === '' ? `#${identifier.execution_id.slice(37).split('-')[0]}` : words}
                        </Link>
                        {release?.is_current === true ? <span className="chip good">Serving</span> : null}
                      </td>
                      <td className="tight">
                        <StateMark state={status} />
                      </td>
                      <td className="dim optional">{audit.triggered_by}</td>
                      <td className="tight">
                        <Time at={audit.created_at} />
                      </td>
                      <td className="tight">
                        {release?.was_successful === true && !release.is_current && may('deploy') ? (
                          <Button size="compact-sm" variant="default" onClick={() => ask(release.id)}>
                            Roll back to this
                          </Button>
                        ) : null}
                      </td>
                    </tr>
                  )
                })}
              </tbody>
            </table>
            {asked === null ? null : (
              <PlanDialog
                action={{ verb: 'rollback', target: { id, name, kind, environmentId }, to: asked }}
                onClose={() => ask(null)}
              />
            )}
          </div>
        )
      }
    </Answer>
  )
}

interface WireLine {
  created_at: number
  message: string
  pod_name: string
  severity_text: string
}

const Logs = ({ service, status }: Shown) => {
  const { q = '', line } = useSearch({ from: '/frame/s/$kind/$serviceId/$section' })
  const navigate = useNavigate()
  const { lines, add, clear, dropped } = useLines()
  const put = (search: { q?: string | undefined; line?: string | undefined }): void =>
    void navigate({ to: '.', search: { q: q || undefined, line, ...search }, replace: true })
  // Lines have no number of their own: the time and how many came at that time name one, again after a reload.
  const [seen] = useState(() => new Map<string, number>())
  useStream<WireLine | WireLine[]>(`/service/logs?service=${service.id}&limit=2000`, {
    onOpen() {
      seen.clear()
      clear()
    },
    onMessage(frame) {
      add(
        [frame].flat().map(({ created_at: at, message, pod_name: from, severity_text: severity }) => {
          const name = `${at}-${from}`
          const count = (seen.get(name) ?? 0) + 1
          seen.set(name, count)
          return { id: `${name}-${count}`, at, text: message, isError: severity === 'ERROR', from }
        }),
      )
    },
  })
  return (
    <LogView
      lines={lines}
      dropped={dropped}
      name={service.name}
      empty={status?.running_state === 'RUNNING' ? 'It has printed nothing yet.' : 'Nothing to show: no instance runs.'}
      search={q}
      onSearch={(text) => put({ q: text || undefined })}
      markedLine={line}
      onLine={(id) => {
        put({ line: id })
        void navigator.clipboard
          ?.writeText(`${location.origin}${location.pathname}?line=${encodeURIComponent(id)}`)
          .then(() => tell('The link to this line was copied.'))
      }}
      showsFrom
    />
  )
}

const domainPath = (kind: read.Kind) => `/${kind}/{containerId}/customDomain` as '/container/{containerId}/customDomain'

const useDomains = ({ kind, id }: read.Service) =>
  useQuery({
    queryKey: ['domains', id],
    queryFn: async () =>
      (await answerOf(client.GET(domainPath(kind), { params: { path: { containerId: id } } }))).results,
  })

const NewDomain = ({ service }: { service: read.Service }) => {
  const queries = useQueryClient()
  const [domain, setDomain] = useState('')
  const adding = useMutation({
    mutationFn: () =>
      answerOf(
        client.POST(domainPath(service.kind), {
          params: { path: { containerId: service.id } },
          body: { domain, generate_certificate: true, use_cdn: false },
        }),
      ),
    onSuccess() {
      setDomain('')
      tell(`${domain} was added.`)
      for (const name of ['domains', 'links']) void queries.invalidateQueries({ queryKey: [name] })
    },
  })
  const submit = (event: FormEvent): void => {
    event.preventDefault()
    adding.mutate()
  }
  const problem = adding.error === null ? undefined : toProblem(adding.error).message
  return (
    <form className="row top" onSubmit={submit}>
      <TextInput
        aria-label="Domain"
        placeholder="www.example.org"
        value={domain}
        onChange={(event) => setDomain(event.currentTarget.value)}
        error={problem}
        style={{ flex: 1, maxWidth: 360 }}
      />
      <Button type="submit" loading={adding.isPending} disabled={domain === ''}>
        Add
      </Button>
    </form>
  )
}

const certificateWords: Record<string, string> = {
  WAITING: 'Certificate is waiting',
  ORDERING: 'Certificate is being ordered',
  ISSUED: 'Certificate issued',
  EXPIRED: 'Certificate expired',
}

const Domains = ({ service }: Shown) => {
  const may = useMay()
  const queries = useQueryClient()
  const domains = useDomains(service)
  const removing = useMutation({
    mutationFn: (id: string) => {
      const path =
        `${domainPath(service.kind)}/{customDomainId}` as '/container/{containerId}/customDomain/{customDomainId}'
      return answerOf(client.DELETE(path, { params: { path: { containerId: service.id, customDomainId: id } } }))
    },
    onSuccess: () => void queries.invalidateQueries({ queryKey: ['domains'] }),
    onError: tellProblem,
  })
  return (
    <div className="stack">
      {may('write') ? <NewDomain service={service} /> : null}
      <Answer of={domains}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty title="No domains of your own">
              <p>Point a CNAME of your domain at the address of this service, then add it here.</p>
            </Empty>
          ) : (
            <div className="card scroll">
              <table className="list">
                <thead>
                  <tr>
                    <th>Domain</th>
                    <th className="optional">CNAME to</th>
                    <th>Certificate</th>
                    <th className="tight">
                      <span className="hidden-text">Actions</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {rows.map(({ id, domain, validation_domain: target, certificate }) => (
                    <tr key={id}>
                      <td className="wrap strong">{domain}</td>
                      <td className="wrap mono optional">{target ?? '–'}</td>
                      <td className="wrap">
                        {certificate === null ? (
                          <span className="dim">none</span>
                        ) : (
                          (certificateWords[certificate.state] ?? certificate.state)
                        )}
                        {certificate?.reason == null ? null : <p className="small dim">{certificate.reason}</p>}
                      </td>
                      <td className="tight">
                        {may('delete') ? (
                          <Button size="compact-sm" variant="default" onClick={() => removing.mutate(id)}>
                            Remove
                          </Button>
                        ) : null}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )
        }
      </Answer>
    </div>
  )
}

const firstFields: Record<string, readonly string[]> = {
  application: [
    'name',
    'description',
    'git_repository',
    'dockerfile_path',
    'cpu',
    'memory',
    'min_running_instances',
    'max_running_instances',
    'ports',
    'storage',
    'healthchecks',
  ],
  container: [
    'name',
    'description',
    'image_name',
    'tag',
    'cpu',
    'memory',
    'min_running_instances',
    'max_running_instances',
    'ports',
    'storage',
    'healthchecks',
  ],
  database: ['name', 'description', 'version', 'accessibility', 'cpu', 'memory', 'storage'],
}

const Settings = ({ service }: Shown) => {
  const may = useMay()
  const queries = useQueryClient()
  const { kind, id, raw } = service
  return (
    <SchemaForm
      schema={forms[kind]!}
      value={raw}
      first={firstFields[kind] ?? []}
      hidden={['annotations_groups', 'labels_groups', 'registry_id', 'icon_uri', 'type', 'mode']}
      isReadOnly={!may('write')}
      saved="Saved. The next deployment applies it."
      save={async (changes) => {
        const path = `/${kind}/{containerId}` as '/container/{containerId}'
        await answerOf(client.PUT(path, { params: { path: { containerId: id } }, body: changes as never }))
        await Promise.all(
          ['service', 'services', 'links'].map((name) => queries.invalidateQueries({ queryKey: [name] })),
        )
      }}
    />
  )
}

const pages = {
  overview: Overview,
  deployments: Deployments,
  logs: Logs,
  variables: () => null,
  domains: Domains,
  settings: Settings,
}
type Section = keyof typeof pages

const sectionsOf = (kind: read.Kind): Partial<Record<Section, string>> => ({
  overview: 'Overview',
  deployments: 'Deployments',
  logs: 'Logs',
  ...(kind === 'database' ? {} : { variables: 'Variables', domains: 'Domains' }),
  settings: 'Settings',
})

const variableScopes: Partial<Record<read.Kind, 'APPLICATION' | 'CONTAINER'>> = {
  application: 'APPLICATION',
  container: 'CONTAINER',
}

const Section = ({ section, service, status }: Shown & { section: Section }) => {
  const scope = variableScopes[service.kind]
  if (section === 'variables') return scope === undefined ? null : <Variables scope={scope} parentId={service.id} />
  const Page = pages[section]
  return <Page key={service.id} service={service} status={status} />
}

export const Service = () => {
  const { kind, serviceId, section } = useParams({ from: '/frame/s/$kind/$serviceId/$section' })
  const navigate = useNavigate()
  const isKnown = read.fullKinds.includes(kind as read.Kind)
  const service = useQuery({ ...read.service(kind as read.Kind, serviceId), enabled: isKnown })
  const live = read.useLiveEnvironment(service.data?.environmentId ?? null)
  read.useTitle(service.data?.name)
  const sections = sectionsOf(kind as read.Kind)
  if (!isKnown || !(section in sections)) return <Failure error={new Problem(404, {})} />
  return (
    <Answer of={service}>
      {(found) => {
        const status = live === undefined ? undefined : read.statusesIn(live).get(serviceId)
        const state = status === undefined ? null : shownState(status)
        return (
          <>
            <div className="head">
              <div className="grow stack tight">
                <h1>{found.name}</h1>
                <div className="row wraps">
                  {state === null ? null : <StateMark {...state} />}
                  <Freshness status={status?.service_deployment_status ?? ''} />
                  <span className="chip">{kindWords[found.kind]}</span>
                </div>
              </div>
              <Actions
                target={{ id: serviceId, name: found.name, kind: found.kind, environmentId: found.environmentId }}
                isBusy={status !== undefined && isBusy(status.state)}
                isStale={status?.service_deployment_status !== 'UP_TO_DATE'}
                onDeleted={() =>
                  void navigate({
                    to: '/e/$environmentId/$section',
                    params: { environmentId: found.environmentId, section: 'services' },
                  })
                }
              />
            </div>
            {status?.error === undefined ? null : (
              <div className="note bad" role="status" style={{ marginBottom: 16 }}>
                <strong>{isBusy(status.state) ? 'Before this deployment:' : 'It needs attention.'}</strong>{' '}
                <span className="wrap">{status.error.message}</span>{' '}
                {status.execution_id === undefined ? null : (
                  <Link
                    to="/e/$environmentId/deployments/$executionId"
                    params={{ environmentId: found.environmentId, executionId: status.execution_id }}
                  >
                    See the deployment
                  </Link>
                )}
              </div>
            )}
            <Tabs
              base={`/s/${kind}/${serviceId}`}
              at={section}
              sections={sections as Record<string, string>}
              label="Of this service"
            />
            <Section section={section as Section} service={found} status={status} />
          </>
        )
      }}
    </Answer>
  )
}
