/** An environment: its services by stage, live; its deployments, variables and settings. */

import { forms } from 'virtual:forms'
import { Button, TextInput } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { answerOf, client, Problem } from '../api/client.ts'
import * as read from '../api/queries.ts'
import { Actions } from '../ui/actions.tsx'
import { SchemaForm } from '../ui/form.tsx'
import { Icon } from '../ui/icons.tsx'
import { Answer, Empty, Failure, Waiting } from '../ui/notices.tsx'
import { useMay } from '../ui/place.ts'
import { PlanDialog } from '../ui/plan.tsx'
import { addressOf } from '../ui/shell.tsx'
import { stageName } from '../ui/stage-name.ts'
import { Freshness, isBusy, StateMark, shownState } from '../ui/state.tsx'
import { Tabs } from '../ui/tabs.tsx'
import { durationOf, Time } from '../ui/time.tsx'
import { Variables } from '../ui/variables.tsx'
import { type RowPlace, VirtualRows } from '../ui/virtual-rows.tsx'
import { modeWords } from './overview.tsx'

const sections = { services: 'Services', deployments: 'Deployments', variables: 'Variables', settings: 'Settings' }

export const kindWords: Record<read.Kind, string> = {
  application: 'Application',
  container: 'Container',
  database: 'Database',
  job: 'Job',
  helm: 'Helm chart',
  terraform: 'Terraform',
  argocdApp: 'Argo CD',
}

const Name = ({ service }: { service: read.Service }) =>
  read.fullKinds.includes(service.kind) ? (
    <Link to={addressOf(service)} className="main wrap">
      {service.name}
    </Link>
  ) : (
    <span className="strong wrap">{service.name}</span>
  )

interface RowProps {
  service: read.Service
  status: read.ServiceStatus | undefined
  address: string | undefined
}

const ServiceRow = ({ service, status, address, place }: RowProps & { place: RowPlace }) => {
  const shown = status === undefined ? { state: 'READY' } : shownState(status)
  return (
    <tr {...place}>
      <td>
        <Name service={service} />
        {status?.error === undefined ? null : (
          <p className="small wrap" style={{ color: 'var(--bad)', maxWidth: 520 }}>
            {status.error.message}
          </p>
        )}
      </td>
      <td>
        <span className="row" style={{ gap: 8 }}>
          <StateMark {...shown} />
          <Freshness status={status?.service_deployment_status ?? ''} />
        </span>
      </td>
      <td className="dim optional">{kindWords[service.kind]}</td>
      <td className="optional" style={{ maxWidth: 230 }}>
        <span className="mono clip" style={{ display: 'block' }} title={service.version ?? undefined}>
          {service.version ?? '–'}
        </span>
      </td>
      <td className="optional" style={{ maxWidth: 260 }}>
        {address === undefined ? (
          <span className="dim">–</span>
        ) : (
          <a href={address} target="_blank" rel="noreferrer" className="clip" style={{ display: 'block' }}>
            {address.replace(/^https?:\/\//, '')}
          </a>
        )}
      </td>
      <td className="optional">
        <Time at={status?.last_deployment_date} />
      </td>
    </tr>
  )
}

const ServiceTable = ({ stage, rows }: { stage: string | null; rows: readonly RowProps[] }) => (
  <section className="card">
    {stage === null ? null : (
      <header>
        <h2>{stage}</h2>
      </header>
    )}
    <div className="scroll">
      <table className="list services">
        <thead>
          <tr>
            <th>Service</th>
            <th>State</th>
            <th className="optional">Kind</th>
            <th className="optional">Version</th>
            <th className="optional">Address</th>
            <th className="optional">Deployed</th>
          </tr>
        </thead>
        <VirtualRows rows={rows} keyOf={({ service }) => service.id} height={45} columns={6}>
          {(row, place) => <ServiceRow {...row} place={place} />}
        </VirtualRows>
      </table>
    </div>
  </section>
)

const Services = ({ environmentId, live }: { environmentId: string; live: read.LiveStatuses | undefined }) => {
  const { q = '' } = useSearch({ from: '/frame/e/$environmentId/$section' })
  const navigate = useNavigate()
  const may = useMay()
  const services = useQuery(read.services(environmentId))
  const { data: links = [] } = useQuery(read.links(environmentId))
  const create = may('write') ? (
    <Button
      component={Link}
      to={`/e/${environmentId}/new/image`}
      variant="default"
      leftSection={<Icon name="plus" size={14} />}
    >
      New service
    </Button>
  ) : null
  const addresses = new Map(links.toReversed().map(({ service_id, url }) => [service_id, url]))
  const statuses = live === undefined ? new Map<string, read.ServiceStatus>() : read.statusesIn(live)
  const rowOf = (service: read.Service): RowProps => ({
    service,
    status: statuses.get(service.id),
    address: addresses.get(service.id),
  })
  return (
    <Answer of={services}>
      {(all) => {
        const fitting = all.filter(({ name, kind }) => `${name} ${kind}`.toLowerCase().includes(q.toLowerCase()))
        const byId = new Map(fitting.map((each) => [each.id, each]))
        const stages = live === undefined ? [] : read.stagesOf(live)
        const placed = stages
          .map(({ id, name, statuses: mine }) => ({
            id,
            name,
            rows: mine.flatMap((each) => byId.get(each.id) ?? []).map(rowOf),
          }))
          .filter(({ rows }) => rows.length > 0)
        const known = new Set(placed.flatMap(({ rows }) => rows.map(({ service }) => service.id)))
        const others = fitting.filter(({ id }) => !known.has(id)).map(rowOf)
        if (all.length === 0)
          return (
            <Empty title="No services yet" actions={create}>
              <p>Run an image, build a git repository, or start a database.</p>
            </Empty>
          )
        return (
          <div className="stack">
            <div className="row wraps">
              <TextInput
                aria-label="Filter services"
                placeholder="Filter"
                leftSection={<Icon name="search" size={14} />}
                value={q}
                onChange={(event) =>
                  void navigate({ to: '.', search: { q: event.currentTarget.value || undefined }, replace: true })
                }
              />
              <span className="push">{create}</span>
            </div>
            {placed.map(({ id, name, rows }) => (
              <ServiceTable key={id} stage={placed.length > 1 ? stageName(name) : null} rows={rows} />
            ))}
            {others.length === 0 ? null : <ServiceTable stage={null} rows={others} />}
            {fitting.length === 0 ? <Empty title="No service fits" /> : null}
          </div>
        )
      }}
    </Answer>
  )
}

const verbs: Record<string, string> = {
  DEPLOY: 'Deploy',
  DELETE: 'Delete',
  RESTART: 'Restart',
  STOP: 'Stop',
  UNINSTALL: 'Uninstall',
}

const Deployments = ({ environmentId, name }: { environmentId: string; name: string }) => {
  const history = useQuery(read.history(environmentId))
  const may = useMay()
  const [asked, ask] = useState<string | null>(null)
  return (
    <Answer of={history}>
      {(rows) =>
        rows.length === 0 ? (
          <Empty title="Nothing was deployed yet" />
        ) : (
          <div className="card scroll">
            <table className="list">
              <thead>
                <tr>
                  <th>Deployment</th>
                  <th className="tight">Result</th>
                  <th className="optional">Services</th>
                  <th className="optional">By</th>
                  <th className="tight optional">Took</th>
                  <th className="tight">When</th>
                  <th className="tight">
                    <span className="hidden-text">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {rows.map(
                  (
                    { identifier, auditing_data: audit, status, trigger_action: action, total_duration: took, stages },
                    index,
                  ) => (
                    <tr key={identifier.deployment_request_id}>
                      <td>
                        <Link
                          to="/e/$environmentId/deployments/$executionId"
                          params={{ environmentId, executionId: identifier.execution_id }}
                          className="main"
                        >
                          {verbs[action] ?? action} #{identifier.execution_id.slice(37).split('-')[0]}
                        </Link>
                      </td>
                      <td className="tight">
                        <StateMark state={status} />
                      </td>
                      <td className="dim optional">
                        {stages.reduce((count, { services }) => count + services.length, 0)}
                      </td>
                      <td className="dim optional" style={{ maxWidth: 220 }}>
                        <span className="clip" style={{ display: 'block' }}>
                          {audit.triggered_by}, {audit.origin.toLowerCase()}
                        </span>
                      </td>
                      <td className="tight dim optional">{durationOf(took)}</td>
                      <td className="tight">
                        <Time at={audit.created_at} />
                      </td>
                      <td className="tight">
                        {index > 0 && action === 'DEPLOY' && status === 'DEPLOYED' && may('deploy') ? (
                          <Button size="compact-sm" variant="default" onClick={() => ask(identifier.execution_id)}>
                            Roll back to this
                          </Button>
                        ) : null}
                      </td>
                    </tr>
                  ),
                )}
              </tbody>
            </table>
            {asked === null ? null : (
              <PlanDialog
                action={{ verb: 'rollback', target: { id: environmentId, name, environmentId }, to: asked }}
                onClose={() => ask(null)}
              />
            )}
          </div>
        )
      }
    </Answer>
  )
}

const Settings = ({ environmentId, value }: { environmentId: string; value: Record<string, unknown> }) => {
  const may = useMay()
  const queries = useQueryClient()
  return (
    <SchemaForm
      schema={forms.environment!}
      value={value}
      first={['name', 'mode']}
      hidden={['cluster', 'cluster_id']}
      isReadOnly={!may('write')}
      saved="Saved."
      save={async (changes) => {
        await answerOf(
          client.PUT('/environment/{environmentId}', { params: { path: { environmentId } }, body: changes as never }),
        )
        await Promise.all(
          ['environment', 'environments'].map((name) => queries.invalidateQueries({ queryKey: [name] })),
        )
      }}
    />
  )
}

/** Why the last deployment failed stands before everything else. */
const LastFailure = ({ live, environmentId }: { live: read.LiveStatuses; environmentId: string }) => {
  const failed = [...read.statusesIn(live).values()].find(({ error }) => error !== undefined)
  const problem = live.environment.error ?? failed?.error
  if (problem === undefined) return null
  return (
    <div className="note bad" role="status" style={{ marginBottom: 16 }}>
      <strong>Something needs attention.</strong> <span className="wrap">{problem.message}</span>{' '}
      {failed?.execution_id === undefined ? null : (
        <Link
          to="/e/$environmentId/deployments/$executionId"
          params={{ environmentId, executionId: failed.execution_id }}
        >
          See the deployment
        </Link>
      )}
    </div>
  )
}

export const Environment = () => {
  const { environmentId, section } = useParams({ from: '/frame/e/$environmentId/$section' })
  const navigate = useNavigate()
  const environment = useQuery(read.environment(environmentId))
  const live = read.useLiveEnvironment(environment.data === undefined ? null : environmentId)
  read.useTitle(environment.data?.name)
  if (!(section in sections)) return <Failure error={new Problem(404, {})} />
  return (
    <Answer of={environment}>
      {(found) => (
        <>
          <div className="head">
            <div className="grow stack tight">
              <h1>{found.name}</h1>
              <div className="row wraps">
                {live === undefined ? null : <StateMark state={live.environment.state} />}
                <Freshness status={live?.environment.deployment_status ?? ''} />
                <span className="chip">{modeWords[found.mode]}</span>
                <span className="dim small">on {found.cluster_name}</span>
              </div>
            </div>
            <Actions
              target={{ id: environmentId, name: found.name, environmentId }}
              isBusy={live !== undefined && isBusy(live.environment.state)}
              isStale={live?.environment.deployment_status !== 'UP_TO_DATE'}
              onDeleted={() =>
                void navigate({
                  to: '/p/$projectId/$section',
                  params: { projectId: found.project.id, section: 'environments' },
                })
              }
            />
          </div>
          {live === undefined ? null : <LastFailure live={live} environmentId={environmentId} />}
          <Tabs base={`/e/${environmentId}`} at={section} sections={sections} label="Of this environment" />
          {section === 'services' ? (
            live === undefined ? (
              <Waiting />
            ) : (
              <Services environmentId={environmentId} live={live} />
            )
          ) : null}
          {section === 'deployments' ? <Deployments environmentId={environmentId} name={found.name} /> : null}
          {section === 'variables' ? <Variables scope="ENVIRONMENT" parentId={environmentId} /> : null}
          {section === 'settings' ? <Settings environmentId={environmentId} value={found} /> : null}
        </>
      )}
    </Answer>
  )
}
