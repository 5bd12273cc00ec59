/** How the cluster of a service treats its configuration, from the plan of a deployment. */
import { useQuery } from '@tanstack/react-query'
import { planOf } from '../../api/actions.ts'
import { Problem } from '../../api/client.ts'
import type * as read from '../../api/queries.ts'
import { useMay } from '../../ui/place.ts'
import { fieldWords } from '../../ui/plan.tsx'

/** Null while it is unknown, and without the right to read it. */
const usePlanned = ({ id, name, kind, environmentId }: read.Service) => {
  const may = useMay()
  const plan = useQuery({
    queryKey: ['plan', 'of settings', id],
    queryFn: () => planOf({ verb: 'deploy', target: { id, name, kind, environmentId } }),
    enabled: may('deploy'),
    retry: false,
  })
  const planned = plan.data?.stages.flatMap(({ services }) => services).find((each) => each.id === id)
  // Other failures say nothing about the cluster.
  const { error } = plan
  const refusal = error instanceof Problem && [400, 409].includes(error.status) ? error.message : undefined
  return { planned, refusal }
}

/** JSON pointers to fields that are set but have no effect on this cluster. */
export const useNotApplied = (service: read.Service): readonly string[] =>
  usePlanned(service).planned?.not_applied ?? []

export const ClusterNote = ({ service }: { service: read.Service }) => {
  const { planned, refusal } = usePlanned(service)
  const reason = planned?.effect === 'REFUSED' ? planned.reason : refusal
  if (reason !== undefined)
    return (
      <div className="note warn wrap">
        <strong>This cluster would not deploy it.</strong> {reason}
      </div>
    )
  const idle = planned?.not_applied ?? []
  if (idle.length === 0) return null
  return (
    <div className="note">
      Set here, and without effect on this cluster: <span className="wrap">{idle.map(fieldWords).join(', ')}</span>
    </div>
  )
}
