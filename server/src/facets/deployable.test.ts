import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { headCommit, type Json, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { until } from '../../test/support/until.ts'
import { DeploymentError } from '../lib/errors.ts'

const api = await startApi()
const { call } = api

const stateOf = async (id: string, headers: Record<string, string> = {}): Promise<string> =>
  (await call('GET', `/application/${id}/status`, undefined, headers)).body.state

const reaches = (id: string, state: string) =>
  until(async () => (await stateOf(id)) === state, { timeoutMs: 10_000, what: `${state} of ${id}` })

const newDeployed = async () => {
  const place = await newPlace(api)
  const { id } = await newApplication(api, place.environmentId)
  await call('POST', `/application/${id}/deploy`)
  await reaches(id, 'RUNNING')
  return { ...place, id, path: `/application/${id}` }
}

test('a deploy answers the queued state at once, in the form of the specification and of the public API', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  assert.equal(await stateOf(id), 'READY')
  const { status, body } = await call('POST', `/application/${id}/deploy`, { git_commit_id: headCommit })
  assert.equal(status, 202)
  assert.deepEqual(
    [body.id, body.application_id, body.status, body.state, body.service_deployment_status],
    [id, id, 'QUEUED', 'DEPLOYMENT_QUEUED', 'NEVER_DEPLOYED'],
  )
  assert.equal(body.execution_id, `${environmentId}-1`)
  assert.match(body.created_at, /Z$/)
  await reaches(id, 'RUNNING')
  // The service is up a moment before its deployment is over.
  const follow = async () =>
    (await call('GET', `/environment/deploymentStatus?deploymentRequestId=${body.deployment_request_id}`)).body
  await until(async () => (await follow()).status === 'DEPLOYED', { what: 'the end of the deployment' })
  assert.equal((await follow()).environment_id, environmentId)
})

test('an action takes no body, an empty one, null and {}', async () => {
  const { path, id } = await newDeployed()
  for (const body of [undefined, '', 'null', '{}', '{"git_commit_id":null}', '{"git_commit_id":""}']) {
    const answer = await call('POST', `${path}/deploy`, body)
    assert.equal(answer.status, 202, JSON.stringify(answer.body))
    await reaches(id, 'RUNNING')
  }
  assert.equal((await call('POST', `${path}/deploy`, { git_commit_id: 'main; rm -rf /' })).status, 400)
})

test('the status speaks the running vocabulary, and the exact states to typed clients', async () => {
  const { id, path } = await newDeployed()
  const answer = await call('GET', `${path}/status`)
  assert.deepEqual(
    [answer.body.state, answer.body.deployment_state, answer.body.running_state],
    ['RUNNING', 'DEPLOYED', 'RUNNING'],
  )
  assert.equal(answer.headers.get('vary'), 'User-Agent, X-State-Vocabulary')
  for (const agent of ['CLI 1.0', 'Terraform provider 0.50', 'OpenAPI-Generator/1.0.4/go'])
    assert.equal(await stateOf(id, { 'user-agent': agent }), 'DEPLOYED')
  assert.equal(await stateOf(id, { 'x-state-vocabulary': 'deployment' }), 'DEPLOYED')
  assert.equal(await stateOf(id, { 'user-agent': 'python-requests/2' }), 'RUNNING')
})

test('a failed deployment is ERROR with its exact state beside it, and its log says why', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  api.source.image = new DeploymentError('build_failed', 'The build failed.', { lines: ['no such file'] })
  await call('POST', `/application/${id}/deploy`)
  await reaches(id, 'ERROR')
  api.source.image = 'fake/serve'
  const { body } = await call('GET', `/application/${id}/status`)
  assert.equal(body.deployment_state, 'BUILD_ERROR')
  const lines = (await call('GET', `/environment/${environmentId}/logs?version=${environmentId}-1`)).body
  assert.ok(lines.some((line: Json) => line.error !== null && /build failed/i.test(line.error.user_log_message)))
  assert.deepEqual((await call('GET', `/environment/${environmentId}/logs?version=nonsense`)).body, [])
  const { results } = (await call('GET', `/application/${id}/deploymentHistory`)).body
  assert.equal(results[0].status, 'FAILED')
})

test('a change of configuration makes it OUT_OF_DATE, a redeploy UP_TO_DATE', async () => {
  const { id, path } = await newDeployed()
  const status = async () => (await call('GET', `${path}/status`)).body.service_deployment_status
  assert.equal(await status(), 'UP_TO_DATE')
  await call('PUT', path, { memory: 128 })
  assert.equal(await status(), 'OUT_OF_DATE')
  await call('POST', `${path}/redeploy`)
  await reaches(id, 'RUNNING')
  assert.equal(await status(), 'UP_TO_DATE')
})

test('restart and stop end in their states; what was never deployed cannot be restarted', async () => {
  const { id, path, environmentId } = await newDeployed()
  assert.equal((await call('POST', `${path}/restart-service`)).body.state, 'RESTART_QUEUED')
  await reaches(id, 'RUNNING')
  assert.equal((await call('POST', `${path}/stop`)).body.state, 'STOP_QUEUED')
  await reaches(id, 'STOPPED')
  const fresh = await newApplication(api, environmentId)
  const refused = await call('POST', `/application/${fresh.id}/restart-service`)
  assert.deepEqual([refused.status, refused.body.code], [409, 'not_deployed'])
})

test('a delete is accepted at once and ends in 404; a project in use is not deleted before', async () => {
  const { id, path, projectId, environmentId } = await newDeployed()
  assert.equal((await call('DELETE', `/project/${projectId}`)).body.code, 'project_in_use')
  assert.equal((await call('DELETE', path)).status, 204)
  await until(async () => (await call('GET', `${path}/status`)).status === 404, { what: 'the end' })
  assert.equal((await api.runtime.instancesOf(id)).length, 0)
  assert.equal((await call('DELETE', `/environment/${environmentId}`)).status, 204)
  await until(async () => (await call('GET', `/environment/${environmentId}`)).status === 404, { what: 'the end' })
  assert.equal((await call('DELETE', `/project/${projectId}`)).status, 204)
})

test('an environment is deployed, stopped and shown as a whole', async () => {
  const { environmentId } = await newPlace(api)
  const [a, b] = [await newApplication(api, environmentId), await newApplication(api, environmentId)]
  const path = `/environment/${environmentId}`
  const { status, body } = await call('POST', `${path}/deploy`)
  assert.deepEqual(
    [status, body.id, body.state, body.status_details.action],
    [202, environmentId, 'DEPLOYMENT_QUEUED', 'DEPLOY'],
  )
  for (const { id } of [a, b]) await reaches(id, 'RUNNING')
  await until(async () => (await call('GET', `${path}/status`)).body.last_deployment_state === 'DEPLOYED', {
    what: 'the end',
  })
  const { stages } = (await call('GET', `${path}/statusesWithStages`)).body
  assert.deepEqual(
    stages.map((one: Json) => [one.stage.status, one.applications.length]),
    [
      ['SKIPPED', 0],
      ['SKIPPED', 0],
      ['SKIPPED', 0],
      ['DONE', 2],
    ],
  )
  const history = (await call('GET', `${path}/deploymentHistoryV2?pageSize=1`)).body
  assert.deepEqual(
    [history.page, history.page_size, history.results[0].identifier.execution_id],
    [1, 1, `${environmentId}-1`],
  )
  assert.match(history.results[0].total_duration, /^PT\d+S$/)
  assert.equal((await call('GET', `${path}/deploymentHistoryV2?pageSize=101`)).status, 400)
  assert.deepEqual((await call('GET', `${path}/deploymentHistoryV2?page=2&pageSize=1`)).body.results, [])
  await call('POST', `${path}/service/stop`, { application_ids: [a.id] })
  await reaches(a.id, 'STOPPED')
  assert.equal(await stateOf(b.id), 'RUNNING')
  const elsewhere = await newDeployed()
  const wrong = await call('POST', `${path}/service/stop`, { application_ids: [elsewhere.id] })
  assert.deepEqual([wrong.status, wrong.body.details[0].field], [400, '/application_ids/0'])
})

test('the queue has what waits, the history what runs, and a canceled deployment ends CANCELED', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  const ofService = async (): Promise<Json[]> => (await call('GET', `/service/${id}/deploymentQueue`)).body.results
  const idsIn = async (path: string): Promise<string[]> =>
    (await call('GET', path)).body.results.map(({ identifier }: Json) => identifier.deployment_request_id)
  const [queue, history] = ['deploymentQueue', 'deploymentHistoryV2'].map(
    (name) => `/environment/${environmentId}/${name}`,
  )
  api.source.image = 'fake/never-ready'
  const first = (await call('POST', `/application/${id}/deploy`)).body.deployment_request_id
  await reaches(id, 'DEPLOYING')
  assert.deepEqual([await ofService(), await idsIn(queue!), await idsIn(history!)], [[], [], [first]])
  const second = (await call('POST', `/application/${id}/stop`)).body.deployment_request_id
  const [waiting, ...others] = await ofService()
  assert.deepEqual([waiting.identifier.deployment_request_id, others], [second, []])
  assert.deepEqual([waiting.status_details.action, waiting.status_details.status], ['STOP', 'QUEUED'])
  assert.deepEqual([await idsIn(queue!), await idsIn(history!)], [[second], [first]])
  assert.equal((await call('GET', `/application/${id}/deploymentHistoryV2`)).body.results.length, 1)
  await call('POST', `/deploymentQueue/${second}/cancelDeployment`)
  assert.deepEqual([await idsIn(queue!), await idsIn(history!)], [[], [second, first]])
  assert.equal((await call('POST', `/environment/${environmentId}/cancelDeployment`, {})).status, 202)
  await reaches(id, 'CANCELED')
  api.source.image = 'fake/serve'
  const again = await call('POST', `/environment/${environmentId}/cancelDeployment`)
  assert.deepEqual([again.status, again.body.code], [409, 'nothing_to_cancel'])
})

test('a cancel beside a deploy cancels it or finds nothing to cancel, and what was accepted ends', async () => {
  for (let round = 0; round < 8; round += 1) {
    const { environmentId } = await newPlace(api)
    const { id } = await newApplication(api, environmentId)
    const path = `/environment/${environmentId}`
    const [deploy, ...cancels] = await Promise.all([
      call('POST', `${path}/deploy`, {}),
      call('POST', `${path}/cancelDeployment`, {}),
      call('POST', `${path}/cancelDeployment`, { force_cancel: true }),
    ])
    assert.equal(deploy.status, 202)
    for (const { status } of cancels) assert.ok(status === 202 || status === 409, String(status))
    const isEnded = async () =>
      ['CANCELED', 'RUNNING'].includes((await call('GET', `/application/${id}/status`)).body.state)
    await until(isEnded, { what: 'the end' })
  }
})

test('a log that the engine does not give is a 503 within 5 s, not a wait and not a 500', async (t) => {
  const { path } = await newDeployed()
  const away = new DeploymentError('engine_unavailable', 'The engine does not answer.', { next: 'wait' })
  for (const next of [() => Promise.reject(away), () => new Promise<never>(() => {})]) {
    const mocked = t.mock.method(api.runtime, 'logs', () => ({ [Symbol.asyncIterator]: () => ({ next }) }))
    const started = performance.now()
    const answer = await call('GET', `${path}/log`)
    assert.deepEqual([answer.status, answer.body.code], [503, 'engine_unavailable'])
    assert.notEqual(answer.headers.get('retry-after'), null)
    assert.ok(performance.now() - started < 5000)
    mocked.mock.restore()
  }
})

test('the log is read oldest first, cut to its tail, and streamed as it comes', async () => {
  const { id, path } = await newDeployed()
  for (let n = 1; n <= 5; n += 1) api.runtime.append(id, `line ${n}`)
  const { results } = (await call('GET', `${path}/log?tail=3`)).body
  assert.deepEqual(
    results.map((line: Json) => line.message),
    ['line 3', 'line 4', 'line 5'],
  )
  assert.equal(results[0].version, headCommit)
  const ending = new AbortController()
  const stream = await fetch(`${api.url}${path}/log/stream?tail=1`, {
    headers: { authorization: `Token ${api.token}` },
    signal: ending.signal,
  })
  assert.equal(stream.headers.get('content-type'), 'text/event-stream')
  let text = ''
  const reading = (async () => {
    for await (const chunk of stream.body!) text += Buffer.from(chunk).toString()
  })().catch(() => {})
  await until(() => text.includes('line 5'), { what: 'the last line' })
  api.runtime.append(id, 'live')
  await until(() => text.includes('"message":"live"'), { what: 'the live line' })
  assert.ok(!text.includes('line 4'))
  ending.abort()
  await reading
})

test('the websocket of the public API follows a service, with the token as a header or a subprotocol', async () => {
  const { id } = await newDeployed()
  const url = `${api.url.replace('http', 'ws')}/service/logs?service=${id}&tail=0`
  const open = async (protocols: string[], headers: Record<string, string> = {}): Promise<string> => {
    const socket = new WebSocket(url, protocols, { headers })
    const message = once(socket, 'message')
    await once(socket, 'open')
    const writing = setInterval(() => api.runtime.append(id, 'seen'), 20)
    const [data] = await message
    clearInterval(writing)
    const frame = JSON.parse(String(data))
    assert.deepEqual([Number.isInteger(frame.created_at), frame.message, frame.version], [true, 'seen', headCommit])
    const { protocol } = socket
    socket.close()
    return protocol
  }
  assert.equal(await open(['v1', `auth.bearer.${api.token}`]), 'v1')
  assert.equal(await open([], { authorization: `Bearer ${api.token}` }), '')
  const stranger = await api.newOrganization()
  for (const [token, status] of [
    ['nothing', 401],
    [stranger.token, 404],
  ] as const) {
    const refused = new WebSocket(url, ['v1', `auth.bearer.${token}`])
    const [, answer] = (await once(refused, 'unexpected-response')) as [unknown, { statusCode: number }]
    assert.equal(answer.statusCode, status)
    refused.on('error', () => {}).terminate()
  }
})
