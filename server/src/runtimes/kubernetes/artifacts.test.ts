/** What a cluster is asked about a service follows from what the service is. */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { startMemoryCluster } from '../../../test/support/kubernetes/api-server.ts'
import { createFakeHelm } from '../../../test/support/kubernetes/fake-helm.ts'
import { createMemoryRuntime } from '../../../test/support/kubernetes/memory-runtime.ts'
import {
  createRollout,
  createWorkload,
  deploymentError,
  nowhere,
  runningAs,
  signal,
} from '../../../test/support/runtimes/conformance.ts'
import { newId } from '../../lib/ids.ts'
import { Secret } from '../../lib/secret.ts'
import type { ArtifactKind, Desired, ServiceChart, ServiceKey } from '../runtime.ts'
import { releaseOf } from './helm/own-objects.ts'
import { namespaceOf } from './manifests/describe.ts'

const program = { image: 'registry.test/serve@sha256:1', entrypoint: null, arguments: null }
const stopped: Desired = { state: 'stopped', exposure: async () => nowhere, graceMs: 1000 }
const absent: Desired = { state: 'absent', graceMs: 1000 }

const start = async (t: TestContext) => {
  const cluster = await startMemoryCluster()
  const helm = createFakeHelm(cluster)
  const runtime = createMemoryRuntime(cluster, 'owner', undefined, { tool: helm.tool, access: cluster.access() })
  t.after(async () => {
    await runtime.close()
    await cluster.close()
  })
  const workload = createWorkload(program)
  await runtime.converge(workload, runningAs(workload, nowhere), createRollout().rollout, signal())
  const keyOf = (artifact?: ArtifactKind): ServiceKey => ({
    ...{ environmentId: workload.environmentId, serviceId: workload.serviceId },
    ...(artifact === undefined ? {} : { artifact }),
  })
  /** The paths of what is asked meanwhile that match. */
  const asked = async (pattern: RegExp, work: () => Promise<unknown>): Promise<string[]> => {
    const from = cluster.asked.length
    await work()
    return cluster.asked.slice(from).filter((path) => pattern.test(path))
  }
  const end = (service: ServiceKey, desired: Desired) => runtime.converge(service, desired, null, signal())
  return { cluster, runtime, workload, keyOf, asked, end, helm }
}

test('a container is stopped, looked at and removed without a question to helm or Argo CD', async (t) => {
  const { runtime, keyOf, asked, end } = await start(t)
  const service = keyOf('image')
  assert.deepEqual(await asked(/applications/, () => runtime.observe([service])), [])
  assert.equal((await runtime.observe([service])).length, 1)
  // A chart's releases are secrets.
  assert.deepEqual(await asked(/secrets|argoproj/, () => end(service, stopped)), [])
  assert.deepEqual(await asked(/argoproj/, () => end(service, absent)), [])
  assert.deepEqual((await runtime.owned()).instances, [])
})

test('a service of unknown kind ends as a chart, as an app and as instances', async (t) => {
  const { cluster, runtime, workload, keyOf, asked, end, helm } = await start(t)
  const namespace = namespaceOf(workload.environmentId)
  const service = keyOf()
  assert.notDeepEqual(await asked(/applications/, () => runtime.observe([service])), [])
  await end(keyOf('image'), stopped)
  const name = `slipway-${workload.serviceId}`
  const labels = { 'slipway.owner': 'owner', 'slipway.service': workload.serviceId }
  cluster.store.put({ kind: 'AppProject', metadata: { name, namespace: 'argocd', labels } } as never)
  const release = releaseOf(workload.serviceId)
  const labelled = { owner: 'helm', name: release }
  cluster.store.put({ kind: 'Secret', metadata: { name: 'release', namespace, labels: labelled } } as never)
  const own = { 'slipway.chart': workload.serviceId }
  cluster.store.put({ kind: 'ConfigMap', metadata: { name: 'left', namespace, labels: own } } as never)
  await end(service, absent)
  assert.ok(helm.ran.includes('uninstall'))
  for (const kind of ['AppProject', 'ConfigMap', 'Pod', 'Deployment'])
    assert.deepEqual(cluster.store.all(kind), [], kind)
})

test('a chart is not installed, and no container runs in its place, on a cluster without helm', async (t) => {
  const { cluster, workload } = await start(t)
  const without = createMemoryRuntime(cluster, 'owner')
  t.after(() => without.close())
  const chart = { waitSeconds: 1, allowClusterWide: false, content: new Secret({ archive: '', values: [] }) }
  const { organizationId, projectId, environmentId, revision } = workload
  const ids = { organizationId, projectId, environmentId, revision, serviceId: newId() }
  const charted: ServiceChart = { artifact: 'chart', ...ids, readyTimeoutMs: 0, chart }
  const desired = { state: 'running', workload: charted, exposure: async () => nowhere } as const
  const error = await deploymentError(without.converge(charted, desired, null, signal()))
  assert.equal(error.code, 'cluster_unable')
})
