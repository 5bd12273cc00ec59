import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'

const api = await startApi()

test('a dry run lists what a clean-up removes, with the reason and the bytes', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  await api.call('POST', `/application/${id}/deploy`)
  await until(async () => (await api.call('GET', `/application/${id}/status`)).body.last_deployment_date != null, {
    what: 'the deployment',
    timeoutMs: 20_000,
  })
  const releases = async (): Promise<string[]> =>
    (await api.call('GET', `/application/${id}/release`)).body.results.map((release: { id: string }) => release.id)
  await until(async () => (await releases()).length === 1, { what: 'its release', timeoutMs: 20_000 })
  // Releases that never ran; of these, the newest is kept.
  await api.database.query(
    `insert into release (id, organization_id, service_id, deployment_id, image, workload, sealed_env, hash, cluster_id)
     select gen_random_uuid(), organization_id, service_id, gen_random_uuid(), image, workload, sealed_env, hash, cluster_id
     from release, generate_series(1, 4) where service_id = $1`,
    [id],
  )
  const all = await releases()
  const cleanUp = (query = '') => api.call('POST', `/organization/${api.organizationId}/cleanUp${query}`)
  const { status, body: dry } = await cleanUp('?dry_run=true')
  assert.deepEqual([status, dry.dry_run, dry.count], [200, true, 3])
  for (const item of dry.results) {
    assert.deepEqual([item.kind, item.service_id, item.environment_id], ['RELEASE', id, environmentId])
    assert.ok(item.bytes > 0 && item.reason.length > 0)
  }
  assert.deepEqual(await releases(), all, 'nothing was removed')
  const { body: done } = await cleanUp()
  assert.deepEqual([done.dry_run, done.count, done.bytes], [false, 3, dry.bytes])
  const gone = new Set(dry.results.map(({ name }: { name: string }) => name))
  assert.deepEqual(
    await releases(),
    all.filter((each) => !gone.has(each)),
  )
  assert.equal((await cleanUp('?dry_run=true')).body.count, 0)
})
