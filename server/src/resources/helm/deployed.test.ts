/** Helm services on a Kubernetes cluster, through the API: on a cluster and with a helm in memory. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { type Json, startApi } from '../../../test/support/api.ts'
import { createFakeEngines } from '../../../test/support/docker/fake-engines.ts'
import { startMemoryCluster } from '../../../test/support/kubernetes/api-server.ts'
import { createFakeHelm, fakeChart } from '../../../test/support/kubernetes/fake-helm.ts'
import { until } from '../../../test/support/until.ts'
import { untilAborted } from '../../lib/concurrency/waiting.ts'
import { releaseOf } from '../../runtimes/kubernetes/helm/own-objects.ts'

const kubernetes = await startMemoryCluster()
const helm = createFakeHelm(kubernetes)
const archives = new Map<string, Buffer>()
const charts = createServer((request, response) => {
  const [, version] = /^\/shop-(.+)\.tgz$/.exec(request.url ?? '') ?? []
  if (version !== undefined) return response.end(archives.get(version))
  const entries = [...archives].map(([each, archive]) => ({
    ...{ version: each, urls: [`shop-${each}.tgz`] },
    digest: createHash('sha256').update(archive).digest('hex'),
  }))
  return response.end(JSON.stringify({ entries: { shop: entries } }))
})
await once(charts.listen(0, '127.0.0.1'), 'listening')
const url = `http://127.0.0.1:${(charts.address() as AddressInfo).port}`
const api = await startApi({ engines: createFakeEngines(), kubernetes: { helm: helm.tool } })
after(async () => {
  charts.close()
  await kubernetes.close()
})
const { call, organizationId, source } = api
const base = `/organization/${organizationId}`

const must = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}
const { id: credentialsId } = await must('POST', `${base}/onPremise/credentials`, {
  ...{ name: 'kubernetes', kubeconfig: kubernetes.kubeconfig() },
})
const { id: clusterId } = await must('POST', `${base}/cluster`, {
  ...{ name: 'kubernetes', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' },
  cloud_provider_credentials: { credentials: { id: credentialsId } },
})
const { id: repository } = await must('POST', `${base}/helmRepository`, {
  ...{ name: 'charts', kind: 'HTTPS', url, skip_tls_verification: false, config: {} },
})
const project = await must('POST', `${base}/project`, { name: 'shop' })
let made = 0
const newHelm = async (more: Json = {}, cluster: string = clusterId): Promise<Json> => {
  made += 1
  const environment = await must('POST', `/project/${project.id}/environment`, { name: `env ${made}`, cluster })
  return must('POST', `/environment/${environment.id}/helm`, {
    ...{ name: `shop ${made}`, auto_deploy: false, arguments: [] },
    source: { helm_repository: { repository, chart_name: 'shop', chart_version: '1.0.0' } },
    ...more,
  })
}
const atRest = (path: string, wanted: string): Promise<Json> =>
  until(
    async () => {
      const status = (await call('GET', `${path}/status`)).body
      assert.ok(status.state === wanted || !/ERROR$/.test(status.state), JSON.stringify(status))
      return status.state === wanted ? status : null
    },
    { what: `${path} to be ${wanted}`, timeoutMs: 20_000 },
  )
const deploy = async (path: string, body: Json = {}, wanted = 'DEPLOYED'): Promise<Json> => {
  await must('POST', `${path}/deploy`, body)
  return atRest(path, wanted)
}
const found = ({ environment }: Json, kind: string, name: string): Json =>
  kubernetes.store.find(kind, `slipway-${environment.id}`, name)
const loggedBy = async ({ environment }: Json): Promise<string> =>
  JSON.stringify(await must('GET', `/environment/${environment.id}/logs`))
const podsOf = ({ environment }: Json): Json[] => kubernetes.store.all('Pod', `slipway-${environment.id}`)
const put = async (version: string, more: Record<string, string> = {}): Promise<void> => {
  archives.set(version, await fakeChart(version, more))
}
await put('1.0.0')
await put('1.1.0')
const failing = { apiVersion: 'v1', kind: 'Service', metadata: { name: 'never', annotations: { 'fake/fails': 'yes' } } }
await put('2.0.0', { 'templates/x.json': JSON.stringify(failing) })
const role = {
  apiVersion: 'rbac.authorization.k8s.io/v1',
  kind: 'ClusterRole',
  metadata: { name: 'reader' },
  rules: [],
}
await put('3.0.0', { 'templates/x.json': JSON.stringify(role) })
const forged = {
  ...{ apiVersion: 'v1', kind: 'Secret', type: 'Opaque' },
  metadata: { name: 'sh.helm.release.v1.any.v9' },
}
await put('4.0.0', { 'templates/x.json': JSON.stringify(forged) })

test('a chart of a repository is planned, installed with its values, upgraded, rolled back, stopped, started and deleted', async () => {
  const service = await newHelm({
    values_override: {
      set: [['greeting', 'hi slipway.env.WHO']],
      set_string: [['said', '1']],
      set_json: [['more', '[1]']],
      file: { raw: { values: [{ name: 'a', content: '{"greeting":"never"}' }] } },
    },
    timeout_sec: 30,
  })
  const { id, environment } = service
  assert.equal(service.values_override.file.raw.values[0].name, 'a')
  const path = `/helm/${id}`
  const variable = { key: 'WHO', value: 'Ada', is_secret: true, variable_scope: 'HELM', variable_parent_id: id }
  await must('POST', '/variable', variable)
  const plan = await must('POST', `${path}/deploy?dry_run=true`, {})
  assert.deepEqual(plan.stages[0].services[0].changes.objects, [
    { name: 'ConfigMap shop', change: 'added' },
    { name: 'Deployment shop', change: 'added' },
  ])
  assert.deepEqual([...helm.ran], [])

  const { deployment_request_id: revision } = await must('POST', `${path}/deploy`, {})
  assert.equal((await atRest(path, 'DEPLOYED')).running_state, 'RUNNING')
  assert.equal(found(service, 'ConfigMap', 'shop').data.greeting, 'hi Ada')
  assert.equal(helm.revisions(releaseOf(id))[0]?.chart, 'shop-1.0.0')
  const seen = await api.parts.clusters.of(clusterId)
  const instances = await seen.runtime.observe([{ environmentId: environment.id, serviceId: id }])
  assert.deepEqual(
    instances.map(({ state, revision }) => [state, revision]),
    Array(2).fill(['running', revision]),
  )

  const upgrade = await must('POST', `${path}/deploy?dry_run=true`, { chart_version: '1.1.0' })
  const [planned] = upgrade.stages[0].services
  assert.deepEqual(planned.changes.objects, [{ name: 'ConfigMap shop', change: 'changed' }])
  assert.deepEqual(planned.changes.image, { from: 'shop 1.0.0', to: 'shop 1.1.0' })
  assert.doesNotMatch(JSON.stringify(upgrade), /Ada/)
  await deploy(path, { chart_version: '1.1.0' })
  assert.equal(found(service, 'ConfigMap', 'shop').data.version, '1.1.0')

  kubernetes.log(podsOf(service)[0]!.metadata.name, 'first')
  kubernetes.log(podsOf(service)[0]!.metadata.name, 'last')
  const { results: lines } = await must('GET', `${path}/log?tail=1`)
  assert.deepEqual(
    lines.map(({ message }: Json) => message),
    ['last'],
  )
  const { results: releases } = await must('GET', `${path}/release`)
  await must('POST', `${path}/rollback`, { release_id: releases.at(-1).id })
  await atRest(path, 'DEPLOYED')
  assert.equal(found(service, 'ConfigMap', 'shop').data.version, '1.0.0')

  await must('POST', `${path}/stop`, {})
  await atRest(path, 'STOPPED')
  assert.equal(found(service, 'Deployment', 'shop').spec.replicas, 0)
  assert.equal(podsOf(service).length, 0)
  assert.equal(helm.ran.includes('uninstall'), false)
  await deploy(path)
  assert.equal(found(service, 'Deployment', 'shop').spec.replicas, 2)
  await until(async () => podsOf(service).length === 2, { what: 'the pods to be back' })

  await must('DELETE', path)
  await until(async () => (await call('GET', path)).status === 404, { what: 'the end of the service' })
  assert.deepEqual(helm.revisions(releaseOf(id)), [])
  for (const kind of ['Deployment', 'ConfigMap', 'Pod', 'Secret'])
    assert.deepEqual(kubernetes.store.all(kind, `slipway-${environment.id}`), [], kind)
})

test('an upgrade that fails leaves what was installed, and a chart that asks for more than it may is refused by name', async () => {
  const service = await newHelm()
  const path = `/helm/${service.id}`
  await deploy(path)
  for (const [version, sentence] of [
    ['2.0.0', /context deadline exceeded/],
    ['3.0.0', /for the whole cluster \(ClusterRole reader\): set allow_cluster_wide_resources/],
    ['4.0.0', /records of helm itself \(Secret sh\.helm\.release\.v1\.any\.v9\)/],
    ['9.9.9', /no chart shop in version 9\.9\.9/],
  ] as const) {
    await must('POST', `${path}/deploy`, { chart_version: version })
    const failed = await until(
      async () => {
        const { body } = await call('GET', `${path}/status`)
        return body.state === 'DEPLOYMENT_ERROR' || body.state === 'BUILD_ERROR' ? body : null
      },
      { what: `the failure of ${version}` },
    )
    assert.match(failed.error.message, sentence)
    assert.equal(found(service, 'ConfigMap', 'shop').data.version, '1.0.0')
    await deploy(path)
  }
  const wide = await must('PUT', path, { allow_cluster_wide_resources: true })
  assert.equal(wide.allow_cluster_wide_resources, true)
  await deploy(path, { chart_version: '3.0.0' })
})

test("a chart's own Ingress has the custom domains of its service and no other host, and what it takes is not counted", async () => {
  const ingress = (host: string) => ({
    ...{ apiVersion: 'networking.k8s.io/v1', kind: 'Ingress', metadata: { name: 'shop' } },
    spec: { rules: [{ host }] },
  })
  await put('5.0.0', { 'templates/x.json': JSON.stringify(ingress('www.chart.test')) })
  const service = await newHelm()
  const path = `/helm/${service.id}`
  const sentence = /Ingress shop names the host www\.chart\.test, which is not a custom domain of this service/
  const plan = await must('POST', `${path}/deploy?dry_run=true`, { chart_version: '5.0.0' })
  assert.match(JSON.stringify(plan), sentence)
  await must('POST', `${path}/deploy`, { chart_version: '5.0.0' })
  const failed = await until(
    async () => {
      const { body } = await call('GET', `${path}/status`)
      return body.state === 'DEPLOYMENT_ERROR' ? body : null
    },
    { what: 'the refusal' },
  )
  assert.match(failed.error.message, sentence)
  assert.equal(found(service, 'Ingress', 'shop'), undefined)

  const other = await newHelm()
  await must('POST', `/helm/${other.id}/customDomain`, { domain: 'www.chart.test' })
  const again = await must('POST', `${path}/deploy?dry_run=true`, { chart_version: '5.0.0' })
  assert.match(JSON.stringify(again), sentence, 'it is the domain of another service')
  const otherPath = `/helm/${other.id}`
  await must('POST', `${otherPath}/customDomain`, { domain: 'old.chart.test' })
  await deploy(otherPath, { chart_version: '5.0.0' })
  assert.equal(found(other, 'Ingress', 'shop').spec.rules[0].host, 'www.chart.test')
  const told = await loggedBy(other)
  assert.match(told, /old\.chart\.test leads nowhere/)
  assert.doesNotMatch(told, /www\.chart\.test leads nowhere/)
  assert.match(told, /not counted toward the limits of the organization/)
  const { results } = await must('GET', `${otherPath}/customDomain`)
  const idOf = (domain: string): string => results.find((each: Json) => each.domain === domain).id
  const led = `${otherPath}/customDomain/${idOf('www.chart.test')}`
  for (const answer of [await call('DELETE', led), await call('PUT', led, { domain: 'new.chart.test' })])
    assert.deepEqual([answer.status, answer.body.code], [409, 'domain_in_use'], JSON.stringify(answer.body))
  await must('DELETE', `${otherPath}/customDomain/${idOf('old.chart.test')}`)
  await deploy(otherPath, { chart_version: '1.0.0' })
  await must('DELETE', led)
  const refused = await call('POST', `${otherPath}/customDomain`, {
    ...{ domain: 'tls.chart.test', generate_certificate: true },
  })
  assert.deepEqual([refused.status, refused.body.details?.[0]?.field], [400, '/generate_certificate'])
  assert.match(refused.body.message, /an Ingress of its own, which names its certificate/)
})

test('what a chart has claimed is a volume of its service, stopped or not, and does not go with the namespace', async () => {
  const spec = { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '2Gi' } } }
  const claim = { apiVersion: 'v1', kind: 'PersistentVolumeClaim', metadata: { name: 'shop' }, spec }
  await put('6.0.0', { 'templates/x.json': JSON.stringify(claim) })
  const service = await newHelm()
  const path = `/helm/${service.id}`
  await deploy(path, { chart_version: '6.0.0' })
  // As the controller of a StatefulSet creates it: helm does not know of it.
  const { metadata, ...rest } = found(service, 'PersistentVolumeClaim', 'shop')
  kubernetes.store.put({ ...rest, metadata: { ...metadata, name: 'data-0', uid: 'another' } })
  await must('POST', `${path}/stop`, {})
  await atRest(path, 'STOPPED')
  const { runtime } = await api.parts.clusters.of(clusterId)
  const volumes = async () => (await runtime.owned()).volumes.filter(({ serviceId }) => serviceId === service.id)
  assert.deepEqual(
    (await volumes()).map(({ id, environmentId, sizeGb }) => [id, environmentId, sizeGb]).sort(),
    ['data-0', 'shop'].map((name) => [name, service.environment.id, 2]),
  )
  const signal = AbortSignal.timeout(10_000)
  await assert.rejects(runtime.removeEnvironment(service.environment.id, signal), { code: 'environment_in_use' })
  await must('DELETE', path)
  await until(async () => (await call('GET', path)).status === 404, { what: 'the end of the service' })
  assert.deepEqual(await volumes(), [])
  // A leftover of a deletion that was interrupted.
  kubernetes.store.put({ ...rest, metadata: { ...metadata, uid: 'a third' } })
  const key = { environmentId: service.environment.id, serviceId: service.id }
  await runtime.converge(key, { state: 'absent', graceMs: 0 }, null, signal)
  assert.deepEqual(await volumes(), [])
})

test('a run that was killed while helm worked is settled, and a canceled first one leaves nothing', async () => {
  const service = await newHelm()
  const path = `/helm/${service.id}`
  helm.during = (signal) => untilAborted(new Promise<never>(() => {}), signal)
  await must('POST', `${path}/deploy`, {})
  await until(async () => helm.revisions(releaseOf(service.id))[0]?.status === 'pending-upgrade', { what: 'helm' })
  helm.during = async () => {}
  await must('POST', `/environment/${service.environment.id}/cancelDeployment`, {})
  await atRest(path, 'CANCELED')
  assert.deepEqual(helm.revisions(releaseOf(service.id)), [])
  assert.equal(found(service, 'ConfigMap', 'shop'), undefined)
  await deploy(path)
})

test('a chart and its values come from git, at the commits that are asked for', async () => {
  const git_repository = { url: 'https://github.com/example/charts', branch: 'main', root_path: '/shop' }
  const chart = { apiVersion: 'v2', name: 'shop', version: '7.0.0' }
  const config = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'shop' }, data: { greeting: '{{greeting}}' } }
  source.files = [
    { path: 'Chart.yaml', content: JSON.stringify(chart) },
    { path: 'templates/a.json', content: JSON.stringify(config) },
    { path: 'values/prod.json', content: '{"greeting":"from git"}' },
  ]
  const service = await newHelm({
    source: { git_repository },
    values_override: { file: { git: { git_repository, paths: ['values/prod.json'] } } },
  })
  const path = `/helm/${service.id}`
  const commit = 'b'.repeat(40)
  await deploy(path, { git_commit_id: commit, values_override_git_commit_id: 'c'.repeat(40) })
  assert.equal(found(service, 'ConfigMap', 'shop').data.greeting, 'from git')
  const chosen = { id: service.id, git_commit_id: commit, values_override_git_commit_id: commit }
  await must('POST', `/environment/${service.environment.id}/service/deploy`, { helms: [chosen] })
  await atRest(path, 'DEPLOYED')
  const { source: shown } = await must('GET', path)
  assert.equal(shown.git.git_repository.deployed_commit_id, commit)
  const { status, body } = await call('POST', `${path}/deploy`, { chart_version: '1' })
  assert.deepEqual([status, /ask for a git_commit_id/.test(body.message)], [400, true], JSON.stringify(body))
})

test('without helm, and on a Docker engine, a deploy is refused with what is needed', async () => {
  const { id } = await newHelm()
  source.missing = 'Helm is not installed on this server: install `helm` or set SLIPWAY_HELM.'
  const missing = await call('POST', `/helm/${id}/deploy`, {})
  source.missing = null
  assert.deepEqual([missing.status, /Helm is not installed/.test(missing.body.message)], [400, true])
  const local = await newHelm({}, api.clusterId)
  const refused = await call('POST', `/helm/${local.id}/deploy`, {})
  assert.deepEqual([refused.status, /needs a Kubernetes cluster/.test(refused.body.message)], [400, true])
})
