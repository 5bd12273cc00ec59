/** The scheduled and manual runs of a job, each with its output. */

import { Button } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useMemo, useState } from 'react'
import { answerOf, client, inPath, resultsOf, type Schemas } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { createRefresher } from '../../api/refresh.ts'
import { useStream } from '../../api/stream.ts'
import { Icon } from '../../ui/icons.tsx'
import { KeptLog } from '../../ui/kept-log.tsx'
import { Answer, Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { ListTable } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { StateMark } from '../../ui/state.tsx'
import { durationOf, Time } from '../../ui/time.tsx'
import { tell, tellProblem } from '../../ui/toasts.tsx'
import type { Shown } from './shown.ts'

type Run = Schemas['JobRun']

/** Below the history of the environment: a change there may have ended a run. */
const runsKey = ({ environmentId, id }: read.Service) => ['history', environmentId, 'runs', id]

const useRuns = (service: read.Service) =>
  useQuery({
    queryKey: runsKey(service),
    queryFn: () => resultsOf(client.GET('/job/{jobId}/run', inPath({ jobId: service.id }))),
  })

const states: Record<Run['state'], { state: string; word?: string }> = {
  RUNNING: { state: 'EXECUTING', word: 'Running' },
  SUCCEEDED: { state: 'SUCCESS' },
  FAILED: { state: 'ERROR' },
  CANCELED: { state: 'CANCELED' },
}

const RunLog = ({ service, run }: { service: read.Service; run: Run }) => {
  const lines = useQuery({
    queryKey: [...runsKey(service), run.id],
    queryFn: async () => {
      const path = { jobId: service.id, runId: run.id }
      const { results } = await answerOf(client.GET('/job/{jobId}/run/{runId}/log', inPath(path)))
      return results.map(({ id, created_at: at, message: text, pod_name: from }) => ({
        ...{ id, at: Date.parse(at), text, isError: false, from },
      }))
    },
  })
  return (
    <Answer of={lines}>
      {(found) => (
        <KeptLog
          lines={found}
          name={`run-${run.id}`}
          empty={run.state === 'RUNNING' ? 'It has printed nothing yet.' : 'It printed nothing.'}
        />
      )}
    </Answer>
  )
}

const RunRow = ({ run, isOpen, onOpen }: { run: Run; isOpen: boolean; onOpen(): void }) => (
  <tr>
    <td>
      <StateMark {...states[run.state]} />
      {run.error === null ? null : <p className="small wrap">{run.error.message}</p>}
    </td>
    <td className="tight">
      <Time at={run.started_at} />
    </td>
    <td className="tight optional">{run.duration_sec === null ? '–' : durationOf(run.duration_sec)}</td>
    <td className="optional dim wrap">{run.trigger === 'SCHEDULE' ? 'schedule' : (run.triggered_by ?? 'by hand')}</td>
    <td className="tight optional mono">{run.exit_code ?? '–'}</td>
    <td className="tight">
      {run.is_output_kept ? (
        <SmallButton aria-expanded={isOpen} onClick={onOpen}>
          {isOpen ? 'Hide log' : 'Log'}
        </SmallButton>
      ) : (
        <span className="dim small">log not kept</span>
      )}
    </td>
  </tr>
)

const RunNow = ({ service }: { service: read.Service }) => {
  const may = useMay()
  const starting = useMutation({
    mutationFn: () => answerOf(client.POST('/job/{jobId}/run', inPath({ jobId: service.id }))),
    onSuccess() {
      tell(`${service.name} runs now, beside its schedule.`, { to: `/s/job/${service.id}/runs`, text: 'See its runs' })
      void read.refresh(runsKey(service))
    },
    onError: tellProblem,
  })
  if (!may('deploy')) return null
  return (
    <Button
      variant="default"
      leftSection={<Icon name="play" size={14} />}
      loading={starting.isPending}
      onClick={() => starting.mutate()}
    >
      Run now
    </Button>
  )
}

export const Runs = ({ service }: Shown) => {
  const queries = useQueryClient()
  const runs = useRuns(service)
  const [open, setOpen] = useState<string | null>(null)
  const refresher = useMemo(() => createRefresher(queries), [queries])
  // The stream of the organization reports starts and ends, this one the output of a run.
  useStream(`/service/logs?service=${service.id}&limit=0`, {
    onMessage: () => refresher.refresh(({ queryKey }) => queryKey[2] === 'runs' && queryKey[3] === service.id),
  })
  const opened = runs.data?.find(({ id }) => id === open)
  return (
    <div className="stack">
      <div className="row apart wraps">
        <p className="dim">Newest first. An advanced setting says how many are kept.</p>
        <RunNow service={service} />
      </div>
      <Answer of={runs}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty title="It has not run yet">
              <p>Once it is deployed, it runs on its schedule.</p>
            </Empty>
          ) : (
            <ListTable
              label="Runs"
              isCard
              heads={{
                Result: '',
                Started: 'tight',
                Took: 'tight optional',
                By: 'optional',
                'Exit code': 'tight optional',
                Log: 'tight hidden',
              }}
            >
              {rows.map((run) => (
                <RunRow
                  key={run.id}
                  run={run}
                  isOpen={run.id === open}
                  onOpen={() => setOpen(run.id === open ? null : run.id)}
                />
              ))}
            </ListTable>
          )
        }
      </Answer>
      {opened === undefined ? null : <RunLog key={opened.id} service={service} run={opened} />}
    </div>
  )
}
