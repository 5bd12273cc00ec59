/**
 * The outbox as a queue. Promises order per receiver and service, at most `perWebhook` deliveries to one receiver at a
 * time over all replicas, and that a row whose worker died is taken over when its lease ends. Whoever lost a row's lease
 * cannot settle it: the number of the attempt is the fence.
 */
import type { Database, Queryable } from '../store/database.ts'
import { outboxChannel } from './outbox.ts'

/** A row that this worker holds. */
export interface ClaimedDelivery {
  id: string
  organizationId: string
  webhookId: string
  eventType: string
  body: string
  /** 1 for the first. */
  attempt: number
  spec: { kind?: string; target_url?: string; enabled?: boolean }
  sealed: Record<string, string>
}

/** What came of an attempt; `status` is 0 where nothing was answered. */
export interface AttemptResult {
  targetUrl: string
  request: unknown
  status: number
  responseBody: string | null
  error: string | null
  durationMs: number
}

/** What becomes of the row: done, or again in so many seconds. */
export type Settlement = { state: 'DELIVERED' | 'FAILED' | 'DISCARDED' } | { state: 'PENDING'; afterSeconds: number }

// Only the oldest waiting event of a service goes to a receiver: the next one waits until it is settled.
const isHead = `not exists (select 1 from outbox earlier where earlier.webhook_id = o.webhook_id
  and earlier.ordering_key = o.ordering_key and earlier.seq < o.seq and earlier.state = 'PENDING')`

const claimSql = `
  with busy as (
    select webhook_id, count(*) as leased from outbox
    where state = 'PENDING' and lease_until > clock_timestamp() group by webhook_id
  ), due as (
    select o.id, o.webhook_id, row_number() over (partition by o.webhook_id order by o.seq) as place from outbox o
    where o.state = 'PENDING' and o.next_attempt_at <= clock_timestamp()
      and coalesce(o.lease_until <= clock_timestamp(), true) and ${isHead}
  ), chosen as (
    select due.id from due left join busy using (webhook_id)
    where due.place + coalesce(busy.leased, 0) <= $3 order by due.place limit $4
  )
  update outbox o set worker = $1, lease_until = clock_timestamp() + make_interval(secs => $2), attempts = o.attempts + 1
  from node n where o.id in (select id from chosen) and n.id = o.webhook_id
  returning o.id, o.organization_id as "organizationId", o.webhook_id as "webhookId", o.event_type as "eventType", o.body,
    o.attempts as attempt, n.spec, n.sealed`

export interface ClaimLimits {
  leaseSeconds: number
  perWebhook: number
  rows: number
}

/** Takes what is due. Claims take turns, so that two replicas together stay within `perWebhook`. */
export const claimDue = (database: Database, worker: string, limits: ClaimLimits): Promise<ClaimedDelivery[]> =>
  database.transaction(async (tx) => {
    await tx.query('select pg_advisory_xact_lock(7301914202)')
    return tx.query<ClaimedDelivery>(claimSql, [worker, limits.leaseSeconds, limits.perWebhook, limits.rows])
  })

/** Milliseconds until a row becomes due or its lease ends; null when nothing waits. */
export const nextDueMs = async (db: Queryable): Promise<number | null> => {
  const [row] = await db.query<{ wait: number | null }>(
    `select (extract(epoch from min(greatest(o.next_attempt_at, o.lease_until)) - clock_timestamp()) * 1000)::float8 as wait
     from outbox o where o.state = 'PENDING' and ${isHead}`,
  )
  return row?.wait ?? null
}

const settleSql = `update outbox set state = $4, next_attempt_at = clock_timestamp() + make_interval(secs => $5),
  finished_at = case when $4 = 'PENDING' then null else clock_timestamp() end, worker = null, lease_until = null
  where id = $1 and worker = $2 and attempts = $3 and state = 'PENDING'`

// Selected from the row: a webhook deleted meanwhile has taken its outbox along, and there is nothing to log to.
const logSql = `insert into delivery (id, outbox_id, webhook_id, attempt, event_type, target_url, request,
  response_status, response_body, error, duration_ms)
  select gen_random_uuid(), o.id, o.webhook_id, $2, o.event_type, $3, $4, $5, $6, $7, $8 from outbox o where o.id = $1`

/** Logs the attempt and settles the row, in one transaction. */
export const settle = (
  database: Database,
  worker: string,
  claimed: ClaimedDelivery,
  result: AttemptResult | null,
  settlement: Settlement,
): Promise<void> =>
  database.transaction(async (tx) => {
    const { id, attempt } = claimed
    const delay = settlement.state === 'PENDING' ? settlement.afterSeconds : 0
    await tx.query(settleSql, [id, worker, attempt, settlement.state, delay])
    if (result === null) return
    const { targetUrl, request, status, responseBody, error, durationMs } = result
    const answer = [status, responseBody, error, Math.round(durationMs)]
    await tx.query(logSql, [id, attempt, targetUrl, JSON.stringify(request), ...answer])
  })

/** Gives a row back untried: this process is ending. */
export const release = async (db: Queryable, worker: string, { id, attempt }: ClaimedDelivery): Promise<void> => {
  await db.query(
    `update outbox set attempts = attempts - 1, worker = null, lease_until = null
     where id = $1 and worker = $2 and attempts = $3 and state = 'PENDING'`,
    [id, worker, attempt],
  )
}

const disableSql = `
  with disabled as (
    update node set spec = spec || '{"enabled": false}', updated_at = clock_timestamp(), version = version + 1
    where id = $1 and kind = 'webhook' returning id, organization_id
  ), dropped as (
    update outbox set state = 'DISCARDED', finished_at = clock_timestamp()
    where webhook_id = $1 and id <> $2 and state = 'PENDING' and coalesce(lease_until <= clock_timestamp(), true)
  )
  insert into event (id, organization_id, event_type, target_type, target_id, change, origin, triggered_by)
  select gen_random_uuid(), organization_id, 'UPDATE', 'WEBHOOK', id, '{"enabled": false}', 'QOVERY_INTERNAL', $3
  from disabled`

/** Switches a webhook off, drops what waits for it, and leaves an audit row that says why. */
export const disableWebhook = async (db: Queryable, { webhookId, id }: ClaimedDelivery, why: string): Promise<void> => {
  await db.query(disableSql, [webhookId, id, why])
}

/** Sends an event again, from the first attempt on, under the same message id. False when it is unknown or under way. */
export const requeue = async (db: Queryable, outboxId: string): Promise<boolean> => {
  const rows = await db.query(
    `with again as (
       update outbox set state = 'PENDING', attempts = 0, next_attempt_at = clock_timestamp(), finished_at = null
       where id = $1 and coalesce(lease_until <= clock_timestamp(), true) returning 1
     ) select pg_notify('${outboxChannel}', '') from again`,
    [outboxId],
  )
  return rows.length > 0
}

/** Queues a test event for one webhook; the id of its outbox row, null when there is no such webhook. */
export const enqueueTest = async (db: Queryable, webhookId: string): Promise<string | null> => {
  const [row] = await db.query<{ id: string }>(
    `with made as (
       insert into outbox (id, organization_id, webhook_id, ordering_key, event_type, body)
       select gen_random_uuid(), n.organization_id, n.id, gen_random_uuid(), coalesce(n.spec -> 'events' ->> 0, 'DEPLOYMENT_STARTED'),
         json_build_object('event_type', 'WEBHOOK_TEST', 'payload', json_build_object('webhook_id', n.id, 'test', true))::text
       from node n where n.id = $1 and n.kind = 'webhook' returning id
     ) select id, pg_notify('${outboxChannel}', '') from made`,
    [webhookId],
  )
  return row?.id ?? null
}

/** Forgets what ended more than 30 days ago. */
export const sweep = async (db: Queryable): Promise<void> => {
  await db.query(`delete from delivery where created_at < clock_timestamp() - interval '30 days'`)
  await db.query(`delete from outbox where state <> 'PENDING' and finished_at < clock_timestamp() - interval '30 days'`)
}
