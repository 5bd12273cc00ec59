/** Promises about services with instances: their number, restarts, and the labels of their groups. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newRegistry } from './cases/container.ts'
import { applicationBody, type Json, newApplication, newPlace, startApi } from './support/api.ts'
import { until } from './support/until.ts'

const api = await startApi()
const { call } = api

const ok = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${JSON.stringify(answer.body)}`)
  return answer.body
}

const status = (path: string) => ok('GET', `${path}/status`)

const act = async (path: string, action: string, state: string) => {
  await ok('POST', `${path}/${action}`, action === 'deploy' ? {} : undefined)
  await until(async () => (await status(path)).deployment_state === state, { what: state })
}

const restart = async (path: string) => {
  const { status: code, body } = await call('POST', `${path}/restart-service`)
  return [code, body.code]
}

test('a service without instances is STOPPED and gets no requests; a stopped service cannot be restarted', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  const path = `/application/${id}`
  const targets = async () => {
    const routes = (await api.router.routes()).filter((route) => route.serviceId === id)
    return [...new Set(routes.flatMap((route) => route.targets.map(({ host, port }) => `${host}:${port}`)))]
  }
  await act(path, 'deploy', 'DEPLOYED')
  assert.equal((await targets()).length, 1)
  await ok('PUT', path, { min_running_instances: 0, max_running_instances: 0 })
  await ok('POST', `${path}/redeploy`)
  const isDone = async () => {
    const { deployment_state: done, running_state: shown } = await status(path)
    return done === 'DEPLOYED' && shown === 'STOPPED'
  }
  await until(isDone, { what: 'the deployment' })
  const { state, deployment_state, service_deployment_status } = await status(path)
  assert.deepEqual([state, deployment_state, service_deployment_status], ['STOPPED', 'DEPLOYED', 'UP_TO_DATE'])
  assert.deepEqual([await targets(), await api.runtime.instancesOf(id)], [[], []])
  await act(path, 'stop', 'STOPPED')
  assert.deepEqual(await restart(path), [409, 'stopped'])
  await ok('PUT', path, { min_running_instances: 2, max_running_instances: 2 })
  await act(path, 'deploy', 'DEPLOYED')
  assert.equal((await targets()).length, 2)
})

test('a changed group of labels or annotations makes its services out of date, and the next deployment applies it', async () => {
  const { environmentId } = await newPlace(api)
  const groups = {} as Record<'labels' | 'annotations', string>
  const pathOf = (field: string) => `/organization/${api.organizationId}/${field}Groups`
  const bodyOf = (field: string, value: string) => ({ name: field, [field]: [{ key: field, value }], scopes: [] })
  for (const field of ['labels', 'annotations'] as const)
    groups[field] = (await ok('POST', pathOf(field), bodyOf(field, 'old'))).id
  const used = { labels_groups: [{ id: groups.labels }], annotations_groups: [{ id: groups.annotations }] }
  const image = { registry_id: await newRegistry(api), image_name: 'fake/serve', tag: '1' }
  const bodies = {
    application: applicationBody('api'),
    container: image,
    database: { type: 'REDIS', version: '7', mode: 'CONTAINER' },
    job: { source: { image }, healthchecks: {}, schedule: { on_start: {} } },
  }
  for (const [kind, body] of Object.entries(bodies)) {
    const whole = { ...body, name: kind, ...used }
    const { id: serviceId } = await ok('POST', `/environment/${environmentId}/${kind}`, whole)
    const path = `/${kind}/${serviceId}`
    const labels = async () => {
      const rows = await api.database.query<{ labels: Json }>(
        `select workload -> 'labels' as labels from release where service_id = $1 order by created_at desc limit 1`,
        [serviceId],
      )
      return rows[0]!.labels
    }
    const freshness = async () => (await status(path)).service_deployment_status
    for (const field of ['labels', 'annotations'] as const)
      await ok('PUT', `${pathOf(field)}/${groups[field]}`, bodyOf(field, 'old'))
    await act(path, 'deploy', 'DEPLOYED')
    assert.deepEqual([await labels(), await freshness()], [{ labels: 'old', annotations: 'old' }, 'UP_TO_DATE'], kind)
    const wanted = { labels: 'old', annotations: 'old' }
    for (const field of ['labels', 'annotations'] as const) {
      await ok('PUT', `${pathOf(field)}/${groups[field]}`, bodyOf(field, 'new'))
      wanted[field] = 'new'
      assert.equal(await freshness(), 'OUT_OF_DATE', `${kind} ${field}`)
      await ok('POST', `${path}/deploy`, {})
      await until(async () => (await freshness()) === 'UP_TO_DATE', { what: 'the deployment' })
      assert.deepEqual(await labels(), wanted)
    }
  }
})
