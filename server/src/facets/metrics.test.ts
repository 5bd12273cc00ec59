/** The streams of usage of services and of clusters, and log history: requested as the stock console does. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { closedValues } from '../../test/support/closed-values.ts'
import { hearSocket, lastThat } from '../../test/support/streams.ts'
import { until } from '../../test/support/until.ts'
import { usualLimits } from '../limits/limits.ts'
import type { Instance, Usage } from '../runtimes/runtime.ts'

const api = await startApi({ settings: { limits: { ...usualLimits, streams: 0, streamsPerToken: 0 } } })
const { call, token, url, organizationId, clusterId } = api
/** An organization of another user, with a cluster on the same machine. */
const other = await (async () => {
  const { body } = await call('POST', '/organization', { name: 'others', plan: 'FREE' })
  const theirs = api.as(await api.newToken(['Read'], body.id))
  const { results } = (await theirs('GET', `/organization/${body.id}/cluster`)).body
  return { call: theirs, token: await api.newToken(['Read'], body.id), clusterId: results[0].id as string }
})()

const used: Usage = {
  cpuMillicores: 90,
  cpuLimitMillicores: 100,
  memoryMb: 32,
  memoryRssMb: 30,
  memoryLimitMb: 128,
}
const asked: string[][] = []
api.runtime.usage = async (instances: readonly Instance[]) => {
  asked.push(instances.map(({ serviceId }) => serviceId))
  return new Map(instances.map(({ id }) => [id, used]))
}

const newService = async () => {
  const place = await newPlace(api)
  const { id } = await newApplication(api, place.environmentId)
  const query = `organization=${organizationId}&cluster=${clusterId}&project=${place.projectId}&environment=${place.environmentId}`
  return { ...place, id: id as string, query: `${query}&service=${id}&service_type=APPLICATION` }
}

const deployed = async ({ id, environmentId }: { id: string; environmentId: string }) => {
  await call('POST', `/application/${id}/deploy`)
  await until(async () => (await call('GET', `/environment/${environmentId}/status`)).body.state === 'DEPLOYED', {
    what: 'the deployment',
  })
}

test('what a service uses is an empty list while nothing of it runs, and follows its instances', async () => {
  const service = await newService()
  const metrics = await hearSocket(`${url}/service/metrics?${service.query}`, token)
  assert.equal(metrics.socket.protocol, 'v1')
  await lastThat(metrics, 'the empty list', (frame) => frame.length === 0)
  await deployed(service)
  const [one] = await lastThat(metrics, 'the instance', (frame) => frame.length === 1)
  const [instance] = await api.runtime.instancesOf(service.id)
  assert.deepEqual(one, {
    pod_name: instance!.name,
    cpu: { current: 90, limit: 100, current_percent: 90, status: 'WARNING', unit: 'mCPU' },
    memory: { current: 32, limit: 128, current_percent: 25, status: 'OK', unit: 'MiB' },
    storages: [],
  })
  await call('POST', `/application/${service.id}/stop`)
  await lastThat(metrics, 'the empty list again', (frame) => frame.length === 0)
  assert.equal(metrics.code, 0)
  metrics.close()
})

test('streams of one service share their readings, and without streams nothing is read', async () => {
  const service = await newService()
  await deployed(service)
  const hear = () => hearSocket(`${url}/service/metrics?${service.query}`, token)
  const three = [await hear(), await hear(), await hear()]
  for (const each of three) await lastThat(each, 'the instance', (frame) => frame.length === 1)
  const readings = () => asked.filter(([id]) => id === service.id).length
  assert.ok(readings() <= 3, `${readings()} readings`)
  for (const each of three) each.close()
  await until(() => three.every(({ code }) => code !== 0), { what: 'the end of the streams' })
  const before = readings()
  const [row] = await api.database.query('select environment_id as id from service_state where service_id = $1', [
    service.id,
  ])
  await api.database.query(`select pg_notify('slipway_status', $1)`, [row!.id])
  const again = await hearSocket(`${url}/service/status?environment=${service.environmentId}`, token)
  await until(() => again.all.length > 0, { what: 'another stream' })
  assert.equal(readings(), before)
  again.close()
})

test('a cluster says whether its engine answers, and what the services of the organization use there', async (t) => {
  const service = await newService()
  await deployed(service)
  const query = `organization=${organizationId}&cluster=${clusterId}`
  const status = await hearSocket(`${url}/cluster/status?${query}`, token)
  const { computed_status: computed } = await lastThat(status, 'the status', () => true)
  assert.deepEqual(
    [computed.global_status, computed.kube_version_status, computed.node_warnings, computed.qovery_components],
    ['RUNNING', { type: 'UNKNOWN' }, {}, []],
  )
  status.close()

  const ping = t.mock.method(api.runtime, 'ping', async () => {
    throw new Error('away')
  })
  const away = await hearSocket(`${url}/cluster/status?${query}`, token)
  const { computed_status: broken } = await lastThat(away, 'the status', () => true)
  assert.equal(broken.global_status, 'ERROR')
  assert.equal(typeof (Object.values(broken.node_warnings) as Json)[0][0].message, 'string')
  away.close()
  const lost = await hearSocket(`${url}/cluster/metrics?${query}`, token)
  const [absent] = (await lastThat(lost, 'the metrics while the engine is away', () => true)).nodes
  const [condition] = absent.conditions
  assert.deepEqual([absent.pods, absent.metrics_usage], [[], {}])
  assert.deepEqual([condition.status, condition.reason], ['False', 'EngineUnavailable'])
  assert.equal(condition.message, Object.values<Json>(broken.node_warnings)[0][0].message)
  lost.close()
  ping.mock.restore()

  const asking = Date.now()
  const metrics = await hearSocket(`${url}/cluster/metrics?${query}`, token)
  const { nodes, pvcs, node_pools } = await lastThat(metrics, 'the metrics', () => true)
  assert.deepEqual([pvcs, node_pools, nodes.length], [[], [], 1])
  const [node] = nodes
  assert.ok(node.instance_type !== null && node.resources_capacity.cpu_milli > 0)
  const mine = node.pods.find((pod: Json) => pod.qovery_service_info.service_id === service.id)
  assert.deepEqual([mine.metrics_usage.cpu_milli_usage, mine.memory_mib_limit, mine.status_phase], [90, 128, 'RUNNING'])
  const [{ status: ready, last_heartbeat_time: heartbeat }] = node.conditions
  assert.ok(ready === 'True' && heartbeat >= asking && heartbeat <= Date.now(), `${heartbeat}`)
  assert.deepEqual([mine.memory_mib_request, node.resources_capacity.pods], [mine.memory_mib_limit, 0])
  assert.equal(node.metrics_usage.memory_mib_working_set_usage, 32 * node.pods.length)
  metrics.close()
})

test('what a caller may not see takes no room among the instances of a cluster', async (t) => {
  const [hidden, seen] = [await newService(), await newService()]
  for (const service of [hidden, seen]) await deployed(service)
  const roles = `/organization/${organizationId}/customRole`
  const role = (await call('POST', roles, { name: 'one project' })).body
  const { cluster_permissions, project_permissions } = (await call('GET', `${roles}/${role.id}`)).body
  const permissions = ['DEVELOPMENT', 'PREVIEW', 'STAGING', 'PRODUCTION'].map((environment_type) => ({
    environment_type,
    permission: 'VIEWER',
  }))
  const only = project_permissions.map((each: Json) =>
    each.project_id === seen.projectId ? { ...each, permissions } : each,
  )
  const put = await call('PUT', `${roles}/${role.id}`, {
    name: 'one project',
    cluster_permissions,
    project_permissions: only,
  })
  assert.equal(put.status, 200, JSON.stringify(put.body))
  const made = await call('POST', `/organization/${organizationId}/apiToken`, { name: 'part', role_id: role.id })
  const [first] = await api.runtime.instancesOf(hidden.id)
  const [last] = await api.runtime.instancesOf(seen.id)
  const many = Array.from({ length: 600 }, (_, index) => ({ ...first!, id: `hidden ${index}` }))
  t.mock.method(api.runtime, 'observe', async () => [...many, last!])
  const metrics = await hearSocket(`${url}/cluster/metrics?cluster=${clusterId}`, made.body.token)
  const { nodes } = await lastThat(metrics, 'the metrics', () => true)
  assert.deepEqual(
    nodes[0].pods.map((pod: Json) => pod.qovery_service_info.service_id),
    [seen.id],
  )
  metrics.close()
  const all = await hearSocket(`${url}/cluster/metrics?cluster=${clusterId}`, token)
  const whole = (await lastThat(all, 'the metrics of all', () => true)).nodes[0]
  assert.deepEqual([whole.pods.length, whole.metrics_usage.cpu_milli_usage], [500, 601 * 90])
  all.close()
})

test('an organization gets its own services only, and no cluster of another', async () => {
  const service = await newService()
  await deployed(service)
  const metrics = await hearSocket(`${url}/cluster/metrics?cluster=${other.clusterId}`, other.token)
  const { nodes } = await lastThat(metrics, 'the metrics', () => true)
  assert.deepEqual([nodes[0].pods, nodes[0].metrics_usage.cpu_milli_usage], [[], 0])
  metrics.close()
  for (const path of [`/cluster/metrics?cluster=${clusterId}`, `/cluster/status?cluster=${clusterId}`])
    await assert.rejects(hearSocket(`${url}${path}`, other.token), /404/)
  await assert.rejects(hearSocket(`${url}/service/metrics?service=${service.id}`, other.token), /404/)
})

test('a cluster without a runtime ends its streams with a reason that clients know', async () => {
  const made = await call('POST', `/organization/${organizationId}/cluster`, {
    name: 'elsewhere',
    region: 'on-premise',
    cloud_provider: 'ON_PREMISE',
    kubernetes: 'SELF_MANAGED',
    features: [],
  })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  const heard = await hearSocket(`${url}/cluster/status?cluster=${made.body.id}`, token)
  let reason = ''
  heard.socket.on('close', (_code, text) => {
    reason = String(text)
  })
  await until(() => heard.code !== 0, { what: 'the end' })
  assert.match(reason, /^NotFound/)
})

const history = (query: string, more: Record<string, string> = {}, as = call) =>
  as(
    'GET',
    `/cluster/${clusterId}/logs?${new URLSearchParams({ endpoint: '/loki/api/v1/query_range', query, ...more })}`,
  )

const linesOf = ({ body }: Json): string[] =>
  JSON.parse(body.response).data.result.flatMap(({ values }: Json) => values.map(([, text]: [string, string]) => text))

test('past lines are read with filters, by time, in either direction, and with the labels that they have', async () => {
  const service = await newService()
  await deployed(service)
  for (const text of ['one ok', 'two ok', 'three']) api.runtime.append(service.id, text)
  api.runtime.append(service.id, 'four bad', 'stderr')
  const selector = `{qovery_com_service_id="${service.id}"}`
  const all = await history(selector, { direction: 'forward' })
  assert.equal(all.status, 200, JSON.stringify(all.body))
  assert.deepEqual(linesOf(all).slice(-4).sort(), ['four bad', 'one ok', 'three', 'two ok'])
  assert.deepEqual(linesOf(await history(`${selector} |= "ok"`, { direction: 'forward' })), ['one ok', 'two ok'])
  assert.deepEqual(linesOf(await history(`${selector} |= "ok"`, { limit: '1' })), ['two ok'])
  assert.deepEqual(linesOf(await history(`${selector} |= "ok"`, { direction: 'forward', limit: '1' })), ['one ok'])
  for (const direction of closedValues('get-cluster-logs', '?direction')) {
    const isForward = direction.toLowerCase() === 'forward'
    const lines = linesOf(await history(`${selector} |= "ok"`, { direction, limit: '1' }))
    assert.deepEqual(lines, [isForward ? 'one ok' : 'two ok'], direction)
  }
  assert.deepEqual(linesOf(await history(`{qovery_com_service_id="${service.id}",level="error"}`)), ['four bad'])
  assert.deepEqual(linesOf(await history(selector, { start: '1700000000', end: '1700000100' })), [])
  const [found] = JSON.parse((await history(`${selector} |= "one"`)).body.response).data.result
  const [[ns]] = found.values
  assert.deepEqual(
    linesOf(await history(`${selector} |= "one"`, { start: ns, end: String(BigInt(ns) + 1n) })),
    ['one ok'],
    'the first nanosecond belongs to the time',
  )
  assert.deepEqual(linesOf(await history(`${selector} |= "one"`, { start: String(BigInt(ns) - 9n), end: ns })), [])
  const values = async (label: string) => {
    const { body } = await history(selector, { endpoint: `/loki/api/v1/label/${label}/values` })
    return JSON.parse(body.response).data
  }
  const [instance] = await api.runtime.instancesOf(service.id)
  assert.deepEqual(await values('level'), ['error', 'info'])
  assert.deepEqual(await values('pod'), [instance!.name])
  assert.deepEqual(await values('qovery_com_deployment_id'), [instance!.revision])
})

test('log history refuses what it does not understand with a sentence, and knows no service of others', async () => {
  const service = await newService()
  const selector = `{qovery_com_service_id="${service.id}"}`
  const refused: [string, Record<string, string>][] = [
    ['sum(rate())', {}],
    [`${selector} |~ "a+"`, {}],
    [selector, { endpoint: '/loki/api/v1/query' }],
    [selector, { endpoint: '/loki/api/v1/label/host/values' }],
    [selector, { start: 'yesterday' }],
    [selector, { limit: '100000' }],
  ]
  for (const [query, more] of refused) {
    const { status, body } = await history(query, more)
    assert.equal(status, 400, JSON.stringify(more))
    assert.match(body.message, /^(Validation error: )?(query|endpoint|start|limit): /)
  }
  const stolen = `/cluster/${other.clusterId}/logs?${new URLSearchParams({ endpoint: '/loki/api/v1/query_range', query: selector })}`
  assert.equal((await other.call('GET', stolen)).status, 404)
  assert.equal((await history(selector, {}, other.call)).status, 404)
})
