/** A service: what it is and does now, its versions, logs, variables and settings. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { Problem } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Actions } from '../../ui/actions.tsx'
import { Answer, Failure } from '../../ui/notices.tsx'
import { Freshness, isBusy, StateMark, shownState } from '../../ui/state.tsx'
import { Tabs } from '../../ui/tabs.tsx'
import { Variables } from '../../ui/variables.tsx'
import { kindWords } from '../environment.tsx'
import { Deployments } from './deployments.tsx'
import { Domains } from './domains.tsx'
import { Logs } from './logs.tsx'
import { Overview } from './overview.tsx'
import { Settings } from './settings.tsx'
import type { Shown } from './shown.ts'

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
