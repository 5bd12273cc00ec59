/**
 * Argo CD apps through the API on a real cluster, with the definitions of Argo CD's resources. Its images are not
 * available here: the test plays the application controller, by writing what one writes
 * (support/kubernetes/fake-argo.ts).
 */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { removeGitPlace } from '../../src/builds/git/place.ts'
import { createSources } from '../../src/builds/sources.ts'
import { parseKubeconfig } from '../../src/lib/kubernetes/kubeconfig.ts'
import { createKubernetesApi } from '../../src/lib/kubernetes/kubernetes-api.ts'
import { watch } from '../../src/lib/kubernetes/watch.ts'
import { createLog } from '../../src/lib/log.ts'
import { createOutbound } from '../../src/lib/net/outbound.ts'
import { systemClock } from '../../src/lib/time/clock.ts'
import { createOpenKubernetes } from '../../src/runtimes/kubernetes/kubernetes.ts'
import { accessManifest } from '../../src/runtimes/kubernetes/rights.ts'
import { type Json, startApi } from '../support/api.ts'
import { createFakeEngines } from '../support/docker/fake-engines.ts'
import { createFakeArgo } from '../support/kubernetes/fake-argo.ts'
import { startGitServer } from '../support/peers/git-server.ts'
import { until } from '../support/until.ts'
import type { Admin } from './cluster/admin.ts'
import { argoDefinitions } from './cluster/argo.ts'
import { grantAccess, kubeconfig, openCluster, outbound, revokeAccess } from './cluster/scene.ts'

const folder = mkdtempSync(join(tmpdir(), 'slipway-argocd-'))
const argoNamespace = 'slipway-test-argocd'
const api = await startApi({
  engines: createFakeEngines(),
  openKubernetes: createOpenKubernetes(outbound.checkMachine),
  kubernetes: { outbound, argoNamespace },
})
const { call, organizationId } = api
const git = await startGitServer()
const sources = createSources({
  ...{ dataDir: folder, network: createOutbound({ allow: ['loopback'] }), concurrency: 1 },
  ...{ log: createLog('silent'), clock: systemClock },
})
Object.assign(api.parts.builder, { fetch: sources.fetch, head: sources.head })

let admin: Admin
let clusterId: string
let projectId: string
const environments: string[] = []
const base = `/organization/${organizationId}`
const apps = `/apis/argoproj.io/v1alpha1/namespaces/${argoNamespace}/applications`
const must = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}
const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: argoNamespace } }
before(async () => {
  admin = await openCluster()
  const ours = await grantAccess(admin, accessManifest.items)
  const credentials = await must('POST', `${base}/onPremise/credentials`, { name: 'kubernetes', kubeconfig: ours })
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
const playing = new AbortController()
after(async () => {
  playing.abort()
  for (const name of environments)
    await admin.remove({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: `slipway-${name}` } })
  const { body } = await admin.ask('GET', apps)
  for (const app of (body.items ?? []) as Json[])
    await admin.ask('PATCH', `${apps}/${app.metadata.name}`, { metadata: { finalizers: null } }, merging)
  for (const each of [...argoDefinitions, namespace]) await admin.remove(each)
  await revokeAccess(admin)
  admin.close()
  await git.close()
  await sources.close()
  await removeGitPlace(folder)
  rmSync(folder, { recursive: true, force: true })
})

const merging = 'application/merge-patch+json'
const argo = createFakeArgo({
  apply: (manifest) => admin.apply(manifest),
  remove: (manifest) => admin.remove(manifest),
  async patch({ metadata }, patch) {
    const { status, body } = await admin.ask('PATCH', `${apps}/${metadata.name}`, patch, merging)
    assert.ok(status < 300 || status === 404, JSON.stringify(body))
  },
  async project({ spec }) {
    const { status, body } = await admin.ask('GET', `${apps.replace('applications', 'appprojects')}/${spec.project}`)
    return status === 200 ? body : undefined
  },
})
/** Looks at each after every change, until the tests are over. */
const play = async (): Promise<void> => {
  const watching = createKubernetesApi(await parseKubeconfig(kubeconfig), outbound.checkMachine)
  const options = { signal: playing.signal, clock: systemClock }
  for await (const change of watch<Json>(watching, apps, options))
    for (const { metadata } of change.type === 'ALL' ? change.items : [change.object]) {
      const { status, body } = await admin.ask('GET', `${apps}/${metadata.name}`)
      if (status === 200) await argo.see(body)
    }
  await watching.close()
}
const deployment: Json = {
  ...{ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'shop' } },
  spec: {
    ...{ replicas: 1, selector: { matchLabels: { app: 'shop' } } },
    template: {
      metadata: { labels: { app: 'shop' } },
      spec: { containers: [{ name: 'shop', image: 'registry.invalid/shop:1' }] },
    },
  },
}
argo.manifests = (commit) => [
  deployment,
  { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'shop' }, data: { commit } },
]

const statusOf = (path: string, what: string, isSo: (status: Json) => boolean): Promise<Json> =>
  until(
    async () => {
      const { body } = await call('GET', `${path}/status`)
      return isSo(body) ? body : null
    },
    { what: `${path} to be ${what}`, timeoutMs: 60_000 },
  )
const atRest = async (path: string, wanted: string): Promise<Json> => {
  const status = await statusOf(path, 'at rest', ({ state }) => /^(DEPLOYED|STOPPED|.*_ERROR)$/.test(state))
  assert.equal(status.state, wanted, JSON.stringify(status))
  return status
}
const read = (environmentId: string, path: string): Promise<{ status: number; body: Json }> =>
  admin.ask('GET', path.replace('*', `namespaces/slipway-${environmentId}`))

test('an app of a git repository is an Application that the cluster accepts, followed, changed, stopped and deleted with all its objects', async () => {
  await git.createRepository('apps')
  const first = await git.commit('apps', { 'shop/a.yaml': '{}' }, 'Apps')
  const git_repository = { url: git.url('apps'), branch: 'main', root_path: '/shop' }
  const environment = await must('POST', `/project/${projectId}/environment`, { name: 'apps', cluster: clusterId })
  environments.push(environment.id)
  const body = { name: 'shop', namespace: argoNamespace, git_repository }
  const { id } = await must('POST', `/environment/${environment.id}/argocdApp`, body)
  const path = `/argocdApp/${id}`
  const refused = await call('POST', `${path}/deploy`, {})
  assert.deepEqual([refused.status, /^Argo CD is not installed/.test(refused.body.message)], [400, true])

  await admin.apply(namespace)
  for (const each of argoDefinitions) await admin.apply(each)
  await until(async () => (await admin.ask('GET', apps)).status === 200, { timeoutMs: 60_000, what: 'the definitions' })
  const played = play()
  const config = async () => (await read(environment.id, '/api/v1/*/configmaps/shop')).body.data?.commit
  await must('POST', `${path}/deploy`, {})
  assert.equal((await atRest(path, 'DEPLOYED')).running_state, 'RUNNING')
  assert.equal(await config(), first)
  const name = `slipway-${id}`
  const { metadata, spec } = await admin.get(`${apps}/${name}`)
  assert.ok(
    metadata.managedFields.some(({ manager, operation }: Json) => manager === 'slipway' && operation === 'Apply'),
  )
  assert.deepEqual(spec.source, { repoURL: git.url('apps'), path: 'shop', targetRevision: first })
  const manifest = await must('GET', `${path}/manifest`)
  assert.deepEqual(
    manifest.manifest_metadata.managed_resources.map(({ kind, liveState }: Json) => [kind, JSON.parse(liveState).kind]),
    [
      ['Deployment', 'Deployment'],
      ['ConfigMap', 'ConfigMap'],
    ],
  )

  const second = await git.commit('apps', { 'shop/b.yaml': '{}' }, 'More')
  const outcome = argo.outcome
  argo.outcome = () => ({ phase: 'Failed', message: 'one or more objects failed to apply' })
  await must('POST', `${path}/deploy`, {})
  await atRest(path, 'DEPLOYMENT_ERROR').then(({ error }) => assert.match(error.message, /one or more objects failed/))
  argo.outcome = outcome
  assert.equal((await admin.get(`${apps}/${name}`)).spec.source.targetRevision, first)
  await must('POST', `${path}/deploy`, {})
  await atRest(path, 'DEPLOYED')
  assert.equal(await config(), second)

  const ill = { status: { health: { status: 'Degraded', message: 'no image' } } }
  await admin.ask('PATCH', `${apps}/${name}`, ill, merging)
  const told = await statusOf(path, 'ill', ({ running_state: state }) => state === 'ERROR')
  assert.equal(told.error.message, 'Argo CD says Degraded and Synced. no image.')
  await admin.ask('PATCH', `${apps}/${name}`, { status: { health: { status: 'Healthy', message: null } } }, merging)
  await statusOf(path, 'well', ({ running_state: state }) => state === 'RUNNING')

  await must('POST', `${path}/stop`, {})
  await atRest(path, 'STOPPED')
  const replicas = async () => (await read(environment.id, '/apis/apps/v1/*/deployments/shop')).body.spec.replicas
  assert.equal(await replicas(), 0)
  assert.equal((await admin.get(`${apps}/${name}`)).spec.syncPolicy.automated, undefined)
  await must('POST', `${path}/deploy`, {})
  await atRest(path, 'DEPLOYED')
  assert.equal(await replicas(), 1)

  await must('DELETE', path)
  const isGone = async () => (await call('GET', path)).status === 404
  await until(isGone, { what: 'the end of the app', timeoutMs: 60_000 })
  for (const kind of ['applications', 'appprojects'])
    assert.deepEqual((await admin.get(apps.replace('applications', kind))).items, [], kind)
  assert.equal((await admin.ask('GET', `/api/v1/namespaces/${argoNamespace}/secrets/${name}`)).status, 404)
  for (const at of ['/api/v1/*/configmaps/shop', '/apis/apps/v1/*/deployments/shop'])
    assert.equal((await read(environment.id, at)).status, 404, at)
  playing.abort()
  await played
})
