import type { Bench } from '../bench.ts'
import type { Figure } from '../figure.ts'
import { rawDeploy } from '../floors/raw.ts'
import { timed } from '../measure.ts'
import { deploy, discard, makeApplication, untilRouted } from '../ours-deploy.ts'

/** The floor's value of the same round. */
let lastFloor: number | undefined

/** A new application whose image is known: from the request until DEPLOYED and a 200 through the router. */
export const figure: Figure<Bench> = {
  id: '2a',
  rows: [
    { id: '2a', what: 'request to DEPLOYED, image known', unit: 'ms', goal: { kind: 'ratio', value: 1.15 }, key: 'ms' },
    {
      id: '2a-overhead',
      what: 'own overhead of it (less the floor)',
      unit: 'ms',
      goal: { kind: 'atMost', value: 100 },
      key: 'overhead',
      floorKey: null,
    },
  ],
  async floor(bench) {
    const { image } = await bench.sources()
    return {
      async measure() {
        let id = ''
        const ms = await timed(async () => {
          id = await rawDeploy(bench.engine, image)
        })
        await bench.engine.remove(id)
        lastFloor = ms
        return { ms }
      },
    }
  },
  async ours(bench) {
    const ours = await bench.ours()
    const { url } = await bench.sources()
    const environment = await ours.makeEnvironment('figure-2a')
    return {
      async measure(round) {
        const id = await makeApplication(ours, environment, `known-${round}`, url)
        const ms = await timed(async () => {
          await deploy(ours, id)
          await untilRouted(ours, id)
        })
        await discard(ours, id)
        return { ms, ...(lastFloor === undefined ? {} : { overhead: ms - lastFloor }) }
      },
    }
  },
}
