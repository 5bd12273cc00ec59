/** A longer storm over the API with the fake runtime: seconds of an engine are moments there. */
import { test } from 'node:test'
import { newRegistry } from './cases/container.ts'
import { newPlace, startApi } from './support/api.ts'
import { howMany } from './support/nightly.ts'
import { rage, type StormPlan, type StormService, stormSeed } from './support/slipway/storm.ts'
import { assertHistories, assertTrue, type World } from './support/slipway/storm-calm.ts'

const api = await startApi()

const container = (registryId: string, image: string, more: Record<string, unknown> = {}): StormService => ({
  kind: 'container',
  body: {
    registry_id: registryId,
    image_name: `fake/${image}`,
    tag: '1',
    ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
    healthchecks: {},
    ...more,
  },
})

/** Not ready for 200 ms; then it fails. */
const impatient = {
  healthchecks: {
    readiness_probe: {
      type: { tcp: { port: 8080 } },
      initial_delay_seconds: 0,
      period_seconds: 1,
      timeout_seconds: 1,
      success_threshold: 1,
      failure_threshold: 1,
    },
  },
}

const world: World = {
  async find(_, serviceId) {
    const owned = await api.runtime.owned()
    const routes = (await api.router.routes()).filter((route) => route.targets.length > 0)
    const instances = await api.runtime.instancesOf(serviceId)
    const ports = instances.flatMap(({ endpoints }) => Object.values(endpoints).map(({ port }) => port))
    const isRouted = routes.some(({ targets }) => targets.some(({ port }) => ports.includes(port)))
    return {
      instances: instances.length,
      volumes: owned.volumes.filter((one) => one.serviceId === serviceId).length,
      answer: isRouted ? 200 : 503,
    }
  },
}

const requests = howMany(150, 500)

test(`${requests} requests at random moments over 20 services end in order, and leave what the statuses say`, async (t) => {
  const seed = stormSeed()
  t.diagnostic(`STORM_SEED=${seed}`)
  const environments: string[] = []
  for (let made = 0; made < 4; made += 1) environments.push((await newPlace(api)).environmentId)
  const registryId = await newRegistry(api)
  const plan: StormPlan = {
    send: (method, path, body) => api.call(method, path, body),
    environments,
    services: {
      page: container(registryId, 'serve'),
      stored: container(registryId, 'serve', { storage: [{ type: 'FAST_SSD', size: 4, mount_point: '/data' }] }),
      slow: { ...container(registryId, 'slow'), body: { ...container(registryId, 'slow').body, tag: '40' } },
      deaf: container(registryId, 'never-ready', impatient),
      once: {
        kind: 'job',
        body: {
          source: { image: { registry_id: registryId, image_name: 'fake/task', tag: '1' } },
          schedule: { on_start: {} },
          healthchecks: {},
        },
      },
    },
    operations: requests,
    maxPauseMs: 10,
    seed,
  }
  const storm = await rage(plan, 30_000)
  const history = await assertHistories(plan, storm, { deploymentMs: 10_000, cancelMs: 5000 })
  t.diagnostic(`${history.length} deployments; accepted: ${JSON.stringify(storm.counts)}`)
  await assertTrue(plan, storm, world, 5000)
})
