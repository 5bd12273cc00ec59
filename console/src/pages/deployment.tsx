/** One deployment: its stages with their durations, why it failed, and its live log. */
import { Button } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { Problem } from '../api/client.ts'
import * as read from '../api/queries.ts'
import { DeploymentLog } from '../ui/deployment-log.tsx'
import { Answer, Failure } from '../ui/notices.tsx'
import { RollBack } from '../ui/roll-back.tsx'
import { stageName } from '../ui/stage-name.ts'
import { isBusy, StateMark, wordOf } from '../ui/state.tsx'
import { durationOf, Time } from '../ui/time.tsx'
import { verbs } from './environment/execution.ts'

const Stages = ({
  row,
  statuses,
  chosen,
}: {
  row: read.Execution
  statuses: ReadonlyMap<string, read.ServiceStatus>
  chosen: string | undefined
}) => {
  const navigate = useNavigate()
  const choose = (service: string | undefined): void => void navigate({ to: '.', search: { service }, replace: true })
  return (
    <div className="stages">
      {row.stages
        .filter(({ services }) => services.length > 0)
        .map(({ name, status, duration, services }) => (
          <section key={name} className="card stage stack tight">
            <div className="row">
              <h2 className="clip">{stageName(name)}</h2>
              <span className="push dim small nowrap">{durationOf(duration)}</span>
            </div>
            <StateMark state={status} />
            {services.map(({ identifier, status: state, total_duration: took }) => {
              const isChosen = chosen === identifier.service_id
              const steps = statuses.get(identifier.service_id)?.steps?.details ?? []
              return (
                <div key={identifier.service_id} className="stack tight">
                  <button
                    type="button"
                    className="card choice row"
                    style={{ padding: '6px 10px' }}
                    aria-pressed={isChosen}
                    onClick={() => choose(isChosen ? undefined : identifier.service_id)}
                  >
                    <span className="clip strong grow">{identifier.name}</span>
                    <StateMark state={state} />
                  </button>
                  <span className="dim small">
                    {steps.length === 0
                      ? durationOf(took)
                      : steps
                          .map(
                            ({ step_name, duration_sec }, index) =>
                              `${(step_name ?? '').toLowerCase().replaceAll('_', ' ')} ${
                                isBusy(state) && index === steps.length - 1 ? 'running' : durationOf(duration_sec)
                              }`,
                          )
                          .join(' · ')}
                  </span>
                </div>
              )
            })}
          </section>
        ))}
    </div>
  )
}

const problemsOf = (statuses: Iterable<read.ServiceStatus>, executionId: string): string[] =>
  [...statuses].flatMap(({ error, execution_id }) =>
    error !== undefined && execution_id === executionId ? [error.message] : [],
  )

/**
 * True if the failed service had been deployed before, has not been stopped since, and runs. Only for the newest
 * deployment, with which `rows` begin.
 */
const stillServes = (
  rows: readonly read.Execution[],
  row: read.Execution,
  statuses: ReadonlyMap<string, read.ServiceStatus>,
): boolean => {
  if (rows[0] !== row) return false
  const servicesOf = ({ stages }: read.Execution) => stages.flatMap(({ services }) => services)
  const failed = servicesOf(row).filter(({ status }) => status.endsWith('ERROR'))
  return (
    failed.length > 0 &&
    failed.every(({ identifier: { service_id: id } }) => {
      const before = rows
        .slice(1)
        .flatMap(servicesOf)
        .find(
          ({ identifier, status }) =>
            identifier.service_id === id && ['DEPLOYED', 'RESTARTED', 'STOPPED', 'DELETED'].includes(status),
        )?.status
      return (before === 'DEPLOYED' || before === 'RESTARTED') && statuses.get(id)?.running_state === 'RUNNING'
    })
  )
}

export const Deployment = () => {
  const { environmentId, executionId } = useParams({ from: '/frame/e/$environmentId/deployments/$executionId' })
  const { service } = useSearch({ from: '/frame/e/$environmentId/deployments/$executionId' })
  const live = read.useLiveEnvironment(environmentId)
  const history = useQuery(read.history(environmentId, 100))
  const environment = useQuery(read.environment(environmentId))
  const number = read.numberOf(executionId)
  read.useTitle(`Deployment ${number}`, environment.data?.name)
  return (
    <Answer of={history}>
      {(rows) => {
        const row = rows.find(({ identifier }) => identifier.execution_id === executionId)
        if (row === undefined) return <Failure error={new Problem(404, {})} />
        const statuses = live === undefined ? new Map<string, read.ServiceStatus>() : read.statusesIn(live)
        const problems = problemsOf(statuses.values(), executionId)
        const isFailed = row.action_status === 'ERROR'
        return (
          <div className="stack">
            <div className="head" style={{ marginBottom: 0 }}>
              <div className="grow stack tight">
                <h1>Deployment #{number}</h1>
                <div className="row wraps">
                  <StateMark state={row.status} />
                  <span className="dim small">
                    {verbs[row.trigger_action] ?? wordOf(row.trigger_action)}, requested by{' '}
                    {row.auditing_data.triggered_by} <Time at={row.auditing_data.created_at} />
                    {isBusy(row.status) ? null : (
                      <span className="nowrap">, took {durationOf(row.total_duration)}</span>
                    )}
                  </span>
                </div>
              </div>
              <div className="row actions">
                <Button component={Link} to={`/e/${environmentId}/deployments`} variant="default">
                  All deployments
                </Button>
              </div>
            </div>
            {isFailed ? (
              <div className="note bad">
                <div role="alert">
                  <strong>Failed.</strong> <span className="wrap">{problems[0] ?? 'The log below says why.'}</span>
                  {stillServes(rows, row, statuses) ? ' The previous version is still running.' : null}
                </div>
                {rows[0] === row && environment.data !== undefined ? (
                  <RollBack
                    target={{ id: environmentId, name: environment.data.name, environmentId }}
                    executionId={executionId}
                  />
                ) : null}
              </div>
            ) : null}
            <Stages row={row} statuses={statuses} chosen={service} />
            <DeploymentLog
              key={executionId}
              environmentId={environmentId}
              executionId={executionId}
              serviceId={service}
            />
          </div>
        )
      }}
    </Answer>
  )
}
