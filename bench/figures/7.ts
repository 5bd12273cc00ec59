import type { Bench } from '../bench.ts'
import type { Figure, RowSpec } from '../figure.ts'
import type { LoadTarget } from '../load.ts'
import { costOf } from '../load-client.ts'
import { median } from '../measure.ts'
import { seedManyServices } from '../seed.ts'
import type { Subject } from '../subject.ts'

const requests = 4000
const few = 100
const perEnvironment = 10

/** What is read: in an environment of ten services, whatever stands around it. */
const targetsOf = (subject: Subject, environmentId: string, applicationId: string): Record<string, LoadTarget> => ({
  get: subject.target('GET', `/application/${applicationId}`),
  status: subject.target('GET', `/environment/${environmentId}/statuses`),
  list: subject.target('GET', `/environment/${environmentId}/application`),
  queue: subject.target('GET', `/environment/${environmentId}/deploymentQueue`),
})

const row = (key: string, what: string): RowSpec => ({
  id: key === 'get' ? '7' : `7-${key}`,
  what: `${what}, 100,000 services / 100`,
  unit: 'x CPU',
  goal: { kind: 'atMost', value: 1.5 },
  key,
})

/** CPU per request with 100,000 services in the tables, over that with 100. */
export const figure: Figure<Bench> = {
  id: '7',
  rows: [row('get', 'GET one'), row('status', 'statuses'), row('list', 'list'), row('queue', 'queue')],
  floor: null,
  async ours(bench) {
    const ours = await bench.ours()
    const load = await bench.load()
    const { database, templates } = ours
    const [environmentId] = await seedManyServices(database, templates, few / perEnvironment, perEnvironment)
    const [application] = await database.query<{ id: string }>('select id from node where parent_id = $1 limit 1', [
      environmentId,
    ])
    const targets = Object.entries(targetsOf(ours, environmentId!, application!.id))
    const measure = async (): Promise<Record<string, number>> => {
      const costs: Record<string, number> = {}
      for (const [key, target] of targets) costs[key] = (await costOf(load, ours.pids, target, requests)).cpuMicros
      return costs
    }
    await measure()
    const before = [await measure(), await measure(), await measure()]
    await seedManyServices(database, templates, 1000, 100)
    return {
      async measure() {
        const costs = await measure()
        return Object.fromEntries(
          Object.entries(costs).map(([key, cost]) => [key, cost / median(before.map((each) => each[key]!))]),
        )
      },
    }
  },
}
