/** An environment: its services by stage, live; its deployments, stages, previews, variables and settings. */
import { Button } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { answerOf, client, Problem, type Schemas } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Actions } from '../../ui/actions.tsx'
import { DeploymentLink } from '../../ui/deployment-link.tsx'
import { Icon } from '../../ui/icons.tsx'
import { hasFailed, LastLines } from '../../ui/last-lines.tsx'
import { Answer, Failure } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { namesOf, optionsOf, RecordForm } from '../../ui/record-form.tsx'
import { Freshness, isBusy, StateMark } from '../../ui/state.tsx'
import { Tabs } from '../../ui/tabs.tsx'
import { tell } from '../../ui/toasts.tsx'
import { Variables } from '../../ui/variables.tsx'
import { modeWords } from '../overview.tsx'
import { Deployments } from './deployments.tsx'
import { Previews } from './previews.tsx'
import { Services } from './services.tsx'
import { Settings } from './settings.tsx'
import { Stages } from './stages.tsx'

/** A copy of an environment: its services, variables and stages, without their data. */
const Clone = ({ environment, onClose }: { environment: Schemas['Environment']; onClose(): void }) => {
  const navigate = useNavigate()
  const organizationId = environment.organization.id
  const projects = useQuery(read.projects(organizationId))
  const clusters = useQuery(read.clusters(organizationId))
  if (projects.data === undefined || clusters.data === undefined) return null
  return (
    <RecordForm
      title={`Clone ${environment.name}`}
      button="Clone"
      changed={['environments', 'organization environments']}
      onClose={onClose}
      fields={[
        { at: '/name', label: 'Name', isRequired: true, initial: `${environment.name}-copy`.slice(0, 255) },
        {
          at: '/cluster_id',
          label: 'Cluster',
          kind: 'choice',
          options: namesOf(clusters.data),
          initial: environment.cluster_id,
        },
        {
          at: '/mode',
          label: 'Mode',
          kind: 'choice',
          options: optionsOf(modeWords),
          initial: environment.mode,
        },
        {
          at: '/project_id',
          label: 'Project',
          kind: 'choice',
          options: namesOf(projects.data),
          initial: environment.project.id,
        },
        {
          at: '/apply_deployment_rule',
          label: 'Use the deployment rules of the project instead, where one fits the name',
          kind: 'switch',
          initial: false,
        },
      ]}
      save={async ({ apply_deployment_rule: isRuled, ...body }) => {
        // A rule decides the mode and the cluster.
        const { mode, cluster_id, ...rest } = body
        const { id, name } = await answerOf(
          client.POST('/environment/{environmentId}/clone', {
            params: { path: { environmentId: environment.id } },
            body: (isRuled === true
              ? { ...rest, apply_deployment_rule: true }
              : { ...rest, mode, cluster_id }) as never,
          }),
        )
        tell(`${name} was made. Nothing of it is deployed yet.`)
        await navigate({ to: '/e/$environmentId/$section', params: { environmentId: id, section: 'services' } })
      }}
    >
      <p className="dim small">
        Services, variables, secrets and stages are copied; databases and volumes begin empty.
      </p>
    </RecordForm>
  )
}

const sections = {
  services: 'Services',
  deployments: 'Deployments',
  stages: 'Stages',
  previews: 'Pushes and previews',
  variables: 'Variables',
  settings: 'Settings',
}

/** Services whose last lines are shown; the others have theirs on their own pages. */
const mostWithLines = 3

/** The reason of a failed last deployment is shown before everything else. */
const LastFailure = ({ live, environmentId }: { live: read.LiveStatuses; environmentId: string }) => {
  const wrong = [...read.statusesIn(live).values()].filter(({ error }) => error !== undefined)
  const failed = wrong.find(hasFailed) ?? wrong[0]
  const problem = live.environment.error ?? failed?.error
  if (problem === undefined) return null
  return (
    <div className="note bad" style={{ marginBottom: 16 }}>
      <div role="status">
        <strong>Something needs attention.</strong> <span className="wrap">{problem.message}</span>{' '}
        <DeploymentLink environmentId={environmentId} executionId={failed?.execution_id} />
      </div>
      {wrong
        .filter(hasFailed)
        .slice(0, mostWithLines)
        .map((status) => (
          <LastLines key={status.id} status={status} environmentId={environmentId} />
        ))}
    </div>
  )
}

interface ShownProps {
  environment: Schemas['Environment']
  live: read.LiveStatuses | undefined
}

const CloneButton = ({ environment }: { environment: Schemas['Environment'] }) => {
  const may = useMay()
  const [isAsked, setAsked] = useState(false)
  if (!may('write')) return null
  return (
    <>
      <Button variant="default" leftSection={<Icon name="copy" size={14} />} onClick={() => setAsked(true)}>
        Clone
      </Button>
      {isAsked ? <Clone environment={environment} onClose={() => setAsked(false)} /> : null}
    </>
  )
}

const Head = ({ environment, live }: ShownProps) => {
  const { id, name, mode, cluster_name: cluster, project } = environment
  const navigate = useNavigate()
  return (
    <div className="head">
      <div className="grow stack tight">
        <h1>{name}</h1>
        <div className="row wraps">
          {live === undefined ? null : <StateMark state={live.environment.state} />}
          <Freshness status={live?.environment.deployment_status ?? ''} />
          <span className="chip">{modeWords[mode]}</span>
          <span className="dim small wrap">on {cluster}</span>
        </div>
      </div>
      <div className="row wraps">
        <CloneButton environment={environment} />
        <Actions
          target={{ id, name, environmentId: id }}
          isBusy={live !== undefined && isBusy(live.environment.state)}
          isStale={live?.environment.deployment_status !== 'UP_TO_DATE'}
          onDeleted={() =>
            void navigate({
              to: '/p/$projectId/$section',
              params: { projectId: project.id, section: 'environments' },
            })
          }
        />
      </div>
    </div>
  )
}

const LiveServices = ({ environmentId }: { environmentId: string }) => {
  const states = useQuery(read.live(environmentId))
  return <Answer of={states}>{(live) => <Services environmentId={environmentId} live={live} />}</Answer>
}

const pages: Record<keyof typeof sections, (shown: ShownProps) => ReactNode> = {
  services: ({ environment }) => <LiveServices environmentId={environment.id} />,
  deployments: ({ environment: { id, name } }) => <Deployments environmentId={id} name={name} />,
  stages: ({ environment: { id } }) => <Stages environmentId={id} />,
  previews: ({ environment: { id, organization } }) => <Previews environmentId={id} organizationId={organization.id} />,
  variables: ({ environment: { id } }) => <Variables scope="ENVIRONMENT" parentId={id} />,
  settings: ({ environment }) => <Settings environment={environment} />,
}

export const Environment = () => {
  const { environmentId, section } = useParams({ from: '/frame/e/$environmentId/$section' })
  const environment = useQuery(read.environment(environmentId))
  const live = read.useLiveEnvironment(environment.data === undefined ? null : environmentId)
  read.useTitle(environment.data?.name)
  if (!Object.hasOwn(sections, section)) return <Failure error={new Problem(404, {})} />
  return (
    <Answer of={environment}>
      {(found) => (
        <>
          <Head environment={found} live={live} />
          {live === undefined ? null : <LastFailure live={live} environmentId={environmentId} />}
          <Tabs base={`/e/${environmentId}`} at={section} sections={sections} label="Of this environment" />
          {pages[section as keyof typeof sections]({ environment: found, live })}
        </>
      )}
    </Answer>
  )
}
