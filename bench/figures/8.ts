import { setTimeout as sleep } from 'node:timers/promises'
import type { Bench } from '../bench.ts'
import type { Figure, Goal } from '../figure.ts'
import { naiveDeploy } from '../floors/naive.ts'
import { freePort } from '../free-port.ts'
import type { LoadTarget } from '../load.ts'
import { deploy, hostOf, makeApplication, untilRouted } from '../ours-deploy.ts'

const clients = 16
const pauseMs = 20
const baselineMs = 1500
const redeploysPerRound = 4

/** Sixteen keep-alive clients: twelve read the page, two read and two post to a program that takes 300 ms. */
const traffic = (origin: string, headers: Record<string, string> = {}): LoadTarget[] => [
  { origin, path: '/', method: 'GET', headers, clients: clients - 4, expected: 200 },
  { origin, path: '/cgi-bin/slow', method: 'GET', headers, clients: 2, expected: 200 },
  {
    origin,
    path: '/cgi-bin/slow',
    method: 'POST',
    headers: { ...headers, 'content-type': 'text/plain' },
    body: 'n={n}',
    clients: 2,
    expected: 200,
  },
]

/** Requests that failed while `work` ran under load, and the longest pause that it added to the good answers. */
const underLoad = async (bench: Bench, targets: LoadTarget[], work: () => Promise<unknown>) => {
  const load = await bench.load()
  await load.hold(targets, pauseMs)
  try {
    await sleep(200)
    await load.mark()
    await sleep(baselineMs)
    const baseline = await load.mark()
    await work()
    const seen = await load.mark()
    return {
      requests: seen.requests,
      failed: seen.failed,
      share: (100 * seen.failed) / seen.requests,
      gap: Math.max(0, seen.longestGapMs - baseline.longestGapMs),
      causes: seen.causes,
      baselineFailed: baseline.failed,
    }
  } finally {
    await load.release()
  }
}

const none: Goal = { kind: 'atMost', value: 0 }
const shortGap: Goal = { kind: 'atMost', value: 100 }

/** Redeployments under load. The floor is the naive deployment: it stops the old container, then starts the new one. */
export const figure: Figure<Bench> = {
  id: '8',
  rows: [
    { id: '8', what: 'failed requests, all redeploys', unit: 'requests', goal: none, key: 'failed', over: 'max' },
    { id: '8-requests', what: 'requests in those windows', unit: 'requests', goal: null, key: 'requests', over: 'max' },
    { id: '8-redeploys', what: 'redeployments', unit: '', goal: null, key: 'redeploys', over: 'max' },
    { id: '8-share', what: 'failed share in a window', unit: '%', goal: null, key: 'share' },
    { id: '8-gap', what: 'longest gap over baseline', unit: 'ms', goal: shortGap, key: 'gap', over: 'max' },
  ],
  async floor(bench) {
    const sources = await bench.sources()
    const site = { name: 'slipway-bench-8', hostPort: await freePort() }
    const total = { failed: 0, requests: 0, redeploys: 0 }
    const redeploy = () => naiveDeploy(bench.folder, sources.url, site, () => true)
    await redeploy()
    return {
      async measure(round) {
        await sources.publish(`8-naive-${round}`)
        const seen = await underLoad(bench, traffic(`http://127.0.0.1:${site.hostPort}`), redeploy)
        if (round > 0) {
          total.failed += seen.failed
          total.requests += seen.requests
          total.redeploys++
        }
        return { share: seen.share, gap: seen.gap, ...total }
      },
      close: () => bench.engine.remove(site.name),
    }
  },
  async ours(bench) {
    const ours = await bench.ours()
    const sources = await bench.sources()
    const id = await makeApplication(ours, await ours.makeEnvironment('figure-8'), 'loaded', sources.url)
    await deploy(ours, id)
    await untilRouted(ours, id)
    const headers = { host: `${await hostOf(ours, id)}:${ours.routerPort}` }
    const targets = traffic(`http://127.0.0.1:${ours.routerPort}`, headers)
    const total = { failed: 0, requests: 0, redeploys: 0 }
    return {
      async measure(round) {
        const seen = await underLoad(bench, targets, async () => {
          for (let n = 0; n < redeploysPerRound; n++) {
            await ours.call('POST', `/application/${id}/environmentVariable`, { key: 'ROUND', value: `${round}.${n}` })
            await deploy(ours, id)
          }
        })
        if (seen.baselineFailed > 0) throw new Error(`requests fail without a redeploy: ${seen.causes.join('; ')}`)
        if (round > 0) {
          total.failed += seen.failed
          total.requests += seen.requests
          total.redeploys += redeploysPerRound
        }
        return { share: seen.share, gap: seen.gap, ...total }
      },
    }
  },
}
