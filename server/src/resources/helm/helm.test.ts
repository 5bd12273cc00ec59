import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { judgeAnswer } from '../../../test/support/client-types.ts'
import { until } from '../../../test/support/until.ts'

const api = await startApi()
const { call } = api
const git_repository = { url: 'https://github.com/example/charts', branch: 'main', root_path: '/shop/' }

const sent = async (method: string, path: string, body: object | undefined, status: number): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}

const repository = async (name: string): Promise<Json> =>
  sent(
    'POST',
    `/organization/${api.organizationId}/helmRepository`,
    { name, kind: 'HTTPS', url: 'https://charts.example', skip_tls_verification: false, config: {} },
    201,
  )

const create = async (body: object, status = 201): Promise<Json> => {
  const { environmentId } = await newPlace(api)
  return sent('POST', `/environment/${environmentId}/helm`, { name: 'shop', ...body }, status)
}

test('a chart of a repository is asked for in one form and answered in the other, with whose it is', async () => {
  const { id } = await repository('charts')
  const chart = { repository: id, chart_name: 'redis', chart_version: '19.0.1' }
  const made = await create({ source: { helm_repository: chart }, values_override: { set: [['a.b', '1']] } })
  assert.deepEqual(made.source, {
    repository: { ...chart, repository: { id, name: 'charts', url: 'https://charts.example' } },
  })
  assert.deepEqual(made.values_override, { set: [['a.b', '1']], set_string: [], set_json: [], file: null })
  assert.deepEqual(
    [made.timeout_sec, made.auto_deploy, made.auto_preview, made.service_type],
    [600, false, false, 'HELM'],
  )
  assert.deepEqual(judgeAnswer('createHelm', made), [])
  assert.deepEqual(await sent('GET', `/helm/${made.id}`, undefined, 200), made)
  const again = await sent('PUT', `/helm/${made.id}`, { ...made, description: 'as it was read' }, 200)
  assert.deepEqual(again, { ...made, description: 'as it was read', updated_at: again.updated_at })
  const source = { ...made.source, git_repository }
  const moved = await sent('PUT', `/helm/${made.id}`, { ...made, source }, 200)
  assert.equal(moved.source.git.git_repository.url, git_repository.url)
})

test('a chart of a git repository and files of values are answered as repositories, and an edit keeps what it leaves out', async () => {
  const file = {
    git: { git_repository, paths: ['/values/prod.yaml'] },
    raw: { values: [{ name: 'a.yaml', content: 'x: 1' }] },
  }
  const made = await create({ source: { git_repository }, values_override: { file }, arguments: ['--wait'] })
  const { owner, name, root_path } = made.source.git.git_repository
  assert.deepEqual([owner, name, root_path], ['example', 'charts', '/shop/'])
  assert.deepEqual(made.values_override.file.git.paths, ['/values/prod.yaml'])
  assert.equal(made.values_override.file.git.git_repository.owner, 'example')
  const edited = await sent('PUT', `/helm/${made.id}`, { timeout_sec: 30 }, 200)
  assert.deepEqual({ ...edited, updated_at: made.updated_at, source: made.source }, { ...made, timeout_sec: 30 })
  assert.deepEqual(judgeAnswer('editHelm', edited), [])
})

test('ports name a service or select one, get ids that they keep, and exactly one is the default', async () => {
  const ports = [
    { internal_port: 80, service_name: 'web' },
    { internal_port: 90, service_selectors: [{ key: 'app', value: 'api' }], is_default: true, protocol: 'GRPC' },
  ]
  const made = await create({ source: { git_repository }, ports })
  const seen = made.ports.map((port: Json) => [port.port_type, port.protocol, port.external_port, port.is_default])
  assert.deepEqual(seen, [
    ['SERVICE_NAME', 'HTTP', 443, false],
    ['SERVICE_SELECTORS', 'GRPC', 443, true],
  ])
  assert.deepEqual(judgeAnswer('createHelm', made), [])
  const edited = await sent('PUT', `/helm/${made.id}`, { ports: made.ports.toReversed() }, 200)
  assert.deepEqual(
    edited.ports.map(({ id }: Json) => id),
    made.ports.map(({ id }: Json) => id).toReversed(),
  )
})

test('what cannot be meant is 400 and names its field', async () => {
  const { id } = await repository('more charts')
  const refused: [object, RegExp][] = [
    [{ source: {} }, /source/],
    [
      { source: { git_repository, helm_repository: { repository: id, chart_name: 'a', chart_version: '1' } } },
      /source/,
    ],
    [{ source: { helm_repository: { repository: id, chart_name: 'a' } } }, /chart_version/],
    [{ source: { helm_repository: { repository: api.clusterId, chart_name: 'a', chart_version: '1' } } }, /not found/],
    [{ source: { git_repository: { ...git_repository, root_path: '../x' } } }, /source.git_repository.root_path/],
    [{ source: { git_repository }, ports: [{ internal_port: 80 }] }, /ports.0/],
    [{ source: { git_repository }, values_override: { set: [['a']] } }, /values_override/],
  ]
  for (const [body, words] of refused) assert.match((await create(body, 400)).message, words)
})

test('a deployment is refused in one sentence that says what it needs; stop, uninstall and delete work', async () => {
  const { id, environment } = await create({ source: { git_repository } })
  for (const action of ['deploy', 'redeploy'])
    assert.match((await sent('POST', `/helm/${id}/${action}`, {}, 400)).message, /Kubernetes cluster/)
  assert.equal((await sent('GET', `/helm/${id}/status`, undefined, 200)).state, 'READY')
  assert.equal((await call('POST', `/helm/${id}/uninstall`)).status, 204)
  assert.equal((await sent('POST', `/helm/${id}/stop`, undefined, 202)).state, 'STOP_QUEUED')
  const state = async () => (await call('GET', `/environment/${environment.id}/helm/status`)).body.results[0]?.state
  await until(async () => (await state()) === 'STOPPED', { what: 'the stop' })
  const history = await sent('GET', `/helm/${id}/deploymentHistory`, undefined, 200)
  assert.deepEqual([history.page, history.results[0].status], [1, 'STOPPED'])
  assert.deepEqual(judgeAnswer('listHelmDeploymentHistory', history), [])
  await sent('DELETE', `/helm/${id}`, undefined, 204)
  await until(async () => (await call('GET', `/helm/${id}`)).status === 404, { what: 'its end' })
})

test('variables and secrets are set through the generic family', async () => {
  const { id } = await create({ source: { git_repository } })
  const place = { variable_scope: 'HELM', variable_parent_id: id }
  await sent('POST', '/variable', { key: 'A', value: '1', is_secret: false, ...place }, 201)
  const { results } = await sent('GET', `/variable?parent_id=${id}&scope=HELM`, undefined, 200)
  const mine = results.find(({ key }: Json) => key === 'A')
  assert.deepEqual([mine.scope, mine.service_type, mine.service_id], ['HELM', 'HELM', id])
})

test('settings that would protect what a chart runs are refused, as a chart publishes what it makes itself', async () => {
  const { id } = await create({ source: { git_repository } })
  const path = `/helm/${id}/advancedSettings`
  const protecting = {
    'network.ingress.whitelist_source_range': '10.0.0.0/8',
    'network.ingress.denylist_source_range': '10.0.0.0/8',
    'network.ingress.basic_auth_env_var': 'USERS',
  }
  const defaults = await sent('GET', path, undefined, 200)
  for (const [key, value] of Object.entries(protecting)) {
    const refused = await sent('PUT', path, { [key]: value }, 400)
    assert.match(refused.message, /a chart publishes what it makes itself/)
  }
  assert.deepEqual(await sent('PUT', path, defaults, 201), defaults)
})
