/** A real cluster is registered by its kubeconfig, and the rights of our manifest are enough and not more. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { parse } from 'yaml'
import { createOpenKubernetes } from '../../src/runtimes/kubernetes/kubernetes.ts'
import { accessManifest, rights } from '../../src/runtimes/kubernetes/rights.ts'
import { type Json, startApi } from '../support/api.ts'
import { createFakeEngines } from '../support/docker/fake-engines.ts'
import { hearSocket } from '../support/streams.ts'
import { until } from '../support/until.ts'
import { type Admin, openAdmin } from './cluster/admin.ts'
import { grantAccess, kubeconfig, manifestWith, openCluster, outbound, revokeAccess } from './cluster/scene.ts'

const patience = { timeoutMs: 60_000 }
const openKubernetes = createOpenKubernetes(outbound.checkMachine)
const { call, organizationId, url, token } = await startApi({ engines: createFakeEngines(), openKubernetes })
const base = `/organization/${organizationId}`

let admin: Admin
let ours: string
before(async () => {
  admin = await openCluster()
  ours = await grantAccess(admin, accessManifest.items)
})
after(async () => {
  await revokeAccess(admin)
  admin.close()
})

let made = 0
const newCredentials = (text: string): Promise<Json> => {
  made += 1
  return call('POST', `${base}/onPremise/credentials`, { name: `kubernetes ${made}`, kubeconfig: text })
}

const register = async (text: string): Promise<string> => {
  const { status, body } = await newCredentials(text)
  assert.equal(status, 201, JSON.stringify(body))
  const answer = await call('POST', `${base}/cluster`, {
    ...{ name: `cluster ${made}`, cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' },
    cloud_provider_credentials: { credentials: { id: body.id } },
  })
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return `${base}/cluster/${answer.body.id}`
}

test('a cluster is registered with the account of the manifest, checked, and removed', async () => {
  const path = await register(ours)
  const status = async (): Promise<Json> => (await call('GET', `${path}/status`)).body
  const { gitVersion } = await admin.get('/version')
  const { items: nodes } = await admin.get('/api/v1/nodes')
  assert.deepEqual([(await call('GET', path)).body.version, (await status()).status], [gitVersion, 'DEPLOYED'])
  const capacity = async () => (await call('GET', path)).body.cpu >= 1000 * Number(nodes[0].status.allocatable.cpu)
  await until(capacity, { ...patience, what: 'its capacity to be known' })

  const socket = await hearSocket(`${url}/cluster/metrics?cluster=${path.split('/').at(-1)}`, token)
  await until(() => socket.all.length > 0, { ...patience, what: 'the machines' })
  socket.close()
  const names = (list: Json[], nameOf: (each: Json) => string): string[] => list.map(nameOf).sort()
  assert.deepEqual(
    names(socket.all.at(-1)!.nodes, ({ name }) => name),
    names(nodes, ({ metadata }) => metadata.name),
  )

  const { kubernetesAccess } = parse((await call('GET', `${path}/installationHelmValues`)).body as string)
  assert.deepEqual(kubernetesAccess, accessManifest)

  const binding = accessManifest.items.find(({ kind }) => kind === 'ClusterRoleBinding')!
  await admin.remove(binding)
  const lost = async () => (await status()).status === 'INVALID_CREDENTIALS'
  await until(lost, { ...patience, what: 'the loss of the rights to be seen' })
  await admin.apply(binding)
  await until(async () => (await status()).status === 'DEPLOYED', { ...patience, what: 'the rights to be back' })
  assert.equal((await call('DELETE', path)).status, 204)
})

test('credentials accept a client certificate, and are refused with the name of a missing right', async () => {
  assert.equal((await newCredentials(kubeconfig)).status, 201)
  const fewer = manifestWith((rules) => rules.filter(({ resources }) => !resources.includes('jobs')))
  const lesser = await grantAccess(admin, fewer)
  const refused = async () => {
    const { status, body } = await newCredentials(lesser)
    return status === 400 && /lacks these rights in the cluster: .*create.* jobs\.batch\.$/.test(body.message)
  }
  await until(refused, { ...patience, what: 'a login without jobs to be refused' })
  await grantAccess(admin, accessManifest.items)
  await until(async () => (await newCredentials(lesser)).status === 201, { ...patience, what: 'all rights to count' })
})

const reviewRules = async (who: Admin): Promise<Json[]> => {
  const spec = { namespace: 'any-namespace' }
  const body = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectRulesReview', spec }
  const answer = await who.ask('POST', '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews', body)
  assert.equal(answer.body.status.incomplete, false)
  return answer.body.status.resourceRules
}

const actsOf = (rules: Json[]): Set<string> =>
  new Set(
    rules.flatMap(({ apiGroups, resources, verbs, resourceNames = [] }) =>
      apiGroups.flatMap((group: string) =>
        resources.flatMap((resource: string) =>
          verbs.map((verb: string) => [verb, resource, group, ...resourceNames].join(' ')),
        ),
      ),
    ),
  )

const without = (acts: Set<string>, others: Set<string>): string[] => [...acts].filter((act) => !others.has(act)).sort()

test('the account has exactly the rights of our table, beyond those of every account', async () => {
  const wanted = actsOf(rights.map(({ group, ...rest }) => ({ apiGroups: [group], ...rest })))
  const account = await openAdmin(ours)
  const binding = accessManifest.items.find(({ kind }) => kind === 'ClusterRoleBinding')!
  try {
    const settled = async () => without(wanted, actsOf(await reviewRules(account))).length === 0
    await until(settled, { ...patience, what: 'the rights of the account' })
    const granted = actsOf(await reviewRules(account))
    await admin.remove(binding)
    await until(async () => !(await settled()), { ...patience, what: 'the rights to be taken' })
    const usual = actsOf(await reviewRules(account))
    assert.deepEqual(without(granted, usual), [...wanted].sort())
    assert.ok(
      [...usual].every((act) => /^create self\w+reviews? |^get /.test(act)),
      [...usual].join('; '),
    )
  } finally {
    await admin.apply(binding)
    account.close()
  }
})

const namespace = 'slipway-test-rights'
const labels = { app: 'shop' }
const container = { name: 'shop', image: 'busybox:1', command: ['true'] }
const template = { metadata: { labels }, spec: { containers: [container] } }
const meta = { name: 'shop', namespace }
const selector = { matchLabels: labels }

/** One of each kind that the table lets us manage and that every cluster has. */
const objects: Json[] = [
  { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } },
  { apiVersion: 'v1', kind: 'Secret', metadata: meta, stringData: { a: 'b' } },
  { apiVersion: 'v1', kind: 'ConfigMap', metadata: meta, data: { a: 'b' } },
  { apiVersion: 'v1', kind: 'Service', metadata: meta, spec: { selector: labels, ports: [{ port: 80 }] } },
  {
    ...{ apiVersion: 'v1', kind: 'PersistentVolumeClaim', metadata: meta },
    spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } },
  },
  { apiVersion: 'apps/v1', kind: 'Deployment', metadata: meta, spec: { replicas: 0, selector, template } },
  {
    ...{ apiVersion: 'apps/v1', kind: 'StatefulSet', metadata: meta },
    spec: { replicas: 0, selector, template, serviceName: 'shop' },
  },
  {
    ...{ apiVersion: 'batch/v1', kind: 'Job', metadata: meta },
    spec: { suspend: true, template: { spec: { containers: [container], restartPolicy: 'Never' } } },
  },
  {
    ...{ apiVersion: 'autoscaling/v2', kind: 'HorizontalPodAutoscaler', metadata: meta },
    spec: { maxReplicas: 2, scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: 'shop' } },
  },
  { apiVersion: 'policy/v1', kind: 'PodDisruptionBudget', metadata: meta, spec: { minAvailable: 1, selector } },
  { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', metadata: meta, spec: { podSelector: selector } },
  {
    ...{ apiVersion: 'networking.k8s.io/v1', kind: 'Ingress', metadata: meta },
    spec: { defaultBackend: { service: { name: 'shop', port: { number: 80 } } } },
  },
]

test('the account applies, changes and deletes one of each kind, and cannot extend its own rights', async (t) => {
  const account = await openAdmin(ours)
  t.after(() => account.close())
  t.after(() => admin.remove(objects[0]))
  const first = () => account.apply(objects[0]).then(Boolean, () => false)
  await until(first, { ...patience, what: 'the rights to be back' })
  for (const each of objects) {
    await account.apply(each)
    await account.apply({ ...each, metadata: { ...each.metadata, labels: { again: 'yes' } } })
  }
  const role = { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'cluster-admin' }
  const subjects = [{ kind: 'ServiceAccount', name: 'slipway', namespace: 'slipway' }]
  const forbidden: Json[] = [
    {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata: { name: 'shop' },
      roleRef: role,
      subjects,
    },
    { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'RoleBinding', metadata: meta, roleRef: role, subjects },
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: meta },
    { apiVersion: 'v1', kind: 'Pod', metadata: meta, spec: template.spec },
    { apiVersion: 'apps/v1', kind: 'DaemonSet', metadata: meta, spec: { selector, template } },
  ]
  for (const each of forbidden) await assert.rejects(account.apply(each), / 403 .*forbidden/, each.kind)
  for (const each of objects.toReversed()) await account.remove(each)
  const gone = async () => (await admin.ask('GET', `/api/v1/namespaces/${namespace}`)).status === 404
  await until(gone, { timeoutMs: 120_000, what: 'the namespace to be gone' })
})
