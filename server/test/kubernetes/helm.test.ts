/** Charts on a real cluster by a real helm: installed, upgraded, failed, rolled back, refused, removed. */
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { findTool } from '../../src/builds/tools.ts'
import { parseKubeconfig } from '../../src/lib/kubernetes/kubeconfig.ts'
import { createKubernetesApi, type KubernetesApi } from '../../src/lib/kubernetes/kubernetes-api.ts'
import { createHelm } from '../../src/runtimes/kubernetes/helm/helm.ts'
import type { HelmOptions, HelmPlace } from '../../src/runtimes/kubernetes/helm/release.ts'
import { createHelmTool } from '../../src/runtimes/kubernetes/helm/tool.ts'
import { accessManifest } from '../../src/runtimes/kubernetes/rights.ts'
import type { Json } from '../support/api.ts'
import { until } from '../support/until.ts'
import type { Admin } from './cluster/admin.ts'
import { shopChart } from './cluster/chart.ts'
import { grantAccess, openCluster, outbound, revokeAccess } from './cluster/scene.ts'

const namespace = 'slipway-test-helm'
const folder = mkdtempSync(join(tmpdir(), 'slipway-helm-'))
const helm = createHelm(
  createHelmTool(() => findTool('helm', {}), folder),
  outbound.checkMachine,
)
const options: HelmOptions = { timeoutSeconds: 60 }

let admin: Admin
let place: HelmPlace
let api: KubernetesApi
before(async () => {
  admin = await openCluster()
  const access = await parseKubeconfig(await grantAccess(admin, accessManifest.items))
  api = createKubernetesApi(access, outbound.checkMachine)
  place = { access, api, namespace, release: 'shop' }
  await admin.apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } })
  const usable = () => api.get(`/api/v1/namespaces/${namespace}/pods`).then(Boolean, () => false)
  await until(usable, { timeoutMs: 60_000, what: 'the rights of the account' })
})
after(async () => {
  await api.close()
  await admin.remove({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } })
  await revokeAccess(admin)
  admin.close()
  rmSync(folder, { recursive: true })
})

const read = (path: string): Promise<Json> => admin.get(path.replace('*', `namespaces/${namespace}`))
const configMap = async (): Promise<Json> => (await read('/api/v1/*/configmaps/shop')).data
const chart = async (version: string, values: Json = {}, more: Record<string, string> = {}) => ({
  ...{ archive: await shopChart(version, more), values: [JSON.stringify(values)], allowClusterWide: false },
  domains: ['shop.shop.test'],
})
const revisions = async (): Promise<string[]> =>
  (await helm.history(place)).map(({ revision, status, chart: name }) => `${revision} ${status} ${name}`)

test('a chart is planned, installed, upgraded, failed, rolled back and removed', async () => {
  const first = await chart('1.0.0')
  const plan = await helm.plan(place, first)
  assert.deepEqual(
    [plan.chart, plan.differences.map(({ name, change }) => `${change} ${name}`).sort()],
    ['shop 1.0.0', ['added ConfigMap shop', 'added Deployment shop', 'added Ingress shop', 'added Service shop']],
  )
  const { objects: made, unrouted } = await helm.upgrade(place, first, options)
  assert.deepEqual(unrouted, [])
  assert.deepEqual(made.map(({ kind }) => kind).sort(), ['ConfigMap', 'Deployment', 'Ingress', 'Job', 'Service'])
  assert.deepEqual(await configMap(), { greeting: 'hello', literal: '{{ not rendered twice }}' })
  assert.equal((await read('/apis/batch/v1/*/jobs/shop-prepare')).status.succeeded, 1)
  assert.equal((await read('/apis/apps/v1/*/deployments/shop')).status.readyReplicas, 1)

  const second = await chart('1.1.0', { greeting: 'good day' })
  assert.deepEqual((await helm.plan(place, second)).differences, [{ name: 'ConfigMap shop', change: 'changed' }])
  await helm.upgrade(place, second, options)
  assert.equal((await configMap()).greeting, 'good day')

  const broken = await chart('1.2.0', { greeting: 'never', probePort: 1 })
  await assert.rejects(helm.upgrade(place, broken, { timeoutSeconds: 5 }), /Helm failed: /)
  assert.equal((await configMap()).greeting, 'good day')
  assert.deepEqual(await revisions(), [
    '4 deployed shop-1.1.0',
    '3 failed shop-1.2.0',
    '2 superseded shop-1.1.0',
    '1 superseded shop-1.0.0',
  ])

  await helm.rollback(place, 1, options)
  assert.equal((await configMap()).greeting, 'hello')
  await assert.rejects(helm.rollback(place, 99, options), /no revision 99/)
  await helm.uninstall(place, options)
  assert.deepEqual(await revisions(), [])
  for (const path of ['/apis/apps/v1/*/deployments', '/api/v1/*/services', '/apis/networking.k8s.io/v1/*/ingresses'])
    assert.deepEqual((await read(path)).items, [], path)
  await helm.uninstall(place, options)
  assert.deepEqual(readdirSync(folder), [])
})

test('a chart that asks for the whole cluster, or for other namespaces, is refused before anything is made', async () => {
  const role = 'apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reader}\nrules: []\n'
  const definition = (name: string) =>
    `apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ${name}}\nspec: {}\n`
  const config = (more: string) => `apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a${more}}\n`
  const listed = `apiVersion: v1\nkind: List\nitems:\n- ${role.replaceAll('\n', '\n  ')}`
  const cases: [Record<string, string>, RegExp][] = [
    [{ 'templates/x.yaml': role }, /for the whole cluster \(ClusterRole reader\): set allow_cluster_wide_resources/],
    [{ 'templates/x.yaml': listed }, /ClusterRole reader/],
    [{ 'crds/x.yaml': definition('things.a.test') }, /CustomResourceDefinition things\.a\.test/],
    [{ 'templates/x.yaml': config(', namespace: kube-system') }, /other namespaces .*ConfigMap a/],
    [
      { 'templates/x.yaml': 'apiVersion: a.test/v1\nkind: Thing\nmetadata: {name: a}\n' },
      /Thing a of a\.test\/v1, which the cluster does not know/,
    ],
    [{ 'templates/x.yaml': config(', b: [') }, /Helm failed: .*YAML|cannot be read/],
    [{ 'templates/x.yaml': '{{ fail "not like this" }}' }, /Helm failed: .*not like this/],
    [
      { 'templates/x.yaml': '{{ if lookup "v1" "Namespace" "" "kube-system" }}{{ fail "it looked" }}{{ end }}a: b' },
      /without an apiVersion/,
    ],
  ]
  for (const [more, reason] of cases) {
    await assert.rejects(helm.upgrade(place, await chart('1.0.0', {}, more), options), reason)
    await assert.rejects(helm.plan(place, await chart('1.0.0', {}, more)), reason)
  }
  assert.deepEqual(await revisions(), [])
  assert.equal((await admin.ask('GET', `/apis/apps/v1/namespaces/${namespace}/deployments/shop`)).status, 404)
})

test('the next upgrade cleans up after a killed one', async () => {
  await helm.upgrade(place, await chart('1.0.0'), options)
  const killed = new AbortController()
  const slow = helm.upgrade(place, await chart('1.1.0', { probePort: 1 }), { ...options, signal: killed.signal })
  slow.catch(() => {})
  const begun = async () => (await revisions())[0] === '2 pending-upgrade shop-1.1.0'
  await until(begun, { timeoutMs: 60_000, what: 'the upgrade to begin' })
  killed.abort(new Error('killed'))
  await assert.rejects(slow, /killed/)
  await helm.upgrade(place, await chart('1.2.0', { greeting: 'again' }), options)
  assert.equal((await configMap()).greeting, 'again')
  assert.match((await revisions())[0]!, /deployed shop-1\.2\.0$/)
  await helm.uninstall(place, options)
})

test('without helm a run is refused with advice for the operator', async () => {
  const without = createHelm(
    createHelmTool(async () => null, folder),
    outbound.checkMachine,
  )
  await assert.rejects(without.history(place), /Helm is not installed on this server: install `helm`/)
})
