/** The deployments of a service, and its versions to go back to. */
import { Button } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import * as read from '../../api/queries.ts'
import { Answer, Empty } from '../../ui/notices.tsx'
import { useMay } from '../../ui/place.ts'
import { PlanDialog } from '../../ui/plan.tsx'
import { Scroll } from '../../ui/scroll.tsx'
import { StateMark } from '../../ui/state.tsx'
import { Time } from '../../ui/time.tsx'
import { hasReleases, type Shown } from './shown.ts'

export const Deployments = ({ service }: Shown) => {
  const { kind, id, environmentId, name } = service
  const releases = useQuery({ ...read.releases(kind, id, environmentId), enabled: hasReleases(service) })
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
          <Scroll label="Deployments" isCard>
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
          </Scroll>
        )
      }
    </Answer>
  )
}
