/** What is deploying now, anywhere in the organization; how it ended is told with a link to it. */
import { Menu } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect, useRef } from 'react'
import * as read from '../api/queries.ts'
import { StateMark, toneOf, wordOf } from './state.tsx'
import { tell, tellFailure } from './toasts.tsx'

type Active = NonNullable<
  Awaited<ReturnType<NonNullable<ReturnType<typeof read.activeDeployments>['queryFn']>>>
>[number]

const addressOf = ({ environment_id, execution_id }: Active): string =>
  `/e/${environment_id}/deployments/${execution_id}`

/** More that end at once are seen in the lists. */
const mostTold = 3

const useEnds = (active: readonly Active[] | undefined): void => {
  const queries = useQueryClient()
  const before = useRef<readonly Active[]>([])
  useEffect(() => {
    if (active === undefined) return
    const running = new Set(active.map(({ execution_id: id }) => id))
    const ended = before.current.filter(({ execution_id: id }) => !running.has(id))
    before.current = active
    const tellEnd = async (one: Active): Promise<void> => {
      if (location.pathname === addressOf(one)) return
      const rows = await queries.fetchQuery({ ...read.history(one.environment_id), staleTime: 0 })
      const row = rows.find(({ identifier }) => identifier.execution_id === one.execution_id)
      if (row === undefined) return
      const words = `${one.project_name} / ${one.environment_name}: ${wordOf(row.status).toLowerCase()}`
      const link = { to: addressOf(one), text: 'See the deployment' }
      if (toneOf(row.status) === 'bad') tellFailure(words, link)
      else tell(words, link)
    }
    // An environment that was deleted has nothing more to tell.
    for (const one of ended.slice(0, mostTold)) tellEnd(one).catch(() => undefined)
  }, [active, queries])
}

export const Deploying = ({ organizationId }: { organizationId: string }) => {
  const { data: active } = useQuery(read.activeDeployments(organizationId))
  useEnds(active)
  if (active === undefined || active.length === 0) return null
  return (
    <Menu position="bottom-end" width={320}>
      <Menu.Target>
        <button type="button" className="deploying" aria-label={`${active.length} deploying now`}>
          <span className="state busy">
            <i aria-hidden="true" />
            {active.length} <span className="optional">deploying</span>
          </span>
        </button>
      </Menu.Target>
      <Menu.Dropdown mah={360} style={{ overflowY: 'auto' }}>
        <Menu.Label>Deploying now</Menu.Label>
        {active.map((one) => (
          <Menu.Item key={one.execution_id} component={Link} to={addressOf(one)}>
            <span className="stack tight" style={{ gap: 2 }}>
              <span className="clip strong">
                {one.project_name} / {one.environment_name}
              </span>
              <span className="row small dim">
                <StateMark state={one.status} /> <span className="clip">by {one.triggered_by}</span>
              </span>
            </span>
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  )
}
