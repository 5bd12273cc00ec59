/** The history of deployments: what, when, by whom and why; with a comparison of two, and rollback. */

import { Button } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import * as read from '../../api/queries.ts'
import { Check } from '../../ui/check.tsx'
import { Answer, Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { PlanDialog } from '../../ui/plan.tsx'
import { ListTable } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { StateMark } from '../../ui/state.tsx'
import { durationOf, Time } from '../../ui/time.tsx'
import { Compare } from './compare.tsx'
import { titleOf } from './execution.ts'

const origins: Record<string, string> = {
  API: 'through the API',
  CLI: 'on the command line',
  CONSOLE: 'in the console',
  GIT: 'because of a push',
  QOVERY_INTERNAL: 'by the server itself',
  TERRAFORM_PROVIDER: 'with Terraform',
}

/** The deployed version in one line: the commit if there is one, else the names. */
const versionOf = ({ stages }: read.Execution): string => {
  const services = stages.flatMap((stage) => stage.services)
  const commits = services.flatMap(({ details }) => details.commit ?? [])
  const [first] = commits
  const ids = new Set(commits.map(({ git_commit_id: id }) => id))
  if (first !== undefined && ids.size === 1) return `${first.git_commit_id.slice(0, 7)} ${first.message.split('\n')[0]}`
  if (ids.size > 1) return `${ids.size} commits`
  return services
    .map(({ identifier }) => identifier.name)
    .slice(0, 4)
    .join(', ')
}

interface RowProps {
  row: read.Execution
  isPicked: boolean
  isFull: boolean
  isNewest: boolean
  pick(isPicked: boolean): void
  rollBack(): void
}

const DeploymentRow = ({ row, isPicked, isFull, isNewest, pick, rollBack }: RowProps) => {
  const may = useMay()
  const { identifier, auditing_data: audit, status, total_duration: took, stages, trigger_action: action } = row
  const { environment_id: environmentId, execution_id: executionId } = identifier
  return (
    <tr aria-selected={isPicked}>
      <td className="check">
        <Check
          label={`Compare ${titleOf(row)}`}
          isChecked={isPicked}
          isDisabled={isFull && !isPicked}
          onChange={pick}
        />
      </td>
      <td style={{ maxWidth: 380 }}>
        <Link
          to="/e/$environmentId/deployments/$executionId"
          params={{ environmentId, executionId }}
          className="main nowrap"
        >
          {titleOf(row)}
        </Link>
        <p className="dim small clip" title={versionOf(row)}>
          {versionOf(row)}
        </p>
      </td>
      <td className="tight">
        <StateMark state={status} />
      </td>
      <td className="dim optional">{stages.reduce((count, { services }) => count + services.length, 0)}</td>
      <td className="dim optional wrap" style={{ minWidth: 185, maxWidth: 220 }}>
        {audit.triggered_by} <p className="small">{origins[audit.origin] ?? audit.origin.toLowerCase()}</p>
      </td>
      <td className="tight dim optional">{durationOf(took)}</td>
      <td className="tight">
        <Time at={audit.created_at} />
      </td>
      <td className="tight">
        {!isNewest && action === 'DEPLOY' && status === 'DEPLOYED' && may('deploy') ? (
          <SmallButton onClick={rollBack}>Roll back to this</SmallButton>
        ) : null}
      </td>
    </tr>
  )
}

export const Deployments = ({ environmentId, name }: { environmentId: string; name: string }) => {
  const history = useQuery(read.history(environmentId, 100))
  const [asked, ask] = useState<string | null>(null)
  const [picked, setPicked] = useState<readonly string[]>([])
  const [isComparing, compare] = useState(false)
  return (
    <Answer of={history}>
      {(rows) => {
        if (rows.length === 0)
          return (
            <Empty title="Nothing was deployed yet">
              <p>Deploy the environment or one of its services: each deployment is kept here with its log.</p>
            </Empty>
          )
        const two = rows.filter(({ identifier }) => picked.includes(identifier.execution_id))
        return (
          <div className="stack">
            <div className="row wraps">
              <span className="dim">Choose two deployments to compare them.</span>
              <Button className="push" variant="default" disabled={two.length !== 2} onClick={() => compare(true)}>
                Compare
              </Button>
            </div>
            <ListTable
              label="Deployments"
              isCard
              heads={{
                Compare: 'check hidden',
                Deployment: '',
                Result: 'tight',
                Services: 'optional',
                By: 'optional',
                Took: 'tight optional',
                When: 'tight',
                Actions: 'tight hidden',
              }}
            >
              {rows.map((row, index) => {
                const { execution_id: id, deployment_request_id: key } = row.identifier
                return (
                  <DeploymentRow
                    key={key}
                    row={row}
                    isPicked={picked.includes(id)}
                    isFull={two.length === 2}
                    isNewest={index === 0}
                    pick={(is) => setPicked(is ? [...picked, id] : picked.filter((each) => each !== id))}
                    rollBack={() => ask(id)}
                  />
                )
              })}
            </ListTable>
            {isComparing && two.length === 2 ? (
              <Compare older={two[1]!} newer={two[0]!} onClose={() => compare(false)} />
            ) : null}
            {asked === null ? null : (
              <PlanDialog
                action={{ verb: 'rollback', target: { id: environmentId, name, environmentId }, to: asked }}
                onClose={() => ask(null)}
              />
            )}
          </div>
        )
      }}
    </Answer>
  )
}
