/** Helm services through the API on a real cluster by a real helm: from HTTP, from a registry, and from git. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { removeGitPlace } from '../../src/builds/git/place.ts'
import { createSources } from '../../src/builds/sources.ts'
import { findTool } from '../../src/builds/tools.ts'
import { createLog } from '../../src/lib/log.ts'
import { createOutbound } from '../../src/lib/net/outbound.ts'
import { systemClock } from '../../src/lib/time/clock.ts'
import { releaseOf } from '../../src/runtimes/kubernetes/helm/own-objects.ts'
import { createHelmTool } from '../../src/runtimes/kubernetes/helm/tool.ts'
import { createOpenKubernetes } from '../../src/runtimes/kubernetes/kubernetes.ts'
import { accessManifest } from '../../src/runtimes/kubernetes/rights.ts'
import { type Json, startApi } from '../support/api.ts'
import { createFakeEngines } from '../support/docker/fake-engines.ts'
import { login, startRegistry } from '../support/docker/registry.ts'
import { startGitServer } from '../support/peers/git-server.ts'
import { until } from '../support/until.ts'
import type { Admin } from './cluster/admin.ts'
import { shopChart, shopFiles } from './cluster/chart.ts'
import { grantAccess, openCluster, outbound, revokeAccess } from './cluster/scene.ts'

const folder = mkdtempSync(join(tmpdir(), 'slipway-helm-services-'))
const helm = createHelmTool(() => findTool('helm', {}), join(folder, 'helm'))
const api = await startApi({
  engines: createFakeEngines(),
  openKubernetes: createOpenKubernetes(outbound.checkMachine),
  kubernetes: { helm, outbound },
})
const { call, organizationId, database } = api
const git = await startGitServer()
const sources = createSources({
  ...{ dataDir: folder, network: createOutbound({ allow: ['loopback'] }), concurrency: 1 },
  ...{ log: createLog('silent'), clock: systemClock },
})
// The repositories are real ones.
Object.assign(api.parts.builder, {
  fetch: sources.fetch,
  folder: sources.folder,
  files: sources.files,
  head: sources.head,
})
const archives = new Map<string, Buffer>()
const charts = createServer((request, response) => {
  const [, version] = /^\/shop-(.+)\.tgz$/.exec(request.url ?? '') ?? []
  if (version !== undefined) return response.end(archives.get(version))
  const entries = [...archives.keys()].map((each) => `  - version: ${each}\n    urls:\n    - shop-${each}.tgz\n`)
  return response.end(`apiVersion: v1\nentries:\n  shop:\n${entries.join('')}`)
})
await once(charts.listen(0, '127.0.0.1'), 'listening')
const registry = await startRegistry()

let admin: Admin
let clusterId: string
let projectId: string
const environments: string[] = []
const base = `/organization/${organizationId}`
const must = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}
before(async () => {
  admin = await openCluster()
  const kubeconfig = await grantAccess(admin, accessManifest.items)
  const credentials = await must('POST', `${base}/onPremise/credentials`, { name: 'kubernetes', kubeconfig })
  const cluster = await until(
    async () => {
      const { status, body } = await call('POST', `${base}/cluster`, {
        ...{ name: 'kubernetes', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' },
        cloud_provider_credentials: { credentials: { id: credentials.id } },
      })
      return status < 300 ? body : null
    },
    { timeoutMs: 60_000, what: 'the cluster to be registered' },
  )
  clusterId = cluster.id
  projectId = (await must('POST', `${base}/project`, { name: 'shop' })).id
})
after(async () => {
  for (const name of environments)
    await admin.remove({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: `slipway-${name}` } })
  await revokeAccess(admin)
  admin.close()
  charts.close()
  await registry.close()
  await git.close()
  await sources.close()
  await removeGitPlace(folder)
  rmSync(folder, { recursive: true, force: true })
})

const newHelm = async (source: Json, more: Json = {}): Promise<Json> => {
  const body = { name: `env ${environments.length}`, cluster: clusterId }
  const environment = await must('POST', `/project/${projectId}/environment`, body)
  environments.push(environment.id)
  const asked = { name: 'shop', auto_deploy: false, arguments: [], timeout_sec: 60, source, ...more }
  const made = await must('POST', `/environment/${environment.id}/helm`, asked)
  // The host of its Ingress.
  await must('POST', `/helm/${made.id}/customDomain`, { domain: `${releaseOf(made.id)}.shop.test` })
  return made
}
const atRest = (path: string): Promise<Json> =>
  until(
    async () => {
      const { body } = await call('GET', `${path}/status`)
      return /^(DEPLOYED|STOPPED|.*_ERROR)$/.test(body.state) ? body : null
    },
    { what: `${path} to be at rest`, timeoutMs: 240_000 },
  )
const deploy = async (path: string, body: Json = {}): Promise<Json> => {
  await must('POST', `${path}/deploy`, body)
  return atRest(path)
}
const deployed = async (path: string, body: Json = {}): Promise<Json> => {
  const status = await deploy(path, body)
  assert.equal(status.state, 'DEPLOYED', JSON.stringify(status.error))
  return status
}
const read = (environmentId: string, path: string): Promise<Json> =>
  admin.get(path.replace('*', `namespaces/slipway-${environmentId}`))
const configOf = async (environmentId: string): Promise<Json> => {
  const { items } = await read(environmentId, '/api/v1/*/configmaps')
  return items.find(({ data }: Json) => data?.greeting !== undefined)?.data
}
const named = async (environmentId: string): Promise<string[]> => {
  const paths = ['/apis/apps/v1/*/deployments', '/api/v1/*/services', '/apis/networking.k8s.io/v1/*/ingresses']
  const lists = await Promise.all([...paths, '/apis/batch/v1/*/jobs'].map((path) => read(environmentId, path)))
  return lists.flatMap(({ kind, items }) => (items as Json[]).map(() => kind as string))
}
const put = async (version: string, more: Record<string, string> = {}): Promise<void> => {
  archives.set(version, await shopChart(version, more))
}

test('a chart over HTTP is installed, upgraded, failed, rolled back, stopped, started and deleted', async () => {
  await put('1.0.0')
  await put('1.1.0')
  const role = 'apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reader}\nrules: []\n'
  await put('3.0.0', { 'templates/x.yaml': role })
  const url = `http://127.0.0.1:${(charts.address() as AddressInfo).port}`
  const repository = await must('POST', `${base}/helmRepository`, {
    ...{ name: 'charts', kind: 'HTTPS', url, skip_tls_verification: false, config: {} },
  })
  const source = { helm_repository: { repository: repository.id, chart_name: 'shop', chart_version: '1.0.0' } }
  const service = await newHelm(source, { values_override: { set: [['greeting', 'hi slipway.env.WHO']] } })
  const { id, environment } = service
  const path = `/helm/${id}`
  const variable = { key: 'WHO', value: 'Ada', is_secret: false, variable_scope: 'HELM', variable_parent_id: id }
  await must('POST', '/variable', variable)
  const plan = await must('POST', `${path}/deploy?dry_run=true`, {})
  assert.equal(plan.stages[0].services[0].changes.objects?.length, 5, JSON.stringify(plan))

  const status = await deployed(path)
  assert.equal(status.running_state, 'RUNNING')
  assert.equal((await configOf(environment.id)).greeting, 'hi Ada')
  assert.deepEqual((await named(environment.id)).sort(), ['DeploymentList', 'IngressList', 'JobList', 'ServiceList'])
  const { runtime } = await api.parts.clusters.of(clusterId)
  const instances = await runtime.observe([{ environmentId: environment.id, serviceId: id }])
  assert.deepEqual(
    instances.map(({ state }) => state),
    ['running'],
  )

  const second = { values_override: { set: [['greeting', 'good day']] } }
  await must('PUT', path, {
    ...second,
    source: { helm_repository: { ...source.helm_repository, chart_version: '1.1.0' } },
  })
  await deployed(path)
  assert.equal((await configOf(environment.id)).greeting, 'good day')

  const broken = { values_override: { set: [['probePort', '1']] }, timeout_sec: 10 }
  await must('PUT', path, broken)
  const failed = await deploy(path)
  assert.equal(failed.state, 'DEPLOYMENT_ERROR')
  assert.match(failed.error.message, /Helm failed: .*Its probe fails/s)
  assert.equal((await configOf(environment.id)).greeting, 'good day')
  const refused = await deploy(path, { chart_version: '3.0.0' })
  assert.match(refused.error.message, /for the whole cluster \(ClusterRole reader\): set allow_cluster_wide_resources/)

  const { results: releases } = await must('GET', `${path}/release`)
  await must('POST', `${path}/rollback`, { release_id: releases.at(-1).id })
  assert.equal((await atRest(path)).state, 'DEPLOYED')
  assert.equal((await configOf(environment.id)).greeting, 'hi Ada')

  await must('POST', `${path}/stop`, {})
  assert.equal((await atRest(path)).state, 'STOPPED')
  assert.equal((await read(environment.id, '/apis/apps/v1/*/deployments')).items[0].spec.replicas, 0)
  assert.deepEqual(
    (await read(environment.id, '/api/v1/*/pods')).items.filter(({ status: { phase } }: Json) => phase === 'Running'),
    [],
  )
  await must('PUT', path, { ...second, timeout_sec: 60 })
  await deployed(path)
  assert.equal((await configOf(environment.id)).greeting, 'good day')

  await must('DELETE', path)
  const isGone = async () => (await call('GET', path)).status === 404
  await until(isGone, { what: 'the end of the service', timeoutMs: 120_000 })
  assert.deepEqual(await named(environment.id), [])
  const { items } = await read(environment.id, '/api/v1/*/secrets')
  assert.deepEqual(items, [])
})

test('a chart of a registry is installed by its digest', async () => {
  const archive = await shopChart('2.0.0')
  const authorization = `Basic ${Buffer.from(`${login.username}:${login.password}`).toString('base64')}`
  const blob = async (bytes: Buffer): Promise<{ digest: string; size: number }> => {
    const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
    const begun = await fetch(`http://${registry.host}/v2/team/shop/blobs/uploads/`, {
      ...{ method: 'POST', headers: { authorization } },
    })
    const at = new URL(begun.headers.get('location')!, `http://${registry.host}`)
    at.searchParams.set('digest', digest)
    const { status } = await fetch(at, { method: 'PUT', body: new Uint8Array(bytes), headers: { authorization } })
    assert.equal(status, 201)
    return { digest, size: bytes.length }
  }
  const manifestType = 'application/vnd.oci.image.manifest.v1+json'
  const manifest = {
    ...{ schemaVersion: 2, mediaType: manifestType },
    config: { mediaType: 'application/vnd.cncf.helm.config.v1+json', ...(await blob(Buffer.from('{}'))) },
    layers: [{ mediaType: 'application/vnd.cncf.helm.chart.content.v1.tar+gzip', ...(await blob(archive)) }],
  }
  const pushed = await fetch(`http://${registry.host}/v2/team/shop/manifests/2.0.0`, {
    ...{ method: 'PUT', body: JSON.stringify(manifest), headers: { 'content-type': manifestType, authorization } },
  })
  assert.equal(pushed.status, 201, await pushed.text())
  const repository = await must('POST', `${base}/helmRepository`, {
    ...{ name: 'registry', kind: 'OCI_GENERIC_CR', url: 'oci://registry.example/team' },
    ...{ skip_tls_verification: false, config: login },
  })
  // The registry of the test has no TLS, without which none can be named.
  await database.query(`update node set spec = jsonb_set(spec, '{url}', to_jsonb($2::text)) where id = $1`, [
    repository.id,
    `http://${registry.host}/team`,
  ])
  const source = { helm_repository: { repository: repository.id, chart_name: 'shop', chart_version: '2.0.0' } }
  const { id, environment } = await newHelm(source)
  await deployed(`/helm/${id}`)
  assert.equal((await configOf(environment.id)).greeting, 'hello')
  await must('POST', `/helm/${id}/uninstall`)
  await until(async () => (await named(environment.id)).length === 0, { what: 'the uninstall', timeoutMs: 60_000 })
})

test('a chart and its values of a git repository are installed, at its commit', async () => {
  await git.createRepository('charts')
  const files = Object.entries(shopFiles('4.0.0')).map(([path, text]) => [`shop/${path}`, text] as const)
  const commit = await git.commit(
    'charts',
    { ...Object.fromEntries(files), 'prod.yaml': 'greeting: from git\n' },
    'Charts',
  )
  const git_repository = { url: git.url('charts'), branch: 'main', root_path: '/shop' }
  const file = { git: { git_repository: { ...git_repository, root_path: '/' }, paths: ['prod.yaml'] } }
  const { id, environment } = await newHelm({ git_repository }, { values_override: { file } })
  await deployed(`/helm/${id}`)
  assert.equal((await configOf(environment.id)).greeting, 'from git')
  const { source } = await must('GET', `/helm/${id}`)
  assert.equal(source.git.git_repository.deployed_commit_id, commit)
  await must('DELETE', `/environment/${environment.id}`)
  const isGone = async () => (await admin.ask('GET', `/api/v1/namespaces/slipway-${environment.id}`)).status === 404
  await until(isGone, { what: 'the namespace to be gone', timeoutMs: 120_000 })
})
