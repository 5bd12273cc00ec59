/** Actions on a whole environment or on some of its services, and the states that are visible meanwhile. */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { containerBody, newRegistry } from '../../test/cases/container.ts'
import { type Json, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { until } from '../../test/support/until.ts'
import { DeploymentError } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'

const api = await startApi()
const { call } = api

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const newContainer = async (
  environmentId: string,
  image: string,
  more: Record<string, unknown> = {},
): Promise<Json> => {
  const body = containerBody(await newRegistry(api), {
    name: `container ${newId()}`,
    image_name: `fake/${image}`,
    ...more,
  })
  return send('POST', `/environment/${environmentId}/container`, body)
}

const stateOf = async (environmentId: string, id: string): Promise<string> => {
  const { applications, containers } = await send('GET', `/environment/${environmentId}/statuses`)
  return [...applications, ...containers].find((one: Json) => one.id === id)?.state ?? 'DELETED'
}

const reaches = (environmentId: string, id: string, state: string) =>
  until(async () => (await stateOf(environmentId, id)) === state, { timeoutMs: 10_000, what: `${state} of ${id}` })

const rests = (environmentId: string) =>
  until(async () => (await send('GET', `/environment/${environmentId}/status`)).deployment_request_id === null, {
    timeoutMs: 15_000,
    what: 'the end of all deployments',
  })

/** The last execution, as states by service. */
const lastStates = async (environmentId: string): Promise<Record<string, string>> => {
  const { results } = await send('GET', `/environment/${environmentId}/deploymentHistoryV2?pageSize=1`)
  const services = results[0].stages.flatMap((stage: Json) => stage.services)
  return Object.fromEntries(services.map((one: Json) => [one.identifier.service_id, one.status]))
}

test('the services of one stage go side by side, and the next stage waits for all of them', async () => {
  const { environmentId } = await newPlace(api)
  const early = [await newContainer(environmentId, 'never-ready'), await newContainer(environmentId, 'never-ready')]
  const late = await newApplication(api, environmentId)
  await send('POST', `/environment/${environmentId}/deploy`)
  for (const { id } of early) await reaches(environmentId, id, 'DEPLOYING')
  assert.deepEqual(await Promise.all(early.map(({ id }) => stateOf(environmentId, id))), ['DEPLOYING', 'DEPLOYING'])
  assert.equal(await stateOf(environmentId, late.id), 'DEPLOYMENT_QUEUED')
  await send('POST', `/environment/${environmentId}/cancelDeployment`)
  await rests(environmentId)
  assert.deepEqual(Object.values(await lastStates(environmentId)), ['CANCELED', 'CANCELED', 'CANCELED'])
  for (const { id } of early) assert.equal(await stateOf(environmentId, id), 'CANCELED')
  assert.equal(await stateOf(environmentId, late.id), 'READY')
})

test('the first failure stops what has not started: it is CANCELED in the history and shows what it was', async () => {
  const { environmentId } = await newPlace(api)
  const fine = await newApplication(api, environmentId)
  await send('POST', `/application/${fine.id}/deploy`)
  await reaches(environmentId, fine.id, 'DEPLOYED')
  const failing = await newContainer(environmentId, 'refuse')
  const { deployment_request_id: id } = await send('POST', `/environment/${environmentId}/redeploy`)
  await rests(environmentId)
  assert.deepEqual(await lastStates(environmentId), { [failing.id]: 'DEPLOYMENT_ERROR', [fine.id]: 'CANCELED' })
  assert.equal(await stateOf(environmentId, failing.id), 'DEPLOYMENT_ERROR')
  assert.equal(await stateOf(environmentId, fine.id), 'DEPLOYED')
  const followed = await send('GET', `/environment/deploymentStatus?deploymentRequestId=${id}`)
  assert.equal(followed.status, 'DEPLOYMENT_ERROR')
})

test('selected services are deployed at the versions named, restarted, stopped, uninstalled and deleted, and no others', async () => {
  const { environmentId } = await newPlace(api)
  const [web, other] = [await newApplication(api, environmentId), await newApplication(api, environmentId)]
  const store = await newContainer(environmentId, 'serve')
  const path = `/environment/${environmentId}/service`
  const commit = 'b'.repeat(40)
  const accepted = await send('POST', `${path}/deploy`, {
    applications: [{ application_id: web.id, git_commit_id: commit }],
    containers: [{ id: store.id, image_tag: '9.9' }],
    jobs: null,
  })
  assert.equal(accepted.status, 'QUEUED')
  await rests(environmentId)
  const history = (await send('GET', `/application/${web.id}/deploymentHistoryV2`)).results
  assert.equal(history[0].details.commit.git_commit_id, commit)
  const tagged = (await send('GET', `/container/${store.id}/deploymentHistoryV2`)).results
  assert.equal(tagged[0].details.image_tag ?? tagged[0].details.tag, '9.9')
  assert.equal(await stateOf(environmentId, other.id), 'READY')

  const both = { application_ids: [web.id], container_ids: [store.id] }
  for (const [verb, web2, store2] of [
    ['restart-service', 'RESTARTED', 'RESTARTED'],
    ['stop', 'STOPPED', 'STOPPED'],
    ['uninstall', 'READY', 'READY'],
    ['delete', 'DELETED', 'DELETED'],
  ]) {
    await send('POST', `${path}/${verb}`, both)
    await rests(environmentId)
    assert.deepEqual([await stateOf(environmentId, web.id), await stateOf(environmentId, store.id)], [web2, store2])
    assert.equal(await stateOf(environmentId, other.id), 'READY')
  }
  assert.equal((await call('POST', `${path}/stop`, {})).status, 400)
  const wrongKind = await call('POST', `${path}/stop`, { container_ids: [other.id] })
  assert.deepEqual([wrongKind.status, wrongKind.body.details[0].field], [400, '/container_ids/0'])
  const unreleased = await call('POST', `${path}/restart-service`, { application_ids: [other.id] })
  assert.deepEqual([unreleased.status, unreleased.body.code], [409, 'not_deployed'])
})

test('a redeploy of the environment stays at the versions that are deployed; a deploy takes the newest', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  const head = api.source.head
  const commitNow = async (): Promise<string> => {
    await rests(environmentId)
    return (await send('GET', `/application/${id}/deploymentHistoryV2`)).results[0].details.commit.git_commit_id
  }
  await send('POST', `/environment/${environmentId}/deploy`)
  assert.equal(await commitNow(), head)
  api.source.head = 'c'.repeat(40)
  await send('POST', `/environment/${environmentId}/redeploy`)
  assert.equal(await commitNow(), head)
  await send('POST', `/environment/${environmentId}/deploy`)
  assert.equal(await commitNow(), api.source.head)
  api.source.head = head
})

/** An environment whose queue is blocked: its first deployment never becomes ready. */
const newBusyPlace = async () => {
  const { environmentId } = await newPlace(api)
  const busy = await newContainer(environmentId, 'never-ready')
  await send('POST', `/container/${busy.id}/deploy`)
  await reaches(environmentId, busy.id, 'DEPLOYING')
  const { id } = await newApplication(api, environmentId)
  return { environmentId, busy: busy.id as string, id: id as string }
}

const cancelOne = (request: Json) => send('POST', `/deploymentQueue/${request.deployment_request_id}/cancelDeployment`)

test('a canceled request leaves a service showing the next one that waits for it, and CANCELED when none does', async () => {
  const { environmentId, id } = await newBusyPlace()
  const first = await send('POST', `/application/${id}/deploy`)
  const second = await send('POST', `/application/${id}/stop`)
  await cancelOne(first)
  assert.equal(await stateOf(environmentId, id), 'STOP_QUEUED')
  const { status_details: details, deployment_request_id: shown } = await send('GET', `/application/${id}/status`)
  assert.deepEqual([details.status, shown], ['QUEUED', second.deployment_request_id])
  await cancelOne(second)
  assert.equal(await stateOf(environmentId, id), 'CANCELED')
  await send('POST', `/environment/${environmentId}/cancelDeployment`)
  await rests(environmentId)
})

test('a cancel of what waits leaves what runs alone', async () => {
  const { environmentId, id, busy } = await newBusyPlace()
  await cancelOne(await send('POST', `/container/${busy}/stop`))
  assert.equal(await stateOf(environmentId, busy), 'DEPLOYING')
  const second = await send('POST', `/application/${id}/deploy`)
  const queue = `/environment/${environmentId}/deploymentQueue`
  const waiting = (await send('GET', queue)).results.map((one: Json) => one.identifier.deployment_request_id)
  assert.deepEqual(waiting, [second.deployment_request_id])
  await cancelOne(second)
  assert.deepEqual((await send('GET', queue)).results, [])
  assert.equal(await stateOf(environmentId, busy), 'DEPLOYING')
  await send('POST', `/environment/${environmentId}/cancelDeployment`)
  await reaches(environmentId, busy, 'CANCELED')
})

test('a stop that is canceled leaves the service running, and saying so', async (t) => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  await send('POST', `/application/${id}/deploy`)
  await rests(environmentId)
  const { mock: drain } = t.mock.method(api.router, 'drain', () => new Promise<never>(() => {}))
  await send('POST', `/application/${id}/stop`)
  await until(() => drain.callCount() > 0, { what: 'the stop to wait for requests under way' })
  await send('POST', `/environment/${environmentId}/cancelDeployment`)
  await rests(environmentId)
  const { deployment_state: state, running_state: running } = await send('GET', `/application/${id}/status`)
  assert.deepEqual([state, running], ['CANCELED', 'RUNNING'])
  assert.equal((await api.runtime.instancesOf(id)).length, 1)
})

/** A deployed application whose delete does not end before `end`. */
const newLeaving = async (t: TestContext) => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  await send('POST', `/application/${id}/deploy`)
  await rests(environmentId)
  const { promise: held, resolve: end } = Promise.withResolvers<void>()
  const { converge } = api.runtime
  const { mock } = t.mock.method(api.runtime, 'converge', (...args: Parameters<typeof converge>) =>
    held.then(() => converge(...args)),
  )
  await send('DELETE', `/application/${id}`)
  await until(() => mock.callCount() > 0, { what: 'the delete to begin' })
  return { environmentId, id: id as string, end }
}

const isGone = (path: string) =>
  until(async () => (await call('GET', path)).status === 404, { timeoutMs: 15_000, what: `the end of ${path}` })

const deploymentsOf = (environmentId: string) =>
  api.database.query<{ action: string; state: string }>(
    'select action, state from deployment where environment_id = $1 order by seq',
    [environmentId],
  )

test('nothing more is asked of a service that is being deleted, and a cancel does not take its deletion back', async (t) => {
  const { environmentId, id, end } = await newLeaving(t)
  const refused = await call('POST', `/application/${id}/deploy`)
  assert.deepEqual([refused.status, refused.body.code], [409, 'deletion_in_progress'])
  const canceled = await call('POST', `/environment/${environmentId}/cancelDeployment`)
  assert.deepEqual([canceled.status, canceled.body.code], [409, 'nothing_to_cancel'])
  assert.match(canceled.body.message, /deletion/)
  end()
  await isGone(`/application/${id}`)
})

test('a delete of what is being deleted joins it', async (t) => {
  const { environmentId, id, end } = await newLeaving(t)
  await send('DELETE', `/application/${id}`)
  await send('POST', `/environment/${environmentId}/service/delete`, { application_ids: [id] })
  await send('DELETE', `/environment/${environmentId}`)
  await send('DELETE', `/environment/${environmentId}`)
  await send('DELETE', `/application/${id}`)
  const canceled = await call('POST', `/environment/${environmentId}/cancelDeployment`)
  assert.deepEqual([canceled.status, canceled.body.code], [409, 'nothing_to_cancel'])
  const deletions = (await deploymentsOf(environmentId)).filter(({ action }) => action === 'DELETE')
  assert.equal(deletions.length, 2)
  end()
  await isGone(`/environment/${environmentId}`)
})

test('a delete ends what runs and waits for its service, and for its environment', async () => {
  const one = await newBusyPlace()
  await send('POST', `/application/${one.id}/deploy`)
  await send('DELETE', `/application/${one.id}`)
  assert.equal((await call('GET', `/application/${one.id}`)).status, 404, 'what was only queued is gone at once')
  await send('DELETE', `/container/${one.busy}`)
  await isGone(`/container/${one.busy}`)
  assert.deepEqual(await deploymentsOf(one.environmentId), [
    { action: 'DEPLOY', state: 'CANCELED' },
    { action: 'DEPLOY', state: 'CANCELED' },
    { action: 'DELETE', state: 'SUCCEEDED' },
  ])
  const all = await newBusyPlace()
  await send('POST', `/application/${all.id}/deploy`)
  await send('DELETE', `/environment/${all.environmentId}`)
  await isGone(`/environment/${all.environmentId}`)
})

test('a delete of an environment ends though something unknown is in it, and what is left goes with that', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  await send('POST', `/application/${id}/deploy`)
  await reaches(environmentId, id, 'DEPLOYED')
  const { removeEnvironment } = api.runtime
  const inUse = new DeploymentError('environment_in_use', 'The environment still has running instances.')
  Object.assign(api.runtime, { removeEnvironment: () => Promise.reject(inUse) })
  await send('DELETE', `/environment/${environmentId}`)
  await isGone(`/environment/${environmentId}`)
  const isLeft = async () => (await api.runtime.owned()).environments.includes(environmentId)
  assert.equal(await isLeft(), true)
  Object.assign(api.runtime, { removeEnvironment })
  await api.engine.stop()
  await api.engine.start()
  await until(async () => !(await isLeft()), { what: 'its network to be removed' })
})

test('a delete ends the part of its service in a deployment, which continues with the others', async () => {
  const { environmentId } = await newPlace(api)
  const { id: busy } = await newContainer(environmentId, 'never-ready')
  const { id: later } = await newApplication(api, environmentId)
  const { id: other } = await newApplication(api, environmentId)
  await send('POST', `/environment/${environmentId}/deploy`)
  await reaches(environmentId, busy, 'DEPLOYING')
  await send('DELETE', `/application/${later}`)
  await send('DELETE', `/container/${busy}`)
  await isGone(`/container/${busy}`)
  await isGone(`/application/${later}`)
  assert.equal(await stateOf(environmentId, other), 'DEPLOYED')
  assert.deepEqual((await deploymentsOf(environmentId))[0], { action: 'DEPLOY', state: 'SUCCEEDED' })
})

test('a deployment of which every service is deleted is canceled', async () => {
  const { environmentId } = await newPlace(api)
  const { id: first } = await newContainer(environmentId, 'never-ready')
  const { id: second } = await newContainer(environmentId, 'never-ready')
  await send('POST', `/environment/${environmentId}/deploy`)
  for (const id of [first, second]) await reaches(environmentId, id, 'DEPLOYING')
  for (const id of [first, second]) await send('DELETE', `/container/${id}`)
  for (const id of [first, second]) await isGone(`/container/${id}`)
  assert.deepEqual((await deploymentsOf(environmentId))[0], { action: 'DEPLOY', state: 'CANCELED' })
})
