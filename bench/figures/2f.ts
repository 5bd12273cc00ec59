import type { Bench } from '../bench.ts'
import type { Figure } from '../figure.ts'
import { timed } from '../measure.ts'
import { makeApplication, untilState } from '../ours-deploy.ts'

/** Cancel of a deployment that waits for a program which never becomes ready. */
export const figure: Figure<Bench> = {
  id: '2f',
  warmups: 0,
  rows: [
    {
      id: '2f',
      what: 'cancel seen by the caller',
      unit: 'ms',
      goal: { kind: 'atMost', value: 300 },
      key: 'seen',
      floorKey: null,
    },
    {
      id: '2f-end',
      what: 'cancel to CANCELED',
      unit: 'ms',
      goal: { kind: 'atMost', value: 15_000 },
      key: 'ended',
      floorKey: null,
    },
  ],
  floor: null,
  async ours(bench) {
    const ours = await bench.ours()
    const { url } = await bench.sources()
    const environment = await ours.makeEnvironment('figure-2f')
    const never = { dockerfile_path: 'Dockerfile.never' }
    const id = await makeApplication(ours, environment, 'never-ready', url, never)
    return {
      async measure() {
        await ours.call('POST', `/application/${id}/deploy`, {})
        await untilState(ours, id, ['DEPLOYING'])
        let seen = 0
        const ended = await timed(async () => {
          seen = await timed(async () => {
            await ours.call('POST', `/environment/${environment}/cancelDeployment`)
            await untilState(ours, id, ['CANCELING', 'CANCELED'])
          })
          await untilState(ours, id, ['CANCELED'])
        })
        return { seen, ended }
      },
    }
  },
}
