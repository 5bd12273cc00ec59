/** A service: its facts and state, its versions, logs, variables and settings. */
import { useQuery } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { Problem } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Actions } from '../../ui/actions.tsx'
import { DeploymentLink } from '../../ui/deployment-link.tsx'
import { LastLines } from '../../ui/last-lines.tsx'
import { Answer, Failure } from '../../ui/notices.tsx'
import { RollBack } from '../../ui/roll-back.tsx'
import { ServiceLog } from '../../ui/service-log.tsx'
import { Freshness, isBusy, StateMark, shownState } from '../../ui/state.tsx'
import { Tabs } from '../../ui/tabs.tsx'
import { Variables } from '../../ui/variables.tsx'
import { kindWords } from '../environment/kind-words.ts'
import { AdvancedSettings } from './advanced.tsx'
import { Deployments } from './deployments.tsx'
import { Domains } from './domains.tsx'
import { Overview } from './overview.tsx'
import { Runs } from './runs.tsx'
import { Settings } from './settings.tsx'
import { isKind, type Section, type Shown, sections, sectionsOf } from './shown.ts'
import { TerraformState } from './terraform.tsx'

/** The output of a service's instances. */
const Logs = ({ service, status }: Shown) => (
  <ServiceLog service={service} isRunning={status?.running_state === 'RUNNING'} />
)

type Page = (shown: Shown) => ReactNode

const VariablesPage = ({ service }: Shown) => {
  const scope = service.kind.toUpperCase() as Parameters<typeof Variables>[0]['scope']
  return <Variables scope={scope} parentId={service.id} />
}

const pages: Record<Section, Page> = {
  overview: Overview,
  runs: Runs,
  state: TerraformState,
  deployments: Deployments,
  logs: Logs,
  variables: VariablesPage,
  domains: Domains,
  settings: Settings,
  advanced: AdvancedSettings,
}

const FailureNote = ({ service, status }: { service: read.Service; status: read.ServiceStatus }) => {
  const { id, name, kind, environmentId } = service
  return (
    <div className="note bad" style={{ marginBottom: 16 }}>
      <div role="status">
        <strong>{isBusy(status.state) ? 'Before this deployment:' : 'It needs attention.'}</strong>{' '}
        <span className="wrap">{status.error?.message}</span>{' '}
        {/^(BUILD|DEPLOYMENT|RESTART)_ERROR$/.test(status.state) && status.running_state === 'RUNNING'
          ? 'The previous version is still running. '
          : null}
        <DeploymentLink environmentId={environmentId} executionId={status.execution_id} />
      </div>
      <LastLines status={status} environmentId={environmentId} />
      {read.hasReleases(kind) && !isBusy(status.state) ? (
        <RollBack target={{ id, name, kind, environmentId }} executionId={status.execution_id} />
      ) : null}
    </div>
  )
}

export const Service = () => {
  const { kind, serviceId, section } = useParams({ from: '/frame/s/$kind/$serviceId/$section' })
  const navigate = useNavigate()
  const isKnown = isKind(kind)
  const service = useQuery({ ...read.service(kind as read.Kind, serviceId), enabled: isKnown })
  const live = read.useLiveEnvironment(service.data?.environmentId ?? null)
  read.useTitle(service.data?.name)
  if (!isKnown) return <Failure error={new Problem(404, {})} />
  return (
    <Answer of={service}>
      {(found) => {
        const offered = sectionsOf(found)
        const Page = offered.includes(section as Section) ? pages[section as Section] : null
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
            {status?.error === undefined ? null : <FailureNote service={found} status={status} />}
            <Tabs
              base={`/s/${kind}/${serviceId}`}
              at={section}
              sections={Object.fromEntries(offered.map((each) => [each, sections[each]]))}
              label="Of this service"
            />
            {Page === null ? (
              <Failure error={new Problem(404, {})} />
            ) : (
              <Page key={serviceId} service={found} status={status} />
            )}
          </>
        )
      }}
    </Answer>
  )
}
