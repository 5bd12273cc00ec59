// Runs alone: it measures, or takes what the machine has.
// Runs each night: docs/guides/develop.md says what every run has instead.
/** A storm over a whole Slipway on a real engine. STORM_SEED repeats one. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { deaf, page } from './support/docker/apps.ts'
import { busyboxImage } from './support/docker/busybox-image.ts'
import { containersOf, engine, networksOf, volumesOf } from './support/docker/docker.ts'
import { rage, type StormPlan, type StormService, stormSeed } from './support/slipway/storm.ts'
import { assertHistories, assertTrue, type World } from './support/slipway/storm-calm.ts'
import { createPlace, hostOf, type Place, visit } from './support/slipway/story.ts'
import { withSlipway } from './support/slipway/with-slipway.ts'
import { until } from './support/until.ts'

const { slipway, git } = await withSlipway()

const command = (line: string): Record<string, string> => ({
  Dockerfile: `FROM ${busyboxImage}\nCMD ["sh", "-c", "${line}"]\n`,
})

const repository = async (name: string, files: Record<string, string>): Promise<string> => {
  await git.createRepository(name)
  await git.commit(name, files, 'first')
  return git.url(name)
}

const probe = { initial_delay_seconds: 0, period_seconds: 1, timeout_seconds: 1, success_threshold: 1 }
const impatient = {
  healthchecks: { readiness_probe: { type: { http: { path: '/', port: 8080 } }, ...probe, failure_threshold: 3 } },
}

const application = (url: string, more: Record<string, unknown> = {}): StormService => ({
  kind: 'application',
  body: {
    git_repository: { url, branch: 'main' },
    build_mode: 'DOCKER',
    dockerfile_path: 'Dockerfile',
    cpu: 100,
    memory: 64,
    ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
    ...more,
  },
})

const job = (url: string): StormService => ({
  kind: 'job',
  body: {
    source: { docker: { git_repository: { url, branch: 'main' }, dockerfile_path: 'Dockerfile' } },
    schedule: { on_start: {}, on_stop: { entrypoint: 'true' } },
    healthchecks: {},
  },
})

/**
 * Five services: one that serves, one with a volume, one that is slow to start, one that never gets ready, and a job.
 */
const services = async (): Promise<Record<string, StormService>> => ({
  page: application(await repository('page', page('here'))),
  stored: application(await repository('stored', page('kept')), {
    storage: [{ type: 'FAST_SSD', size: 4, mount_point: '/data' }],
  }),
  slow: application(
    await repository(
      'slow',
      command('sleep 1.5; mkdir /www; echo late > /www/index.html; exec httpd -f -p 8080 -h /www'),
    ),
  ),
  deaf: application(await repository('deaf', deaf('nobody listens')), impatient),
  once: job(await repository('once', command('sleep 0.7; echo done'))),
})

const volumesOfService = async (id: string): Promise<number> => {
  const query = { filters: JSON.stringify({ label: [`slipway.service=${id}`] }) }
  return (await engine.call<{ Volumes: unknown[] | null }>('GET', '/volumes', { query })).Volumes?.length ?? 0
}

const worldOf = (places: readonly Place[]): World => ({
  async find(environmentId, serviceId, name) {
    const place = places.find((one) => one.environmentId === environmentId)!
    return {
      instances: (await containersOf(serviceId)).length,
      volumes: await volumesOfService(serviceId),
      answer: name === '' ? 0 : (await visit(slipway, hostOf(place, name))).status,
    }
  },
})

/** Deletes an environment and checks that nothing of it is left. */
const removeAll = async ({ environmentId }: Place): Promise<void> => {
  assert.equal((await slipway.api('DELETE', `/environment/${environmentId}`)).status, 204)
  await until(async () => (await slipway.api('GET', `/environment/${environmentId}`)).status === 404, {
    timeoutMs: 60_000,
    what: 'the end of the environment',
  })
  assert.deepEqual(await volumesOf(environmentId), [])
  assert.deepEqual(await networksOf(environmentId), [])
}

const operations = Number(process.env.SLIPWAY_TEST_STORM ?? 100)

test(`${operations} deployments, cancels and deletes at random moments over 20 services end in time and in order, and leave what the statuses say`, async (t) => {
  const seed = stormSeed()
  t.diagnostic(`STORM_SEED=${seed}`)
  const places = [await createPlace(slipway), await createPlace(slipway)]
  places.push(await createPlace(slipway), await createPlace(slipway))
  const plan: StormPlan = {
    send: (method, path, body) => slipway.api(method, path, body),
    environments: places.map((place) => place.environmentId),
    services: await services(),
    operations,
    maxPauseMs: 500,
    seed,
  }
  const storm = await rage(plan, 90_000)
  const history = await assertHistories(plan, storm, { deploymentMs: 45_000, cancelMs: 15_000 })
  t.diagnostic(`${history.length} deployments; accepted: ${JSON.stringify(storm.counts)}`)
  const world = worldOf(places)
  // A running create is never interrupted by a cancel: the next sweep removes a volume that is made late.
  await assertTrue(plan, storm, world, 75_000)
  await Promise.all(places.map(removeAll))
  for (const [environmentId, ids] of storm.made)
    for (const id of ids)
      assert.deepEqual(await world.find(environmentId, id, ''), { instances: 0, volumes: 0, answer: 0 })
})
