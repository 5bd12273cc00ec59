/**
 * Environments that run only in their hours: stops running services when the hours end, and starts the same services,
 * at their deployed versions, when they begin. Acts when the hours change, never in between: services that a user
 * starts or stops meanwhile stay so until then. Each change is one transaction with its request: made once, whatever
 * dies, and after a downtime only the last one counts.
 */

import { newId } from '../../lib/ids.ts'
import { type DailyHours, readHours } from '../../lib/time/daily-hours.ts'
import type { Queryable } from '../../store/database.ts'
import { writeOwnAudit } from '../../store/own-audit.ts'
import { createLoop, type Loop } from '../../work/loop.ts'
import type { ServiceRequest } from '../deployments.ts'
import type { DeploymentParts } from '../parts.ts'
import { leavingSql } from '../status/service-state.ts'
import { requestDeployment } from './request.ts'
import { requestPartsOf } from './request-parts.ts'

const longestSleepMs = 30_000
/** For an environment whose request was refused, such as by a limit. */
const againMs = 60_000

interface Due {
  environmentId: string
  organizationId: string
  projectId: string
  name: string
  hours: DailyHours
  /** False: only their next change must be computed, because they were set just now. */
  acts: boolean
  stopped: string[]
}

const dueSql = `select h.environment_id as "environmentId", e.organization_id as "organizationId",
    e.parent_id as "projectId", e.name, e.spec -> 'deployment_rule' as hours, h.next_at > '-infinity' as acts, h.stopped
  from environment_hours h join node e on e.id = h.environment_id
  where h.next_at <= $1 order by h.next_at limit 1 for update of h skip locked`

const running = `select s.service_id as id from service_state s where s.environment_id = $1 and s.desired = 'RUNNING'
  and not s.is_skipped and not ${leavingSql}`

const stillStopped = `select s.service_id as id from service_state s where s.environment_id = $1
  and s.service_id = any($2) and s.desired = 'STOPPED' and s.current_release_id is not null and not ${leavingSql}`

const idsOf = async (tx: Queryable, sql: string, values: readonly unknown[]): Promise<string[]> =>
  (await tx.query<{ id: string }>(sql, values)).map(({ id }) => id)

const triggeredBy = 'auto-stop'

const request = async (
  tx: Queryable,
  parts: DeploymentParts,
  due: Due,
  action: 'STOP' | 'DEPLOY',
  services: ServiceRequest[],
): Promise<void> => {
  const { environmentId, organizationId, projectId, name } = due
  const asked = { origin: 'QOVERY_INTERNAL', triggeredBy, requestId: newId() }
  const { deploymentId, executionId } = await requestDeployment(
    tx,
    { ...{ organizationId, environmentId, action, services, ...asked }, wholeEnvironment: false },
    requestPartsOf(parts),
  )
  await writeOwnAudit(tx, organizationId, {
    ...{ actor: 'SYSTEM', by: triggeredBy, request: asked, eventType: `TRIGGER_${action}` },
    ...{ targetType: 'ENVIRONMENT', subTargetType: null, target: { id: environmentId, name } },
    place: { projectId, environmentId },
    change: { deployment_request_id: deploymentId, execution_id: executionId },
  })
}

/** The facts to be stored about the services that are stopped now. */
const act = async (tx: Queryable, parts: DeploymentParts, due: Due, open: boolean): Promise<string[]> => {
  if (open) {
    const ids = await idsOf(tx, stillStopped, [due.environmentId, due.stopped])
    const services = ids.map((id) => ({ id, redeploy: true }))
    if (ids.length > 0) await request(tx, parts, due, 'DEPLOY', services)
    return []
  }
  const ids = await idsOf(tx, running, [due.environmentId])
  if (ids.length > 0)
    await request(
      tx,
      parts,
      due,
      'STOP',
      ids.map((id) => ({ id })),
    )
  return [...new Set([...due.stopped, ...ids])]
}

const write = `update environment_hours set next_at = coalesce($2::timestamptz, 'infinity'), stopped = $3 where environment_id = $1`

export const startAutoStop = async (parts: DeploymentParts): Promise<{ stop(): Promise<void> }> => {
  const { database, clock, log } = parts

  const put = async (environmentId: string): Promise<void> => {
    const later = new Date(clock.now().getTime() + againMs)
    await database.query('update environment_hours set next_at = $2 where environment_id = $1', [environmentId, later])
  }
  /** False: nothing was due. */
  const takeDue = async (): Promise<boolean> => {
    let taken: Due | undefined
    try {
      return await database.transaction(async (tx) => {
        const now = clock.now()
        ;[taken] = await tx.query<Due>(dueSql, [now])
        if (taken === undefined) return false
        const found = readHours(taken.hours, now)
        const stopped = taken.acts && found !== null ? await act(tx, parts, taken, found.open) : taken.stopped
        await tx.query(write, [taken.environmentId, found?.nextAt ?? null, stopped])
        return true
      })
    } catch (error) {
      if (taken === undefined) throw error
      log.warn({ err: error, environmentId: taken.environmentId }, 'auto-stop was refused; retrying in a minute')
      await put(taken.environmentId)
      return true
    }
  }
  const loop: Loop = createLoop(parts, {
    name: 'auto-stop',
    periodMs: longestSleepMs,
    failed: 'environments may run outside their hours',
    async run(signal) {
      while (!signal.aborted && (await takeDue()));
      const [row] = await database.query<{ inMs: number | null }>(
        `select extract(epoch from min(greatest(next_at, $1::timestamptz)) - $1::timestamptz)::float8 * 1000 as "inMs" from environment_hours
         where next_at < 'infinity'`,
        [clock.now()],
      )
      return row?.inMs ?? longestSleepMs
    },
  })
  const leave = await database.listen('slipway_hours', () => loop.wake())
  return {
    async stop() {
      leave()
      await loop.stop()
    },
  }
}
