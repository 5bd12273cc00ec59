import type { Bench } from '../bench.ts'
import type { Figure } from '../figure.ts'
import { rawDeploy } from '../floors/raw.ts'
import { timed } from '../measure.ts'
import { deploy, makeApplication, untilState } from '../ours-deploy.ts'

/** From the request to stop until STOPPED; the floor stops a container that has an init process. */
export const figure: Figure<Bench> = {
  id: '2d',
  rows: [{ id: '2d', what: 'stop', unit: 'ms', goal: { kind: 'ratio', value: 1.2 }, key: 'ms' }],
  async floor(bench) {
    const { image } = await bench.sources()
    return {
      async measure() {
        const id = await rawDeploy(bench.engine, image)
        const ms = await timed(() => bench.engine.stop(id))
        await bench.engine.remove(id)
        return { ms }
      },
    }
  },
  async ours(bench) {
    const ours = await bench.ours()
    const { url } = await bench.sources()
    const id = await makeApplication(ours, await ours.makeEnvironment('figure-2d'), 'stopping', url)
    return {
      async measure() {
        await deploy(ours, id)
        const ms = await timed(async () => {
          await ours.call('POST', `/application/${id}/stop`)
          await untilState(ours, id, ['STOPPED'])
        })
        return { ms }
      },
    }
  },
}
