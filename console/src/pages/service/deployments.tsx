/** The deployments of a service, and the versions for a rollback. */

import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import type { Schemas } from '../../api/client.ts'
import * as read from '../../api/queries.ts'
import { Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { PlanDialog } from '../../ui/plan.tsx'
import { type Column, Rows } from '../../ui/rows.tsx'
import { SmallButton } from '../../ui/small-button.ts'
import { StateMark } from '../../ui/state.tsx'
import { Time } from '../../ui/time.tsx'
import type { Shown } from './shown.ts'

type Execution = Schemas['DeploymentHistoryService'] & { id: string }

/** The commit, else the image, else the number of the deployment. */
const versionOf = ({ id, details }: Execution): string => {
  const { commit, image_name: image = '', tag } = details
  if (commit != null) return `${commit.git_commit_id.slice(0, 7)} ${commit.message.split('\n')[0]}`
  return image === '' && tag === undefined ? `#${read.numberOf(id)}` : `${image}${tag === undefined ? '' : `:${tag}`}`
}

export const Deployments = ({ service }: Shown) => {
  const { kind, id: serviceId, environmentId, name } = service
  const releases = useQuery({ ...read.releases(kind, serviceId, environmentId), enabled: read.hasReleases(kind) })
  const history = useQuery(read.serviceHistory(kind, serviceId, environmentId))
  const may = useMay()
  const [asked, ask] = useState<string | null>(null)
  const byExecution = new Map((releases.data ?? []).map((each) => [each.execution_id, each]))
  const columns: readonly Column<Execution>[] = [
    {
      title: 'Version',
      show: (row) => (
        <>
          <Link
            to="/e/$environmentId/deployments/$executionId"
            params={{ environmentId, executionId: row.id }}
            search={{ service: serviceId }}
            className="main clip"
            style={{ display: 'block', maxWidth: 420 }}
          >
            {versionOf(row)}
          </Link>
          {byExecution.get(row.id)?.is_current === true ? <span className="chip good">Serving</span> : null}
        </>
      ),
    },
    { title: 'Result', look: 'tight', show: ({ status }) => <StateMark state={status} /> },
    {
      title: 'By',
      look: 'optional',
      show: ({ auditing_data: audit }) => <span className="dim">{audit.triggered_by}</span>,
    },
    { title: 'When', look: 'tight', show: ({ auditing_data: audit }) => <Time at={audit.created_at} /> },
    {
      title: 'Actions',
      look: 'tight',
      show({ id }) {
        const release = byExecution.get(id)
        return release?.was_successful === true && !release.is_current && may('deploy') ? (
          <SmallButton onClick={() => ask(release.id)}>Roll back to this</SmallButton>
        ) : null
      },
    },
  ]
  const rows = history.data?.map((each) => ({ ...each, id: each.identifier.execution_id }))
  return (
    <>
      <Rows
        label="Deployments"
        of={{ data: rows, error: history.error, refetch: history.refetch }}
        columns={columns}
        empty={
          <Empty title="Not deployed yet">
            <p>Once it is deployed, each deployment is listed here, with its log.</p>
          </Empty>
        }
      />
      {asked === null ? null : (
        <PlanDialog
          action={{ verb: 'rollback', target: { id: serviceId, name, kind, environmentId }, to: asked }}
          onClose={() => ask(null)}
        />
      )}
    </>
  )
}
