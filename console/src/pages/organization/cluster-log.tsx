/** The logs of the last runs for a cluster at a cloud provider: plans, deployments, upgrades, stops. */

import { Select } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useMemo, useState } from 'react'
import { client, inPath, resultsOf } from '../../api/client.ts'
import type { Line } from '../../api/log-line.ts'
import { KeptLog } from '../../ui/kept-log.tsx'
import { Answer, Empty } from '../../ui/notices.tsx'
import { SmallButton } from '../../ui/small-button.ts'

interface WireLine {
  type: string
  timestamp: string
  step: string
  execution_id: string
  message: { safe_message: string }
}

interface Run {
  id: string
  /** The kind of the run, and its time. */
  title: string
  lines: Line[]
}

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })

/** By the first words of its step. */
const kinds: Record<string, string> = {
  DryRun: 'Plan',
  Create: 'Deployment',
  Upgrade: 'Upgrade',
  Pause: 'Stop',
  Delete: 'Deletion',
}

const titleOf = ({ step, timestamp }: WireLine): string => {
  const kind = Object.keys(kinds).find((each) => step.startsWith(each))
  return `${kind === undefined ? step : kinds[kind]} of ${moment.format(Date.parse(timestamp))}`
}

/** The newest first. */
const runsIn = (lines: readonly WireLine[]): Run[] => {
  const runs = new Map<string, Run>()
  for (const [index, line] of lines.entries()) {
    const { type, timestamp, execution_id: id, message } = line
    const text = message.safe_message
    const run = runs.get(id) ?? { id, title: titleOf(line), lines: [] }
    run.lines.push({ id: String(index), at: Date.parse(timestamp), text, isError: type === 'ERROR', from: '' })
    runs.set(id, run)
  }
  return [...runs.values()].reverse()
}

const Shown = ({ runs, isGoingOn }: { runs: readonly Run[]; isGoingOn: boolean }) => {
  const [chosen, choose] = useState<string | null>(null)
  const run = runs.find(({ id }) => id === chosen) ?? runs[0]!
  return (
    <>
      <Select
        aria-label="Which run"
        data={runs.map(({ id, title }) => ({ value: id, label: title }))}
        value={run.id}
        allowDeselect={false}
        onChange={choose}
      />
      <KeptLog
        key={run.id}
        lines={run.lines}
        name={`cluster-run-${run.id}`}
        empty={isGoingOn ? 'It has said nothing yet.' : 'It said nothing.'}
      />
    </>
  )
}

interface Props {
  organizationId: string
  clusterId: string
  isGoingOn: boolean
}

export const ClusterLog = ({ organizationId, clusterId, isGoingOn }: Props) => {
  const log = useQuery({
    queryKey: ['cluster log', clusterId],
    queryFn: async () => {
      const path = { organizationId, clusterId }
      const asked = client.GET('/organization/{organizationId}/cluster/{clusterId}/logs', inPath(path))
      return (await resultsOf(asked)) as object[] as WireLine[]
    },
  })
  const runs = useMemo(() => runsIn(log.data ?? []), [log.data])
  return (
    <section className="stack tight" aria-label="Plans and runs">
      <div className="row apart">
        <h3>Plans and runs</h3>
        {isGoingOn ? (
          <SmallButton loading={log.isFetching} onClick={() => void log.refetch()}>
            Read again
          </SmallButton>
        ) : null}
      </div>
      <Answer of={log}>
        {() =>
          runs.length === 0 ? (
            <Empty title="Nothing was planned or made yet">
              <p>A plan says what a deployment would make at the provider, and changes nothing.</p>
            </Empty>
          ) : (
            <Shown runs={runs} isGoingOn={isGoingOn} />
          )
        }
      </Answer>
    </section>
  )
}
