import type { Bench } from '../bench.ts'
import type { Figure } from '../figure.ts'
import { rawDeploy } from '../floors/raw.ts'
import { timed } from '../measure.ts'
import { makeApplication, untilAll, untilRouted } from '../ours-deploy.ts'

const count = 20

/** Twenty independent services of one environment, image known; the floor starts twenty containers at once. */
export const figure: Figure<Bench> = {
  id: '2e',
  warmups: 0,
  rows: [
    { id: '2e', what: `${count} independent services`, unit: 'ms', goal: { kind: 'ratio', value: 1.2 }, key: 'ms' },
  ],
  async floor(bench) {
    const { image } = await bench.sources()
    return {
      async measure() {
        let ids: string[] = []
        const ms = await timed(async () => {
          ids = await Promise.all(Array.from({ length: count }, () => rawDeploy(bench.engine, image)))
        })
        await Promise.all(ids.map((id) => bench.engine.remove(id)))
        return { ms }
      },
    }
  },
  async ours(bench) {
    const ours = await bench.ours()
    const { url } = await bench.sources()
    const environment = await ours.makeEnvironment('figure-2e')
    const ids = await Promise.all(
      Array.from({ length: count }, (_, n) => makeApplication(ours, environment, `one-of-many-${n}`, url)),
    )
    return {
      async measure() {
        const ms = await timed(async () => {
          await ours.call('POST', `/environment/${environment}/deploy`)
          await untilAll(ours, environment, 'DEPLOYED')
          await Promise.all(ids.map((id) => untilRouted(ours, id)))
        })
        await ours.call('POST', `/environment/${environment}/stop`)
        await untilAll(ours, environment, 'STOPPED')
        return { ms }
      },
    }
  },
}
