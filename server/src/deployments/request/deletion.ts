/**
 * The effect of a deletion on earlier requests: it joins an open deletion of the same services, and ends every other
 * request that it makes pointless. All of it happens in the transaction that accepts the deletion. A part of a
 * deployment with other services ends alone; the others continue.
 */
import type { Queryable } from '../../store/database.ts'
import type { AcceptedDeployment, DeploymentRequest } from '../deployments.ts'
import { openStates } from '../status/states.ts'
import { cancelParts, cancelRunning, cancelWaiting } from './cancel.ts'
import type { RequestParts } from './request.ts'

interface OpenDeletion {
  id: string
  n: number
  at: Date
  whole: boolean
  services: { id: string; skipEnding: boolean }[]
}

/** Locks the open deployments of an environment. Before any row of `service_state`: workers lock in this order. */
const lockOpen = (tx: Queryable, environmentId: string): Promise<unknown> =>
  tx.query(`select from deployment where environment_id = $1 and state in ${openStates} order by seq for update`, [
    environmentId,
  ])

const openDeletions = (tx: Queryable, environmentId: string): Promise<OpenDeletion[]> =>
  tx.query<OpenDeletion>(
    `select d.id, d.execution_number as n, d.created_at as at, d.whole_environment as whole,
       (select coalesce(jsonb_agg(jsonb_build_object('id', w.service_id,
          'skipEnding', coalesce((w.requested ->> 'skipEnding')::boolean, false))), '[]')
        from deployment_service w where w.deployment_id = d.id) as services
     from deployment d where d.environment_id = $1 and d.action = 'DELETE' and d.state in ${openStates} order by d.seq`,
    [environmentId],
  )

/** The ids of `request` that no open deletion covers in the requested way, and the one that covers the others. */
export const openDeletion = async (
  tx: Queryable,
  request: DeploymentRequest,
): Promise<{ joined: AcceptedDeployment | null; left: Set<string> }> => {
  const left = new Set(request.services.map(({ id }) => id))
  if (request.action !== 'DELETE') return { joined: null, left }
  let last: OpenDeletion | undefined
  for (const deletion of await openDeletions(tx, request.environmentId)) {
    if (request.wholeEnvironment && !deletion.whole) continue
    const skips = new Map(deletion.services.map(({ id, skipEnding }) => [id, skipEnding]))
    const covered = request.services.filter(({ id, skipEnding = false }) => skips.get(id) === skipEnding)
    for (const { id } of covered) left.delete(id)
    if (deletion.whole || covered.length > 0) last = deletion
  }
  const isCovered = last !== undefined && (left.size === 0 || (request.wholeEnvironment && last.whole))
  const joined = isCovered
    ? {
        deploymentId: last!.id,
        executionId: `${request.environmentId}-${last!.n}`,
        createdAt: last!.at.toISOString(),
      }
    : null
  return { joined, left }
}

interface OpenPart {
  deploymentId: string
  state: string
  serviceId: string
}

/** An uninstall in progress removes the same. */
const openParts = (tx: Queryable, environmentId: string): Promise<OpenPart[]> =>
  tx.query<OpenPart>(
    `select d.id as "deploymentId", d.state, w.service_id as "serviceId"
     from deployment d join deployment_service w on w.deployment_id = d.id
     where d.environment_id = $1 and d.state in ${openStates} and d.action <> 'DELETE'
       and not (d.state = 'RUNNING' and d.action = 'UNINSTALL') and w.finished_at is null order by d.seq`,
    [environmentId],
  )

/** Ends open deployments of services to be deleted, or of a whole environment, whose lock the caller holds. */
export const endForDeletion = async (
  tx: Queryable,
  { environmentId, wholeEnvironment, services }: DeploymentRequest,
  parts: RequestParts,
): Promise<void> => {
  await lockOpen(tx, environmentId)
  const leaving = new Set(services.map(({ id }) => id))
  const byDeployment = Map.groupBy(await openParts(tx, environmentId), ({ deploymentId }) => deploymentId)
  for (const [id, open] of byDeployment) {
    const ended = open.filter(({ serviceId }) => wholeEnvironment || leaving.has(serviceId))
    if (ended.length === 0) continue
    const isWaiting = open[0]!.state === 'QUEUED'
    if (ended.length < open.length) {
      const ids = ended.map(({ serviceId }) => serviceId)
      await cancelParts(tx, { id, isWaiting, serviceIds: ids }, parts)
    } else if (isWaiting) await cancelWaiting(tx, [id], parts)
    else await cancelRunning(tx, [id], false)
  }
}
