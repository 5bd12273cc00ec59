import { newId } from '../../server/src/lib/ids.ts'
import type { Bench } from '../bench.ts'
import type { Figure } from '../figure.ts'
import { finishedRows, openFloorQueue, summary } from '../floors/queue.ts'
import { median } from '../measure.ts'
import type { Ours } from '../ours.ts'
import { makeApplication } from '../ours-deploy.ts'

const oneByOne = 40
const atOnce = 25

/** Times are the database's own: the row's creation to the claim (floor) or to the first step (ours). */
const firstSteps = `select extract(epoch from coalesce(min(s.started_at), d.started_at) - d.created_at) * 1000 as waited_ms
  from deployment d left join deployment_step s on s.deployment_id = d.id
  where d.id = any($1::uuid[]) group by d.id`

const unfinished = `select count(*)::int as left from deployment
  where environment_id = any($1::uuid[]) and state in ('QUEUED', 'RUNNING')`

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

const untilIdle = async (ours: Ours, environments: string[]): Promise<void> => {
  for (const deadline = performance.now() + 60_000; performance.now() < deadline; await pause(2)) {
    const [row] = await ours.database.query<{ left: number }>(unfinished, [environments])
    if (row?.left === 0) return
  }
  throw new Error('deployments that do nothing did not end within 60 s')
}

/** Stops of environments whose services never ran: deployments without work. */
const stopOne = async (ours: Ours, environment: string): Promise<string> =>
  (await ours.call<{ deployment_request_id: string }>('POST', `/environment/${environment}/stop`)).deployment_request_id

const ourQueue = (ours: Ours, environments: string[]) => ({
  async claimOneByOne(count: number): Promise<number[]> {
    const deployments: string[] = []
    for (let n = 0; n < count; n++) {
      const environment = environments[n % environments.length]!
      deployments.push(await stopOne(ours, environment))
      await untilIdle(ours, [environment])
    }
    const rows = await ours.database.query<{ waited_ms: string }>(firstSteps, [deployments])
    return rows.map((row) => Number(row.waited_ms))
  },
  async drainRate(): Promise<number> {
    const start = performance.now()
    await Promise.all(environments.map((environment) => stopOne(ours, environment)))
    await untilIdle(ours, environments)
    return (environments.length / (performance.now() - start)) * 1000
  },
})

type Queue = Pick<Awaited<ReturnType<typeof openFloorQueue>>, 'claimOneByOne' | 'drainRate'>

/** Measures with few rows, fills the table, and from then on measures with 100,000 finished rows. */
const queueSide = async (queue: Queue, fill: () => Promise<unknown>, close?: () => Promise<void>) => {
  await queue.claimOneByOne(oneByOne)
  const few: number[] = []
  for (let n = 0; n < 3; n++) few.push(summary(await queue.claimOneByOne(oneByOne)).p50)
  const before = median(few)
  await fill()
  await queue.claimOneByOne(oneByOne)
  return {
    async measure() {
      const { p50, p99 } = summary(await queue.claimOneByOne(oneByOne))
      return { p50, p99, growth: p50 / before, rate: await queue.drainRate(atOnce) }
    },
    close,
  }
}

/** Request accepted to first step, with 100,000 finished deployments in the table. */
export const figure: Figure<Bench> = {
  id: '4',
  rows: [
    { id: '4', what: 'accepted to first step, p50', unit: 'ms', goal: { kind: 'atMost', value: 20 }, key: 'p50' },
    { id: '4-p99', what: 'accepted to first step, p99', unit: 'ms', goal: null, key: 'p99' },
    {
      id: '4-flat',
      what: 'p50 with 100,000 finished / without',
      unit: 'x',
      goal: { kind: 'atMost', value: 1.5 },
      key: 'growth',
    },
    {
      id: '4-noop',
      what: 'deployments that do nothing',
      unit: '1/s',
      goal: { kind: 'atLeast', value: 50 },
      key: 'rate',
    },
  ],
  async floor(bench) {
    const { database } = await bench.floorApi()
    const queue = await openFloorQueue((await bench.postgres()).url('floor'))
    const fill = async () => {
      await database.query(finishedRows, [newId(), [newId(), newId(), newId()]])
      await database.query('analyze deployment')
    }
    return queueSide(queue, fill, queue.close)
  },
  async ours(bench) {
    const ours = await bench.ours()
    const { url } = await bench.sources()
    const environments = await Promise.all(
      Array.from({ length: atOnce }, async (_, n) => {
        const environment = await ours.makeEnvironment(`figure-4-${n}`)
        await makeApplication(ours, environment, 'idle', url)
        return environment
      }),
    )
    return queueSide(ourQueue(ours, environments), async () => {
      await ours.database.query(finishedRows, [ours.templates.organizationId, environments])
      await ours.database.query('analyze deployment')
    })
  },
}
