/**
 * The outbox as a queue. Promises order per receiver and service, at most `perWebhook` deliveries to one receiver at a
 * time across all replicas, and that a row whose worker died is taken over when its lease ends. A worker that lost a
 * row's lease cannot settle it: the number of the attempt is the fence. An event whose next attempt is far away rests:
 * later ones of its service go first, and the first success of its receiver brings it forward, once (decision 33).
 */
import type { Database, Queryable } from '../store/database.ts'
import { deleteInBatches } from '../store/event-retention.ts'
import { lockSql } from '../store/locks.ts'
import { outboxChannel } from './outbox.ts'

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

/** The result of an attempt; `status` is 0 without a response. */
export interface AttemptResult {
  targetUrl: string
  /** JSON. */
  request: string
  status: number
  responseBody: string | null
  error: string | null
  durationMs: number
}

/** The new state of the row: done, or retry in so many seconds. */
export type Settlement = { state: 'DELIVERED' | 'FAILED' | 'DISCARDED' } | { state: 'PENDING'; afterSeconds: number }

// Only the oldest waiting event of a service goes to a receiver: the next one waits until it is settled or rests.
const isHead = `(o.rests or o.seq = (select head.seq from outbox head where head.webhook_id = o.webhook_id
  and head.ordering_key = o.ordering_key and head.state = 'PENDING' and not head.rests order by head.seq limit 1))`

// One probe of an index for each receiver, however much is pending for it: a long outbox must not make each claim
// slower.
const receivers = `receivers as (
    (select webhook_id from outbox where state = 'PENDING' order by webhook_id limit 1)
    union all
    select (select o.webhook_id from outbox o where o.state = 'PENDING' and o.webhook_id > r.webhook_id
      order by o.webhook_id limit 1)
    from receivers r where r.webhook_id is not null
  )`

const claimSql = `
  with recursive ${receivers}, places as (
    select r.webhook_id, $3 - (select count(*) from outbox o
      where o.webhook_id = r.webhook_id and o.state = 'PENDING' and o.lease_until > now()) as free
    from receivers r where r.webhook_id is not null
  ), chosen as (
    select due.id from places cross join lateral (
      select o.id, row_number() over (order by o.next_attempt_at, o.seq) as place from outbox o
      where o.webhook_id = places.webhook_id and o.state = 'PENDING' and o.next_attempt_at <= now()
        and coalesce(o.lease_until <= now(), true) and ${isHead}
      order by o.next_attempt_at, o.seq limit greatest(places.free, 0)) due
    order by due.place limit $4
  )
  update outbox o set worker = $1, lease_until = clock_timestamp() + make_interval(secs => $2), attempts = o.attempts + 1
  from node n where o.id = any(array(select id from chosen)) and n.id = o.webhook_id
  returning o.id, o.organization_id as "organizationId", o.webhook_id as "webhookId", o.event_type as "eventType", o.body,
    o.attempts as attempt, n.spec, n.sealed`

// Measured from the time of the claim, so that nothing that becomes due in between is missed.
const nextDueSql = `
  with recursive ${receivers}
  select (extract(epoch from min(least(
      (select min(o.next_attempt_at) from outbox o
        where o.webhook_id = r.webhook_id and o.state = 'PENDING' and o.next_attempt_at > now()),
      (select min(o.lease_until) from outbox o
        where o.webhook_id = r.webhook_id and o.state = 'PENDING' and o.lease_until > now())
    )) - clock_timestamp()) * 1000)::float8 as wait
  from receivers r where r.webhook_id is not null`

interface ClaimLimits {
  leaseSeconds: number
  perWebhook: number
  rows: number
}

interface Claim {
  claimed: ClaimedDelivery[]
  /** Milliseconds until a row that is not due becomes due or a lease ends; null when nothing waits. */
  nextDueMs: number | null
}

/** Takes what is due. Claims take turns, so that two replicas together stay within `perWebhook`. */
export const claimDue = (database: Database, worker: string, limits: ClaimLimits): Promise<Claim> =>
  database.transaction(async (tx) => {
    await tx.query(lockSql('webhooks'))
    const values = [worker, limits.leaseSeconds, limits.perWebhook, limits.rows]
    const claimed = limits.rows > 0 ? await tx.query<ClaimedDelivery>(claimSql, values) : []
    const [next] = await tx.query<{ wait: number | null }>(nextDueSql)
    return { claimed, nextDueMs: next?.wait ?? null }
  })

/** A finished attempt, and the new state of its row. */
export interface Settled {
  claimed: ClaimedDelivery
  /** Null if nothing was tried; then nothing is logged. */
  result: AttemptResult | null
  settlement: Settlement
}

/** An event delays the later ones of its service only while its next attempt is this close. */
const longestHoldSeconds = 60

// The log is selected from the row: if the webhook was deleted meanwhile, its outbox is deleted too, and nothing is
// logged.
const settleSql = `
  with given as (
    select * from unnest($2::uuid[], $3::integer[], $4::text[], $5::float8[], $6::text[], $7::text[], $8::integer[],
        $9::text[], $10::text[], $11::integer[])
      as t (id, attempt, state, delay, target_url, request, status, response_body, error, duration_ms)
  ), settled as (
    update outbox o set state = g.state, next_attempt_at = clock_timestamp() + make_interval(secs => g.delay),
      rests = g.state = 'PENDING' and g.delay > ${longestHoldSeconds},
      finished_at = case when g.state = 'PENDING' then null else clock_timestamp() end, worker = null, lease_until = null
    from given g where o.id = any($2) and o.id = g.id and o.worker = $1 and o.attempts = g.attempt and o.state = 'PENDING'
  ), answering as (
    select distinct o.webhook_id from given g join outbox o on o.id = g.id
    where o.id = any($2) and g.state = 'DELIVERED' and o.worker = $1 and o.attempts = g.attempt
  ), recalled as (
    update outbox o set rests = false, recalled = true, next_attempt_at = clock_timestamp()
    where o.id in (select r.id from answering a join outbox r on r.webhook_id = a.webhook_id
      where r.state = 'PENDING' and r.rests and not r.recalled and coalesce(r.lease_until <= clock_timestamp(), true)
        and r.id <> all($2) for update of r skip locked)
    returning 1
  ), woken as (
    select pg_notify('${outboxChannel}', '') from (select 1 from recalled limit 1) any_row
  )
  insert into delivery (id, outbox_id, webhook_id, attempt, event_type, target_url, request, response_status,
    response_body, error, duration_ms)
  select gen_random_uuid(), o.id, o.webhook_id, g.attempt, o.event_type, g.target_url, g.request::jsonb, g.status,
    g.response_body, g.error, g.duration_ms
  from given g join outbox o on o.id = g.id left join woken on true
  where o.id = any($2) and g.request is not null`

/** Logs attempts and settles their rows, all or none. */
export const settle = async (db: Queryable, worker: string, all: readonly Settled[]): Promise<void> => {
  const column = (value: (one: Settled) => unknown): unknown[] => all.map(value)
  await db.query(settleSql, [
    worker,
    column(({ claimed }) => claimed.id),
    column(({ claimed }) => claimed.attempt),
    column(({ settlement }) => settlement.state),
    column(({ settlement }) => (settlement.state === 'PENDING' ? settlement.afterSeconds : 0)),
    column(({ result }) => result?.targetUrl ?? null),
    column(({ result }) => result?.request ?? null),
    column(({ result }) => result?.status ?? null),
    column(({ result }) => result?.responseBody ?? null),
    column(({ result }) => result?.error ?? null),
    column(({ result }) => (result === null ? null : Math.round(result.durationMs))),
  ])
}

/** Releases a row without an attempt, because this process is stopping. */
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
  insert into event (id, organization_id, event_type, target_type, target_id, change, origin, triggered_by,
    actor_type)
  select gen_random_uuid(), organization_id, 'UPDATE', 'WEBHOOK', id, '{"enabled": false}', 'QOVERY_INTERNAL', $3,
    'SYSTEM'
  from disabled`

/** Disables a webhook, drops its pending events, and writes an audit row that says why. */
export const disableWebhook = async (db: Queryable, { webhookId, id }: ClaimedDelivery, why: string): Promise<void> => {
  await db.query(disableSql, [webhookId, id, why])
}

/** Sends an event again from the first attempt, with the same message id. False: it is unknown or in progress. */
export const requeue = async (db: Queryable, outboxId: string): Promise<boolean> => {
  const rows = await db.query(
    `with again as (
       update outbox set state = 'PENDING', attempts = 0, next_attempt_at = clock_timestamp(), finished_at = null,
         rests = false, recalled = false
       where id = $1 and coalesce(lease_until <= clock_timestamp(), true) returning 1
     ) select pg_notify('${outboxChannel}', '') from again`,
    [outboxId],
  )
  return rows.length > 0
}

/** Deletes attempts and events that ended so many days ago. */
export const sweep = async (db: Queryable, days: number, signal: AbortSignal): Promise<void> => {
  await deleteInBatches(
    db,
    `delete from delivery where id in (select id from delivery
       where created_at < clock_timestamp() - $1 * interval '1 day' order by created_at limit $2
       for update skip locked) returning 1`,
    [days],
    signal,
  )
  await deleteInBatches(
    db,
    `delete from outbox where id in (select id from outbox
       where state <> 'PENDING' and finished_at < clock_timestamp() - $1 * interval '1 day' order by finished_at limit $2
       for update skip locked) returning 1`,
    [days],
    signal,
  )
}
