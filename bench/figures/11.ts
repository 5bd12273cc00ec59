import { Agent, request } from 'undici'
import type { Bench } from '../bench.ts'
import type { Figure, Side } from '../figure.ts'
import { rawDeploy } from '../floors/raw.ts'
import { timed } from '../measure.ts'
import type { Ours } from '../ours.ts'
import { deploy, hostOf, makeApplication } from '../ours-deploy.ts'

const crowd = 1000

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Until it sleeps and nothing of it is on the engine. */
const untilAsleep = async (bench: Bench, ours: Ours, id: string): Promise<void> => {
  const filters = encodeURIComponent(JSON.stringify({ label: [`slipway.service=${id}`] }))
  for (const deadline = performance.now() + 60_000; performance.now() < deadline; await pause(100)) {
    const { scaling } = await ours.call<{ scaling?: { asleep: boolean } }>('GET', `/application/${id}/status`)
    if (scaling?.asleep !== true) continue
    const containers = await bench.engine.call<object[]>('GET', `/containers/json?all=1&filters=${filters}`)
    if (containers.length === 0) return
  }
  throw new Error(`application ${id} did not fall asleep within 60 s`)
}

/** Milliseconds until the first of so many requests at once is answered; rejects unless all are answered 200. */
const firstOf = async (ours: Ours, host: string, count: number): Promise<number> => {
  const agent = new Agent({ connections: count, headersTimeout: 60_000 })
  const started = performance.now()
  let firstMs = Number.POSITIVE_INFINITY
  const ask = async (): Promise<void> => {
    const answer = await request(`http://127.0.0.1:${ours.routerPort}/`, {
      dispatcher: agent,
      headers: { host: `${host}:${ours.routerPort}` },
    })
    await answer.body.dump()
    if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`)
    firstMs = Math.min(firstMs, performance.now() - started)
  }
  try {
    await Promise.all(Array.from({ length: count }, ask))
  } finally {
    await agent.destroy()
  }
  return firstMs
}

const floor = async (bench: Bench): Promise<Side> => {
  const { image } = await bench.sources()
  return {
    async measure() {
      let id = ''
      const ms = await timed(async () => {
        id = await rawDeploy(bench.engine, image, { cappedLog: true })
      })
      await bench.engine.remove(id)
      return { ms }
    },
  }
}

const side = async (bench: Bench): Promise<Side> => {
  const { startOurs } = await import('../ours.ts')
  const [{ url }, ours] = await Promise.all([
    bench.sources(),
    startOurs(bench, 'ours_wake', { SLIPWAY_SLEEP_AFTER_SECONDS: '1' }),
  ])
  bench.onClose(ours.stop)
  const environment = await ours.makeEnvironment('figure-11')
  const id = await makeApplication(ours, environment, 'sleeper', url, { min_running_instances: 0 })
  await deploy(ours, id)
  const host = await hostOf(ours, id)
  return {
    async measure() {
      await untilAsleep(bench, ours, id)
      const ms = await firstOf(ours, host, 1)
      await untilAsleep(bench, ours, id)
      return { ms, crowdMs: await firstOf(ours, host, crowd) }
    },
  }
}

/** The first request to a service that sleeps. The floor is the engine's own start of such a container. */
export const figure: Figure<Bench> = {
  id: '11',
  rows: [
    { id: '11', what: 'asleep to first answer', unit: 'ms', goal: { kind: 'added', value: 100 }, key: 'ms' },
    {
      ...{ id: '11-crowd', what: 'the same, the first of 1,000 at once', unit: 'ms' },
      ...{ goal: { kind: 'added', value: 100 } as const, key: 'crowdMs', floorKey: 'ms' },
    },
  ],
  floor,
  ours: side,
}
