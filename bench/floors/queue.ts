/** The least durable queue: a row and a NOTIFY, a worker that listens and claims with SKIP LOCKED. */
import pg from 'pg'
import { newId } from '../../server/src/lib/ids.ts'
import { percentile } from '../measure.ts'

const insert = `with made as (
    insert into deployment (id, organization_id, environment_id, execution_number, action, origin, triggered_by)
    values ($1, $2, $1, 1, 'STOP', 'API', 'bench') returning id)
  select pg_notify('bench_queue', '') from made`

const claim = `update deployment set state = 'RUNNING', worker = 'floor', fence = fence + 1,
    started_at = clock_timestamp(), lease_until = clock_timestamp() + interval '30 s'
  where id = (select id from deployment where state = 'QUEUED' order by seq limit 1 for update skip locked)
  returning id, extract(epoch from started_at - created_at) * 1000 as waited_ms`

const finish = `update deployment set state = 'SUCCEEDED', finished_at = clock_timestamp() where id = $1 and fence = 1`

/** Rows of deployments that ended long ago, spread over `environments`. */
export const finishedRows = `insert into deployment
    (id, organization_id, environment_id, execution_number, action, origin, triggered_by, state, created_at,
     started_at, finished_at)
  select gen_random_uuid(), $1, ($2::uuid[])[1 + n % cardinality($2::uuid[])], 1000000 + n, 'DEPLOY', 'API', 'bench',
    'SUCCEEDED', now() - interval '30 days', now() - interval '30 days', now() - interval '30 days'
  from generate_series(1, 100000) n`

const workers = 4

export interface FloorQueue {
  /** Claim latencies in milliseconds, one entry after the other. */
  claimOneByOne(count: number): Promise<number[]>
  /** Entries claimed and finished a second, all inserted before. */
  drainRate(count: number): Promise<number>
  close(): Promise<void>
}

export const openFloorQueue = async (url: string): Promise<FloorQueue> => {
  const pool = new pg.Pool({ connectionString: url, max: workers + 1 })
  const listener = new pg.Client({ connectionString: url })
  await listener.connect()
  await listener.query('listen bench_queue')
  const run = async (name: string, text: string, values: unknown[] = []) =>
    (await pool.query({ name, text, values })).rows as { id: string; waited_ms: string }[]
  const add = () => run('insert', insert, [newId(), newId()])

  /** Claims and finishes until nothing waits. */
  const drain = async (): Promise<number[]> => {
    const waited: number[] = []
    for (;;) {
      const [claimed] = await run('claim', claim)
      if (claimed === undefined) return waited
      waited.push(Number(claimed.waited_ms))
      await run('finish', finish, [claimed.id])
    }
  }
  const claimNext = (): Promise<number[]> =>
    new Promise((resolve, reject) => listener.once('notification', () => drain().then(resolve, reject)))

  return {
    async claimOneByOne(count) {
      const waited: number[] = []
      while (waited.length < count) {
        const next = claimNext()
        await add()
        waited.push(...(await next))
      }
      return waited
    },
    async drainRate(count) {
      await Promise.all(Array.from({ length: count }, add))
      const start = performance.now()
      await Promise.all(Array.from({ length: workers }, drain))
      return (count / (performance.now() - start)) * 1000
    },
    async close() {
      await listener.end()
      await pool.end()
    },
  }
}

export const summary = (waited: readonly number[]) => ({ p50: percentile(waited, 0.5), p99: percentile(waited, 0.99) })
