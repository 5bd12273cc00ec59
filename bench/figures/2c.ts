import type { Bench } from '../bench.ts'
import type { Figure } from '../figure.ts'
import { timed } from '../measure.ts'
import { deploy, makeApplication, untilRouted, untilState } from '../ours-deploy.ts'
import { naiveSide } from './2b.ts'

/** Image events of the engine between two Unix seconds: each build or tag leaves one. */
export const imageEvents = async (bench: Bench, since: number, until: number): Promise<number> => {
  const filters = encodeURIComponent(JSON.stringify({ type: ['image', 'builder'], event: ['tag', 'build'] }))
  const path = `/events?since=${since.toFixed(6)}&until=${until.toFixed(6)}&filters=${filters}`
  return bench.engine.text(path).then((text) => text.split('\n').filter((line) => line !== '').length)
}

/** The same commit with one variable changed: a new version without a build, until the router serves it. */
export const figure: Figure<Bench> = {
  id: '2c',
  rows: [
    { id: '2c', what: 'environment-only change', unit: 'ms', goal: { kind: 'ratio', value: 0.25 }, key: 'ms' },
    {
      id: '2c-builds',
      what: 'images built or tagged for it',
      unit: 'images',
      goal: { kind: 'atMost', value: 0 },
      key: 'builds',
      floorKey: null,
    },
  ],
  floor: naiveSide('2c'),
  async ours(bench) {
    const ours = await bench.ours()
    const sources = await bench.sources()
    const environment = await ours.makeEnvironment('figure-2c')
    const id = await makeApplication(ours, environment, 'unchanged', sources.url)
    const commit = await sources.publish('2c-ours')
    await deploy(ours, id, commit)
    return {
      async measure(round) {
        await ours.call('POST', `/application/${id}/environmentVariable`, { key: 'ROUND', value: String(round) })
        const since = Date.now() / 1000
        const ms = await timed(async () => {
          await ours.call('POST', `/application/${id}/deploy`, { git_commit_id: commit })
          await untilRouted(ours, id, (body) => body === `round ${round}.\n`, '/cgi-bin/round')
        })
        await untilState(ours, id, ['DEPLOYED'])
        return { ms, builds: await imageEvents(bench, since, Date.now() / 1000) }
      },
    }
  },
}
