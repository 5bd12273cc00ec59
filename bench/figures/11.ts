import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { Bench } from '../bench.ts'
import type { Figure, Side } from '../figure.ts'
import { startHolder } from '../floors/holder.ts'
import { rawDeploy } from '../floors/raw.ts'
import { timed } from '../measure.ts'
import type { Ours } from '../ours.ts'
import { usualLimits } from '../ours-application.ts'
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

/**
 * So many requests at once, each on a connection of its own: milliseconds from the request to the answer of the one that
 * is answered first. Rejects unless all are answered 200.
 */
const firstOf = async (port: number, host: string, count: number): Promise<number> => {
  const sockets: Socket[] = []
  let first = Number.POSITIVE_INFINITY
  const ask = async (): Promise<void> => {
    const socket = connect(port, '127.0.0.1').setNoDelay()
    sockets.push(socket)
    await once(socket, 'connect')
    const sent = performance.now()
    socket.write(`GET / HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`)
    const [bytes] = (await once(socket, 'data')) as [Buffer]
    if (first === Number.POSITIVE_INFINITY) first = performance.now() - sent
    const status = bytes.toString('latin1', 0, 12)
    if (status !== 'HTTP/1.1 200') throw new Error(`answered ${status}`)
  }
  try {
    await Promise.all(Array.from({ length: count }, ask))
    return first
  } finally {
    for (const socket of sockets) socket.destroy()
  }
}

/** The engine's own start of such a container; then with the same crowd, which is held by the least that holds it. */
const floor = async (bench: Bench): Promise<Side> => {
  const { image } = await bench.sources()
  const holder = await startHolder()
  bench.onClose(async () => holder.close())
  const start = () => rawDeploy(bench.engine, image, { cappedLog: true, limits: usualLimits })
  return {
    async measure() {
      let id = ''
      const ms = await timed(async () => {
        id = await start()
      })
      await bench.engine.remove(id)
      const first = firstOf(holder.port, 'floor', crowd)
      first.catch(() => {})
      await holder.wanted()
      id = await start()
      holder.serve()
      const crowdMs = await first
      await bench.engine.remove(id)
      return { ms, crowdMs }
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
      const ms = await firstOf(ours.routerPort, host, 1)
      await untilAsleep(bench, ours, id)
      return { ms, crowdMs: await firstOf(ours.routerPort, host, crowd) }
    },
  }
}

/** The first request to a service that sleeps, alone and in a crowd. */
export const figure: Figure<Bench> = {
  id: '11',
  rows: [
    { id: '11', what: 'asleep to first answer', unit: 'ms', goal: { kind: 'added', value: 100 }, key: 'ms' },
    {
      ...{ id: '11-crowd', what: 'the same, the first of 1,000 at once', unit: 'ms' },
      ...{ goal: { kind: 'added', value: 100 } as const, key: 'crowdMs' },
    },
  ],
  floor,
  ours: side,
}
