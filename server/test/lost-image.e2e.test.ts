/** The container and the image of an application are removed behind our back, on a real engine. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { page } from './support/docker/apps.ts'
import { containersOf, engine } from './support/docker/docker.ts'
import type { Json } from './support/slipway/slipway.ts'
import { createApplication, createPlace, deploy, hostOf, settle, visit } from './support/slipway/story.ts'
import { withSlipway } from './support/slipway/with-slipway.ts'
import { until } from './support/until.ts'

const { slipway, git } = await withSlipway()

/**
 * As `docker rm -f` and `docker rmi -f` do: until the image is gone, because the container may be restarted in between.
 */
const removeBoth = async (serviceId: string): Promise<void> => {
  const [container] = await containersOf(serviceId)
  const { Image } = await engine.call<{ Image: string }>('GET', `/containers/${container!.Id}/json`)
  await until(
    async () => {
      for (const { Id } of await containersOf(serviceId))
        await engine.call('DELETE', `/containers/${Id}`, { query: { force: true } }).catch(() => {})
      return engine.call('DELETE', `/images/${Image}`, { query: { force: true } }).then(
        () => true,
        () => false,
      )
    },
    { what: 'the image to be gone' },
  )
}

const statusOf = async (id: string): Promise<Json> => (await slipway.api('GET', `/application/${id}/status`)).body

const lasting = async (what: string, condition: () => Promise<unknown>, timeoutMs: number): Promise<number> => {
  const startedAtMs = performance.now()
  await until(condition, { timeoutMs, what })
  return (performance.now() - startedAtMs) / 1000
}

test('an application whose image and container were removed says so within 10 s and serves again without manual action', async (t) => {
  await git.createRepository('lost')
  const first = await git.commit('lost', page('hello again'), 'first')
  const place = await createPlace(slipway)
  const { id } = await createApplication(slipway, place, 'lost', git.url('lost'))
  await deploy(slipway, id)
  assert.equal(await settle(slipway, id), 'DEPLOYED')
  // The running version is built again, not a later commit.
  await git.commit('lost', page('a later commit'), 'second')
  const isBack = async (hear: (status: Json) => void) => {
    const status = await statusOf(id)
    hear(status)
    return status.state === 'RUNNING' && (await visit(slipway, hostOf(place, 'lost'))).text
  }
  for (const how of ['while the server ran', 'while the server did not run']) {
    if (how === 'while the server did not run') await slipway.kill('SIGTERM')
    await removeBoth(id)
    if (how === 'while the server did not run') await slipway.start()
    const said = new Set<string>()
    const hear = ({ error }: Json): void => {
      if (error !== undefined) said.add(error.message)
    }
    const told = await lasting(
      'the status',
      async () => {
        const status = await statusOf(id)
        hear(status)
        return status.state !== 'RUNNING' && status.error !== undefined
      },
      10_000,
    )
    assert.ok(told <= 10, `${told} s`)
    const back = await lasting('it to serve', () => isBack(hear), 60_000)
    assert.match([...said].join('\n'), /image of the running version was removed/)
    t.diagnostic(
      `${how}: told after ${told.toFixed(1)} s, serves again ${back.toFixed(1)} s later: ${[...said].join(' ')}`,
    )
    assert.equal((await visit(slipway, hostOf(place, 'lost'))).text, 'hello again')
  }
  const { results } = (await slipway.api('GET', `/application/${id}/deploymentHistoryV2`)).body
  assert.equal(results.length, 3)
  for (const { auditing_data: by } of results.slice(0, 2))
    assert.deepEqual(
      [by.origin, by.triggered_by],
      ['QOVERY_INTERNAL', 'Slipway: the image of the running version was removed'],
    )
  for (const { details } of results) assert.equal(details.commit.git_commit_id, first)
  await slipway.api('DELETE', `/environment/${place.environmentId}`)
})
