import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { judgeAnswer } from '../../../test/support/client-types.ts'
import { until } from '../../../test/support/until.ts'
import { application } from '../../resources/kinds/application.ts'
import {
  applicationSettings,
  containerSettings,
  defaultsOf,
  helmSettings,
  jobSettings,
  terraformSettings,
} from './settings.ts'

const api = await startApi()
const { call } = api
const grace = 'deployment.termination_grace_period_seconds'

const make = async (): Promise<{ path: string; made: Json }> => {
  const made = await newApplication(api, (await newPlace(api)).environmentId)
  return { path: `/application/${made.id}`, made }
}

const put = async (path: string, settings: object): Promise<Json> => {
  const { status, body } = await call('PUT', `${path}/advancedSettings`, settings)
  assert.equal(status, 201, JSON.stringify(body))
  return body
}

test('all keys of a kind are answered with their defaults, and a PUT replaces what was set before', async () => {
  const { path } = await make()
  const defaults = (await call('GET', '/defaultApplicationAdvancedSettings')).body
  assert.deepEqual((await call('GET', `${path}/advancedSettings`)).body, defaults)
  assert.deepEqual(judgeAnswer('getDefaultApplicationAdvancedSettings', defaults), [])
  const first = { [grace]: 3, 'hpa.memory.average_utilization_percent': 80 }
  assert.deepEqual(await put(path, first), { ...defaults, ...first })
  assert.deepEqual(await put(path, { [grace]: 4 }), { ...defaults, [grace]: 4 })
  assert.deepEqual((await call('GET', `${path}/advancedSettings`)).body, { ...defaults, [grace]: 4 })
})

test('every default fits its own declaration, whatever the kind', async () => {
  const kinds = { applicationSettings, containerSettings, jobSettings, helmSettings, terraformSettings }
  for (const [name, settings] of Object.entries(kinds))
    for (const [key, value] of Object.entries(defaultsOf(settings)))
      assert.notEqual(value, undefined, `${name}: ${key} has no default`)
  const { path } = await make()
  await put(path, defaultsOf(applicationSettings))
})

test('an unknown key and a wrong type are 400 and named', async () => {
  const { path } = await make()
  for (const [body, words] of [
    [{ 'deployment.unknown': 1 }, /deployment\.unknown/],
    [{ [grace]: 'long' }, /termination_grace_period_seconds/],
    [{ [grace]: -1 }, /termination_grace_period_seconds/],
    [{ 'deployment.antiaffinity.pod': 'Sometimes' }, /antiaffinity/],
    [{ [grace]: null }, /termination_grace_period_seconds/],
  ] as const) {
    const { status, body: answer } = await call('PUT', `${path}/advancedSettings`, body)
    assert.deepEqual([status, words.test(answer.message)], [400, true], answer.message)
  }
  assert.equal((await call('PUT', `${path}/advancedSettings`, [])).status, 400)
})

test('settings are in no record, and an edit of the service keeps them', async () => {
  const { path, made } = await make()
  await put(path, { [grace]: 7 })
  const edited = (await call('PUT', path, { cpu: 600 })).body
  const read = (await call('GET', path)).body
  const listed = (await call('GET', `/environment/${made.environment.id}/services`)).body.results[0]
  for (const record of [edited, read, listed]) assert.equal('advanced_settings' in record, false)
  assert.equal((await call('GET', `${path}/advancedSettings`)).body[grace], 7)
})

test('a setting that the engine acts on makes the service out of date, and its next deployment uses it', async () => {
  const { path, made } = await make()
  const { environment, id } = made
  const state = async () => (await call('GET', `/environment/${environment.id}/application/status`)).body.results[0]
  const deploy = async () => {
    await call('POST', `${path}/deploy`)
    await until(async () => (await state()).service_deployment_status === 'UP_TO_DATE', { what: 'the deployment' })
  }
  await deploy()
  await put(path, { 'hpa.memory.average_utilization_percent': 70 })
  assert.equal((await state()).service_deployment_status, 'UP_TO_DATE')
  await put(path, { [grace]: 33 })
  assert.equal((await state()).service_deployment_status, 'OUT_OF_DATE')
  await deploy()
  const [release] = await api.database.query<{ graceMs: string }>(
    `select workload ->> 'stopGraceMs' as "graceMs" from release where service_id = $1 order by created_at desc limit 1`,
    [id],
  )
  assert.equal(release!.graceMs, '33000')
})

test('settings of containers reach the containers of the next deployment', async () => {
  const { path, made } = await make()
  const settings = {
    'deployment.lifecycle.post_start_exec_command': ['say', 'it has begun'],
    'deployment.lifecycle.pre_stop_exec_command': ['say', 'it ends'],
    'security.read_only_root_filesystem': true,
    'deployment.update_strategy.type': 'Recreate',
  }
  const status = async () => (await call('GET', `${path}/status`)).body.deployment_state
  const act = async (action: string, state: string) => {
    assert.equal((await call('POST', `${path}/${action}`)).status, 202)
    await until(async () => (await status()) === state, { what: state })
  }
  await put(path, settings)
  await act('deploy', 'DEPLOYED')
  const lines = async () => JSON.stringify((await call('GET', `${path}/log`)).body)
  assert.match(await lines(), /it has begun/)
  const [release] = await api.database.query<{ workload: Json }>('select workload from release where service_id = $1', [
    made.id,
  ])
  assert.partialDeepStrictEqual(release!.workload, { readOnlyRoot: true, recreate: true, preStop: ['say', 'it ends'] })
  await put(path, { 'deployment.update_strategy.type': 'RollingUpdate' })
  await act('deploy', 'DEPLOYED')
  const [beside] = await api.database.query<{ workload: Json }>(
    'select workload from release where service_id = $1 order by created_at desc limit 1',
    [made.id],
  )
  assert.equal(beside!.workload.recreate, undefined)
  await put(path, { ...settings, 'deployment.lifecycle.post_start_exec_command': ['fail', '7'] })
  await act('deploy', 'DEPLOYMENT_ERROR')
  const said = JSON.stringify((await call('GET', `/environment/${made.environment.id}/logs`)).body)
  assert.match(said, /The post-start command exited with code 7/)
})

test('limits of a build reach the build, and nothing that is not set changes what a deployment is known by', () => {
  const git_repository = { url: 'https://h/a', branch: 'main', root_path: '/', git_token_id: null }
  const spec = { git_repository, dockerfile_path: 'Dockerfile' }
  const limitsOf = (advanced_settings?: object) =>
    (application.deployable.source({ ...spec, advanced_settings }) as { limits?: object }).limits
  assert.equal(limitsOf(), undefined)
  assert.equal(limitsOf({ 'hpa.memory.average_utilization_percent': 70 }), undefined)
  const set = { 'build.timeout_max_sec': 60, 'build.cpu_max_in_milli': 500, 'build.ram_max_in_gib': 3 }
  const sourceOf = (settings: object) => application.deployable.source({ ...spec, advanced_settings: settings }) as Json
  const other = sourceOf({ 'build.skip_git_submodules': true, 'build.disable_buildkit_cache': true })
  assert.deepEqual(
    [other.skipSubmodules ?? other.limits?.skipSubmodules, other.noCache ?? other.limits?.noCache],
    [true, true],
  )
  assert.deepEqual(limitsOf(set), { timeoutMs: 60_000, cpuMillicores: 500, memoryMb: 3072 })
})

test('a network setting that the router cannot act on is a 400; one that acts makes the service out of date', async () => {
  const { id } = await newApplication(api, (await newPlace(api)).environmentId)
  const path = `/application/${id}`
  const key = 'network.ingress.whitelist_source_range'
  const put = (value: unknown) => call('PUT', `${path}/advancedSettings`, { [key]: value })
  for (const value of ['10.0.0.0/33', 'office', '10.0.0.1,,', '10.0.0.1/8/8']) {
    const { status, body } = await put(value)
    assert.deepEqual([status, body.details[0].field], [400, `/${key}`], value)
  }
  assert.equal((await call('GET', `${path}/advancedSettings`)).body[key], '0.0.0.0/0')
  await call('POST', `${path}/deploy`)
  const freshness = async () => (await call('GET', `${path}/status`)).body.service_deployment_status
  await until(async () => (await freshness()) === 'UP_TO_DATE', { what: 'the deployment' })
  assert.equal(
    (await call('PUT', `${path}/advancedSettings`, { 'network.ingress.proxy_buffering': 'off' })).status,
    201,
  )
  assert.equal(await freshness(), 'UP_TO_DATE', 'it is only recorded')
  assert.equal((await put('10.0.0.0/8')).status, 201)
  assert.equal(await freshness(), 'OUT_OF_DATE')
  const plan = (await call('POST', `${path}/deploy?dry_run=true`)).body
  assert.match(JSON.stringify(plan), /Only the treatment of requests has changed; no instance restarts\./)
})
