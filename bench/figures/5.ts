import { newId } from '../../server/src/lib/ids.ts'
import type { Queryable } from '../../server/src/store/database.ts'
import type { Bench } from '../bench.ts'
import type { Figure, Side } from '../figure.ts'
import { openFloorOutbox } from '../floors/outbox.ts'
import { median } from '../measure.ts'
import type { Ours } from '../ours.ts'
import { type Receiver, startReceiver } from '../receiver-client.ts'

const events = 2000
const receivers = 8
const oneByOne = 40

/** Rows as the product writes them, in one transaction, each of a different service; wakes the worker that delivers. */
const fill = `with written as (
    insert into outbox (id, organization_id, webhook_id, ordering_key, event_type, body)
    select gen_random_uuid(), $1, ($2::uuid[])[1 + n % cardinality($2::uuid[])], gen_random_uuid(), 'DEPLOYMENT_STARTED', $4
    from generate_series(1, $3::int) n returning 1)
  select pg_notify('slipway_outbox', '') from (select count(*) from written) all_of_them`

const body = JSON.stringify({
  event_type: 'DEPLOYMENT_STARTED',
  payload: {
    application_id: newId(),
    service_id: newId(),
    service_type: 'APPLICATION',
    service_name: 'an ordinary name',
    environment_id: newId(),
    project_id: newId(),
    organization_id: newId(),
    deployment_id: newId(),
    execution_id: `${newId()}-1`,
    state: 'DEPLOYMENT_QUEUED',
    reason: null,
    created_at: new Date().toISOString(),
  },
})

const now = (): number => performance.timeOrigin + performance.now()

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

const untilSettled = async (db: Queryable, webhooks: readonly string[]): Promise<void> => {
  for (const deadline = now() + 60_000; now() < deadline; await pause(3)) {
    const waiting = await db.query(
      `select 1 from outbox where webhook_id = any($1::uuid[]) and state = 'PENDING' limit 1`,
      [webhooks],
    )
    if (waiting.length === 0) return
  }
  throw new Error('the outbox was not empty after 60 s')
}

const makeWebhook = async (ours: Ours, url: string): Promise<string> => {
  const path = `/organization/${ours.templates.organizationId}/webhook`
  // Hears of nothing that the bench deploys.
  const filter = { events: ['DEPLOYMENT_FAILURE'], project_names_filter: ['no such project'] }
  return (await ours.call<{ id: string }>('POST', path, { kind: 'STANDARD', target_url: url, ...filter })).id
}

const floorSide = async (bench: Bench): Promise<Side> => {
  const { database, templates } = await bench.floorApi()
  const receiver = await startReceiver()
  const outbox = await openFloorOutbox((await bench.postgres()).url('floor'), receiver.url('/'))
  return {
    async measure() {
      await database.query(fill, [templates.organizationId, [templates.applicationId], events, body])
      const all = receiver.expect(events)
      const start = now()
      await outbox.drain()
      await all
      return { rate: (events / (now() - start)) * 1000 }
    },
    async close() {
      await outbox.close()
      await receiver.close()
    },
  }
}

/** Events delivered and settled a second, all written before. */
const drainRate = async (ours: Ours, receiver: Receiver, webhooks: readonly string[]): Promise<number> => {
  const all = receiver.expect(events)
  const start = now()
  await ours.database.query(fill, [ours.templates.organizationId, webhooks, events, body])
  const written = now()
  const { repeated } = await all
  await untilSettled(ours.database, webhooks)
  if (repeated > 0) throw new Error(`${repeated} deliveries came twice though nothing failed`)
  // The floor's rows are written before its clock starts.
  return (events / (now() - (start + written) / 2)) * 1000
}

/** From before the statement that writes and commits an event until its POST has come. */
const commitToPost = async (ours: Ours, receiver: Receiver, webhook: string): Promise<number> => {
  const waited: number[] = []
  for (let n = 0; n < oneByOne; n++) {
    const arrival = receiver.expect(1)
    const start = now()
    await ours.database.query(fill, [ours.templates.organizationId, [webhook], 1, body])
    waited.push((await arrival).lastAt - start)
    await untilSettled(ours.database, [webhook])
  }
  return median(waited)
}

const ourSide = async (bench: Bench): Promise<Side> => {
  const ours = await bench.ours()
  const receiver = await startReceiver()
  const webhooks: string[] = []
  for (let n = 0; n < receivers; n++) webhooks.push(await makeWebhook(ours, receiver.url(`/${n}`)))
  const silent = await makeWebhook(ours, receiver.url('/silent'))
  const remove = (id: string) => ours.call('DELETE', `/organization/${ours.templates.organizationId}/webhook/${id}`)
  /** The drain of the others while one receiver takes events and never answers. */
  const besideSilent = async (): Promise<number> => {
    await ours.database.query(fill, [ours.templates.organizationId, [silent], events / receivers, body])
    await pause(100)
    const rate = await drainRate(ours, receiver, webhooks)
    await ours.database.query('delete from outbox where webhook_id = $1', [silent])
    await receiver.forgetSilent()
    return rate
  }
  return {
    async measure(round) {
      // In turn, so that neither always finds the warmer machine.
      const first = round % 2 === 0 ? await besideSilent() : null
      const rate = await drainRate(ours, receiver, webhooks)
      const beside = first ?? (await besideSilent())
      return { rate, cost: 100 * (1 - beside / rate), wait: await commitToPost(ours, receiver, webhooks[0]!) }
    },
    async close() {
      await Promise.all([...webhooks, silent].map(remove))
      await receiver.close()
    },
  }
}

/** Durable events in the outbox, signed, delivered to eight receivers, each attempt recorded. */
export const figure: Figure<Bench> = {
  id: '5',
  rows: [
    {
      id: '5',
      what: 'signed durable deliveries',
      unit: '1/s',
      goal: { kind: 'ratioAtLeast', value: 0.5 },
      key: 'rate',
    },
    {
      id: '5-wait',
      what: 'commit to POST, p50',
      unit: 'ms',
      goal: { kind: 'atMost', value: 25 },
      key: 'wait',
      floorKey: null,
    },
    {
      id: '5-dead',
      what: 'cost of one dead receiver to others',
      unit: '%',
      goal: { kind: 'atMost', value: 5 },
      key: 'cost',
      floorKey: null,
    },
  ],
  floor: floorSide,
  ours: ourSide,
}
