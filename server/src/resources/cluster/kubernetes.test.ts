/** A Kubernetes cluster, from its registration to its end; services on it are tested in kubernetes-services.test.ts. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, test } from 'node:test'
import { type Json, startApi } from '../../../test/support/api.ts'
import { createFakeEngines, engineWith } from '../../../test/support/docker/fake-engines.ts'
import {
  allRules,
  failure,
  json,
  kubeconfigOf,
  nodeNamed,
  startCluster,
  type TestCluster,
} from '../../../test/support/peers/kubernetes.ts'
import { hearSocket } from '../../../test/support/streams.ts'
import { until } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'
import { usualLimits } from '../../limits/limits.ts'
import { accessManifest, rights } from '../../runtimes/kubernetes/rights.ts'

const api = await startApi({ engines: createFakeEngines() })
const { call, organizationId } = api
const base = `/organization/${organizationId}`
const clusters: TestCluster[] = []
after(() => Promise.all(clusters.map((cluster) => cluster.close())))

const newKubernetes = async (): Promise<TestCluster> => {
  const cluster = await startCluster()
  clusters.push(cluster)
  return cluster
}

const configOf = ({ port, token }: TestCluster): string => JSON.stringify(kubeconfigOf(port, token))

let made = 0
const credentialsOf = (body: Json, send = call, organization = organizationId): Promise<Json> => {
  made += 1
  return send('POST', `/organization/${organization}/onPremise/credentials`, { name: `kubernetes ${made}`, ...body })
}
const credentialsAt = async (cluster: TestCluster, send = call, organization = organizationId): Promise<string> => {
  const answer = await credentialsOf({ kubeconfig: configOf(cluster) }, send, organization)
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body.id
}

const naming = (id: string) => ({ cloud_provider_credentials: { credentials: { id } } })
const own = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'on-premise' }
const newCluster = (credentialsId: string, more: Json = {}, send = call, organization = organizationId) => {
  made += 1
  const body = { name: `cluster ${made}`, ...own, ...naming(credentialsId), ...more }
  return send('POST', `/organization/${organization}/cluster`, body)
}

const register = async () => {
  const kubernetes = await newKubernetes()
  const credentialsId = await credentialsAt(kubernetes)
  const answer = await newCluster(credentialsId)
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  const path = `${base}/cluster/${answer.body.id}`
  const status = async (): Promise<Json> => (await call('GET', `${path}/status`)).body
  const edit = (body: Json) => call('PUT', `${base}/onPremise/credentials/${credentialsId}`, body)
  return { kubernetes, credentialsId, id: answer.body.id as string, record: answer.body, path, status, edit }
}

const newEnvironment = async (cluster: string): Promise<string> => {
  made += 1
  const project = await call('POST', `${base}/project`, { name: `project ${made}` })
  return (await call('POST', `/project/${project.body.id}/environment`, { name: 'production', cluster })).body.id
}

const reason = ({ status, body }: Json): string => `${status} ${body.details?.[0]?.field ?? body.code} ${body.message}`

const lastOf = async (socket: Awaited<ReturnType<typeof hearSocket>>): Promise<Json> => {
  await until(() => socket.all.length > 0, { what: 'a frame', timeoutMs: 20_000 })
  socket.close()
  return socket.all.at(-1)!
}

test('a Kubernetes cluster is registered by its kubeconfig, looked at, and taken away', async () => {
  const { kubernetes, credentialsId, id, record, path, status } = await register()
  assert.deepEqual([record.status, record.version, record.is_default], ['DEPLOYED', 'v1.31.2+k3s1', false])
  const { status: state, is_deployed, error_message } = await status()
  assert.deepEqual([state, is_deployed, error_message], ['DEPLOYED', true, undefined])
  assert.deepEqual((await call('GET', `${path}/isReady`)).body, { is_ready: true })
  await until(async () => (await call('GET', path)).body.cpu !== undefined, {
    what: 'its capacity to be known',
    timeoutMs: 30_000,
  })
  const { cpu, memory } = (await call('GET', path)).body
  assert.deepEqual([cpu, memory], [2 * 3920, 2 * 16 * 1024])
  assert.equal((await call('POST', `${path}/deploy`)).body.status, 'DEPLOYED')
  for (const action of [`${path}/stop`, `/cluster/${id}/upgrade`])
    assert.match(reason(await call('POST', action)), /^400 .*use the tools that this one was made with/)

  const kubeconfig = await call('GET', `${path}/kubeconfig`)
  assert.deepEqual([kubeconfig.status, kubeconfig.body], [200, configOf(kubernetes)])
  const lesser = api.as(await api.newToken(['Read', 'Write', 'Deploy']))
  assert.equal((await lesser('GET', `${path}/kubeconfig`)).status, 403)
  const put = await call('PUT', `${path}/kubeconfig`, 'apiVersion: v1\nclusters: []\nusers: []\n', {
    'content-type': 'application/x-yaml',
  })
  assert.match(reason(put), /^400 .*kubeconfig of its credentials/)

  assert.equal((await call('DELETE', `${base}/onPremise/credentials/${credentialsId}`)).body.code, 'credentials_in_use')
  assert.equal((await call('DELETE', path)).status, 204)
  assert.equal((await call('DELETE', `${base}/onPremise/credentials/${credentialsId}`)).status, 204)
  assert.equal((await call('GET', `${path}/status`)).status, 404)
  await until(async () => !(await api.parts.clusters.of(id)).isConnected, { what: 'it to be let go' })
})

test('its machines are in the streams of the cluster, with what is wrong with them', async () => {
  const { kubernetes, id } = await register()
  const pressed = [
    { type: 'Ready', status: 'True', reason: 'KubeletReady', message: 'ready' },
    { type: 'DiskPressure', status: 'True', reason: 'Full', message: 'the disk is full' },
  ]
  kubernetes.nodes = [nodeNamed('one'), nodeNamed('two', { conditions: pressed }), null, { metadata: 5 }]
  const status = await lastOf(await hearSocket(`${api.url}/cluster/status?cluster=${id}`, api.token))
  assert.equal(status.computed_status.global_status, 'RUNNING')
  assert.deepEqual(status.computed_status.node_warnings, {
    two: [{ type: 'DiskPressure', reason: 'Full', message: 'the disk is full', node_attributes: {} }],
  })
  const { nodes } = await lastOf(await hearSocket(`${api.url}/cluster/metrics?cluster=${id}`, api.token))
  assert.deepEqual(
    nodes.map(({ name }: Json) => name),
    ['one', 'two', '', ''],
  )
  const [{ pods, metrics_usage, conditions, ...node }] = nodes
  assert.deepEqual([pods, metrics_usage, conditions[0].type], [[], {}, 'Ready'])
  const { type, status: isThere, message } = conditions.at(-1)
  assert.deepEqual([type, isThere, /install metrics-server/.test(message)], ['MetricsAvailable', 'False', true])
  const measured = [{ metadata: { name: 'one' }, usage: { cpu: '392m', memory: '4Gi' } }]
  const metricsPath = '/apis/metrics.k8s.io/v1beta1/nodes'
  kubernetes.instead.set(metricsPath, (_, response) => json(response, { items: measured, metadata: {} }))
  const { nodes: told } = await lastOf(await hearSocket(`${api.url}/cluster/metrics?cluster=${id}`, api.token))
  assert.deepEqual(
    told.map(({ metrics_usage: used }: Json) => [
      used.cpu_milli_usage,
      used.cpu_percent_usage,
      used.memory_mib_rss_usage,
    ]),
    [[392, 10, 4096], ...Array(3).fill([undefined, undefined, undefined])],
  )
  assert.equal(told[0].conditions.at(-1).type, 'Ready')
  assert.deepEqual([node.instance_type, node.architecture, node.kubelet_version], ['m5', 'arm64', 'v1.31.2'])
  assert.deepEqual(node.resources_allocatable, {
    ...{ cpu_milli: 3920, memory_mib: 16_384, ephemeral_storage_mib: 1024, pods: 110 },
  })
  assert.deepEqual(node.taints, [{ key: 'only', value: 'gpu', effect: 'NoSchedule' }])

  kubernetes.instead.set('/api/v1/nodes', (_, response) => failure(response, 500, 'etcd is away'))
  const broken = await lastOf(await hearSocket(`${api.url}/cluster/status?cluster=${id}`, api.token))
  assert.equal(broken.computed_status.global_status, 'ERROR')
  assert.match(broken.computed_status.node_warnings['api-server'][0].message, /status 500: etcd is away/)
})

test('a kubeconfig that cannot be used is refused by a sentence, and nothing is kept', async () => {
  const before = (await call('GET', `${base}/onPremise/credentials`)).body.results.length
  const cluster = await newKubernetes()
  const told = async (change: () => Json | undefined): Promise<string> => {
    const [rules, version] = [cluster.rules, cluster.version]
    const more = change()
    const answer = await credentialsOf({ kubeconfig: configOf(cluster), ...more })
    Object.assign(cluster, { rules, version })
    cluster.instead.clear()
    return reason(answer)
  }
  const lacking = (...names: string[]) =>
    allRules().map((rule) => ({ ...rule, resources: rule.resources.filter((name: string) => !names.includes(name)) }))
  const has = (fields: Partial<TestCluster>) => (): undefined => {
    Object.assign(cluster, fields)
  }
  const cases: [() => Json | undefined, RegExp][] = [
    [() => ({ kubeconfig: 'x: [' }), /kubeconfig: is not valid YAML$/],
    [() => ({ kubeconfig: JSON.stringify(kubeconfigOf(cluster.port, 'wrong')) }), /does not accept the credentials/],
    [() => ({ kubeconfig: JSON.stringify(kubeconfigOf(1, 'x')) }), /connection was refused/],
    [has({ version: 'v1.27.16' }), /Kubernetes 1\.27 is too old: the cluster must have 1\.28 or later/],
    [has({ version: 'master' }), /does not say which version/],
    [has({ rules: lacking('nodes') }), /lacks these rights in the cluster: get, list, watch nodes/],
    [has({ rules: [] }), /lacks these rights.* namespaces; .*and rights on \d+ more\.$/],
    [has({ rules: allRules().map((rule) => ({ ...rule, resourceNames: ['only-this'] })) }), /lacks these rights/],
    [
      () => {
        cluster.rules = lacking('namespaces')
        cluster.instead.set('/api/v1/namespaces/kube-system', (_, response) => failure(response, 403, 'forbidden'))
        return undefined
      },
      /lacks these rights in the cluster: get, list, watch, create, patch, delete namespaces\.$/,
    ],
    [
      () =>
        void cluster.instead.set('/api/v1/namespaces/kube-system', (_, response) => json(response, { metadata: {} })),
      /is not the API server of a Kubernetes cluster/,
    ],
    [() => engineWith('engine_ssh_key', 'x'), /cannot be used together with `engine_url`/],
  ]
  for (const [change, expected] of cases) {
    const answer = await told(change)
    assert.match(answer, expected)
    assert.match(answer, /^400 \/kubeconfig kubeconfig: /)
  }
  assert.equal((await call('GET', `${base}/onPremise/credentials`)).body.results.length, before)
  // Any newer version is accepted without a warning.
  cluster.version = 'v1.99.0-alpha'
  assert.equal((await credentialsOf({ kubeconfig: configOf(cluster) })).status, 201)
})

test('rights are taken as the cluster lists them, by wildcards too, and asked one by one where it cannot list all', async () => {
  const cluster = await newKubernetes()
  const review = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews'
  cluster.rules = [{ apiGroups: ['*'], resources: ['*'], verbs: ['*'] }]
  await credentialsAt(cluster)
  cluster.rules = [null, {}, { apiGroups: 'x', resources: 5, verbs: null }]
  cluster.instead.set('/apis/authorization.k8s.io/v1/selfsubjectrulesreviews', (_, response) =>
    json(response, { status: { resourceRules: cluster.rules, incomplete: true } }, 201),
  )
  cluster.instead.set(review, (request, response) => {
    let sent = ''
    request.setEncoding('utf8').on('data', (text: string) => {
      sent += text
    })
    request.on('end', () => {
      const { resource, subresource, verb } = JSON.parse(sent).spec.resourceAttributes
      json(
        response,
        { status: { allowed: !(resource === 'pods' && subresource === 'exec' && verb === 'create') } },
        201,
      )
    })
  })
  const answer = await credentialsOf({ kubeconfig: configOf(cluster) })
  assert.match(reason(answer), /lacks these rights in the cluster: create pods\/exec\.$/)
  const wanted = rights.flatMap(({ resources, verbs }) => resources.flatMap(() => verbs)).length
  assert.equal(cluster.asked.filter((each) => each === `POST ${review}`).length, wanted)
})

test('what is wrong later is the status, with the reason', async () => {
  const { kubernetes, status, edit } = await register()
  const is = async (state: string, sentence: RegExp): Promise<void> => {
    const found = await status()
    assert.equal(found.status, state)
    assert.match(found.error_message ?? '', sentence)
  }
  const token = kubernetes.token
  kubernetes.token = 'another'
  await is('INVALID_CREDENTIALS', /does not accept the credentials/)
  kubernetes.token = token
  kubernetes.rules = allRules().filter(({ resources }) => !resources.includes('nodes'))
  await is(
    'INVALID_CREDENTIALS',
    /lacks these rights in the cluster: get, list, watch events; get, list, watch nodes; /,
  )
  kubernetes.rules = allRules()
  const { uid } = kubernetes
  kubernetes.uid = newId()
  await is('INVALID_CREDENTIALS', /Another cluster answers/)
  kubernetes.uid = uid
  kubernetes.instead.set('/version', (_, response) => failure(response, 500, 'etcd is away'))
  await is('DEPLOYMENT_ERROR', /status 500: etcd is away/)
  kubernetes.instead.set('/version', () => {})
  await is('DEPLOYMENT_ERROR', /Nothing answered in time/)
  kubernetes.instead.clear()
  await is('DEPLOYED', /^$/)
  // A new login replaces the old one.
  kubernetes.token = 'replaced'
  assert.equal((await edit({ kubeconfig: configOf(kubernetes) })).status, 200)
  await until(async () => (await status()).status === 'DEPLOYED', { what: 'the new login to be used' })
})

test('a cluster that is silent holds up no other', async () => {
  const [silent, other] = [await register(), await register()]
  for (const path of ['/version', '/api/v1/nodes']) silent.kubernetes.instead.set(path, () => {})
  const late = silent.status()
  const { body } = await call('GET', `${other.path}/status`)
  assert.equal(body.status, 'DEPLOYED')
  const third = await register()
  assert.equal((await third.status()).status, 'DEPLOYED')
  assert.equal((await late).status, 'DEPLOYMENT_ERROR')
})

test('a Kubernetes cluster is one cluster of one organization', async () => {
  const { kubernetes, id, credentialsId } = await register()
  assert.equal(reason(await newCluster(await credentialsAt(kubernetes))).slice(0, 17), '409 engine_in_use')
  const stranger = await api.newOrganization()
  const theirs = api.as(stranger.token)
  const credentials = await credentialsAt(kubernetes, theirs, stranger.id)
  assert.equal((await newCluster(credentials, {}, theirs, stranger.id)).body.code, 'engine_in_use')
  assert.match(reason(await newCluster(credentialsId, {}, theirs, stranger.id)), /^400 .*not found/)
  for (const path of [`/organization/${stranger.id}/cluster/${id}/kubeconfig`, `${base}/cluster/${id}/kubeconfig`])
    assert.equal((await theirs('GET', path)).status, 404)
  assert.equal((await call('DELETE', `${base}/cluster/${id}`)).status, 204)
  assert.equal((await newCluster(credentials, {}, theirs, stranger.id)).status, 201)
  const { results } = (await theirs('GET', `/organization/${stranger.id}/limits`)).body
  const { limit, used } = results.find(({ name }: Json) => name === 'ENGINES')
  assert.deepEqual([limit, used], [usualLimits.engines, 1])
})

test('a cluster with environments keeps what it is as long as that answers', async () => {
  const { kubernetes, id, credentialsId, edit, status } = await register()
  const other = await newKubernetes()
  const environmentId = await newEnvironment(id)
  assert.equal((await edit({ kubeconfig: configOf(other) })).body.code, 'cluster_in_use')
  assert.equal((await edit({ kubeconfig: '' })).body.code, 'cluster_in_use')
  assert.equal((await edit({ kubeconfig: '', ...engineWith('engine_ssh_key', 'x') })).body.code, 'cluster_in_use')
  assert.match(reason(await edit(engineWith('engine_ssh_key', 'x'))), /^400 \/engine_url .*together with `kubeconfig`/)
  assert.equal((await edit({ name: `renamed ${newId()}` })).status, 200)
  assert.equal((await status()).status, 'DEPLOYED')
  await kubernetes.close()
  // A lost cluster is replaced with another one, but not with another kind of engine.
  assert.equal((await edit({ kubeconfig: '', ...engineWith('engine_ssh_key', 'x') })).body.code, 'cluster_in_use')
  assert.equal((await edit({ kubeconfig: configOf(other) })).status, 200)
  await until(async () => (await status()).status === 'DEPLOYED', { what: 'the other cluster to be it' })
  assert.equal((await call('DELETE', `/environment/${environmentId}`)).status, 204)
  await until(async () => (await call('GET', `/environment/${environmentId}`)).status === 404, { what: 'the end' })
  assert.equal((await edit({ kubeconfig: '' })).status, 200)
  await until(async () => !(await api.parts.clusters.of(id)).isConnected, { what: 'the cluster to be let go' })
  assert.equal((await status()).status, 'READY')
  const [kept] = await api.database.query<{ sealed: object }>('select sealed from node where id = $1', [credentialsId])
  assert.deepEqual(kept!.sealed, {})
})

test('such credentials fit no cluster that they cannot be', async () => {
  const credentialsId = await credentialsAt(await newKubernetes())
  assert.match(reason(await newCluster(credentialsId, { kubernetes: 'MANAGED' })), /^400 .*SELF_MANAGED/)
  assert.match(
    reason(await call('PUT', `${base}/cluster/${api.clusterId}`, naming(credentialsId))),
    /^400 .*default cluster/,
  )
})

test('the manifest that is served grants what is asked for, and nothing else', async () => {
  const { path } = await register()
  const { parse } = await import('yaml')
  const { kubernetesAccess } = parse((await call('GET', `${path}/installationHelmValues`)).body as string)
  const manifest = JSON.parse(JSON.stringify(accessManifest))
  assert.deepEqual(kubernetesAccess, manifest)
  const guide = readFileSync(new URL('../../../../docs/guides/kubernetes-cluster.md', import.meta.url), 'utf8')
  assert.deepEqual(parse(/^```yaml\n([\s\S]*?)^```$/m.exec(guide)![1]!), manifest)
  const role = kubernetesAccess.items.find(({ kind }: Json) => kind === 'ClusterRole')
  const cluster = await newKubernetes()
  cluster.rules = role.rules
  await credentialsAt(cluster)
  for (const [index, rule] of (role.rules as Json[]).entries())
    for (const verb of rule.verbs) {
      const verbs = rule.verbs.filter((each: string) => each !== verb)
      cluster.rules = (role.rules as Json[]).with(index, { ...rule, verbs })
      assert.match(reason(await credentialsOf({ kubeconfig: configOf(cluster) })), new RegExp(`rights.*: ${verb} `))
    }
  const all = JSON.stringify(role.rules)
  for (const word of ['"*"', 'escalate', 'impersonate', 'bind', 'clusterroles', 'webhook'])
    assert.ok(!all.includes(word))
})

test('a kubeconfig is sealed, and answered by nothing but its own operation', async () => {
  const { kubernetes, credentialsId, id, path } = await register()
  const told = [
    await call('GET', `${base}/onPremise/credentials/${credentialsId}`),
    await call('GET', `${base}/onPremise/credentials`),
    await call('GET', `${base}/credentials`),
    await call('GET', path),
    await call('GET', `${path}/status`),
    await call('GET', `${base}/events`),
    await api.database.query('select spec, sealed from node'),
    await api.database.query('select change from event'),
    await api.parts.clusters.of(id),
  ]
  const shown = JSON.stringify(told)
  assert.ok(shown.includes(credentialsId))
  assert.ok(!shown.includes(kubernetes.token))
  assert.deepEqual(Object.keys((told[0] as Json).body).sort(), [
    'created_at',
    'id',
    'name',
    'object_type',
    'updated_at',
  ])
})
