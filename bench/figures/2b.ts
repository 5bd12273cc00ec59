import type { Bench } from '../bench.ts'
import type { Figure, Side } from '../figure.ts'
import { type NaiveSite, naiveDeploy } from '../floors/naive.ts'
import { freePort } from '../free-port.ts'
import { timed } from '../measure.ts'
import { deploy, makeApplication, untilRouted, untilState } from '../ours-deploy.ts'

/** The naive deployment of a fresh commit over a running older one; 2c is set against it too. */
export const naiveSide =
  (name: string) =>
  async (bench: Bench): Promise<Side> => {
    const sources = await bench.sources()
    const site: NaiveSite = { name: `slipway-bench-${name}`, hostPort: await freePort() }
    return {
      async measure(round) {
        const text = `${name}-naive-${round}`
        await sources.publish(text)
        return {
          ms: await timed(() => naiveDeploy(bench.folder, sources.url, site, (body) => body.includes(text))),
        }
      },
      close: () => bench.engine.remove(site.name),
    }
  }

/** A new commit: from the request until the router serves the new page. */
export const figure: Figure<Bench> = {
  id: '2b',
  rows: [{ id: '2b', what: 'code change to serving', unit: 'ms', goal: { kind: 'ratio', value: 0.8 }, key: 'ms' }],
  floor: naiveSide('2b'),
  async ours(bench) {
    const ours = await bench.ours()
    const sources = await bench.sources()
    const environment = await ours.makeEnvironment('figure-2b')
    const id = await makeApplication(ours, environment, 'changing', sources.url)
    await deploy(ours, id)
    return {
      async measure(round) {
        const text = `2b-ours-${round}`
        const commit = await sources.publish(text)
        const ms = await timed(async () => {
          await ours.call('POST', `/application/${id}/deploy`, { git_commit_id: commit })
          await untilRouted(ours, id, (body) => body.includes(text))
        })
        await untilState(ours, id, ['DEPLOYED'])
        return { ms }
      },
    }
  },
}
