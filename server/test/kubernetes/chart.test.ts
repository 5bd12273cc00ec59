/** Slipway in a real cluster by its own chart: two replicas on an external database, without any Docker engine. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { request } from 'node:http'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { after, before, test } from 'node:test'
import type { Json } from '../support/api.ts'
import { type TestDatabase, testDatabase } from '../support/database.ts'
import type { FakeRegistry } from '../support/docker/fake-registry.ts'
import { chartFolder, runHelm } from '../support/kubernetes/helm-program.ts'
import { isSettled } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import type { Admin } from './cluster/admin.ts'
import { outsideAddress, startNodeRegistry } from './cluster/registry.ts'
import { host, openCluster, ownNode } from './cluster/scene.ts'
import { slipwayImage } from './cluster/slipway-image.ts'

const skip = ownNode === undefined && 'it needs the cluster of the tests, whose node pulls from a registry here'
const patience = { timeoutMs: 90_000 }
const namespace = 'slipway-test-chart'
const inNamespace = (name: string) => ({ name, namespace })
const token = randomBytes(24).toString('hex')
const mine = 'labelSelector=app.kubernetes.io/instance=slipway'

let admin: Admin
let registry: FakeRegistry
let database: TestDatabase
let door: Server
const visitors = new Set<Socket>()
let url: string
/** Of environments that Slipway made. */
const made: string[] = []

/** A database of this machine at an address that pods reach. */
const openDoor = async (connectionString: string): Promise<string> => {
  const there = new URL(connectionString)
  const socket = `${there.searchParams.get('host')}/.s.PGSQL.5432`
  door = createServer((client) => {
    const server = connect(socket)
    for (const each of [client, server]) {
      visitors.add(each)
      each.on('close', () => visitors.delete(each))
    }
    client.pipe(server).on('error', () => client.destroy())
    server.pipe(client).on('error', () => server.destroy())
  }).listen(0, outsideAddress())
  await once(door, 'listening')
  const { port } = door.address() as AddressInfo
  return `postgresql://${there.username || 'slipway'}:${there.password}@${outsideAddress()}:${port}${there.pathname}`
}

const helm = async (...args: string[]): Promise<void> => {
  const values = {
    image: { repository: `${registry.host}/slipway`, tag: '1' },
    secret: { name: 'slipway-given' },
    access: { create: true },
    config: { SLIPWAY_OUTBOUND_ALLOW: outsideAddress(), SLIPWAY_RATE_LIMIT: 0, SLIPWAY_LOG_LEVEL: 'warn' },
    service: { type: 'NodePort', port: 80 },
    resources: { requests: { cpu: '50m', memory: '128Mi' }, limits: { memory: '1Gi' } },
  }
  const place = ['--namespace', namespace, '--wait', '--timeout', '90s']
  const isRemoval = args[0] === 'uninstall'
  const { code, text: said } = await runHelm(
    [...args, ...place],
    isRemoval ? {} : values,
    { KUBECONFIG: process.env.KUBECONFIG! },
    120_000,
  )
  if (code !== 0) assert.fail(`${said}\n${await troubles()}`)
}
const install = (...args: string[]) => helm('upgrade', '--install', 'slipway', chartFolder, ...args)

const pods = async (): Promise<Json[]> => (await admin.get(`/api/v1/namespaces/${namespace}/pods?${mine}`)).items
const isReady = ({ metadata, status }: Json): boolean =>
  metadata.deletionTimestamp === undefined &&
  (status.conditions ?? []).some((each: Json) => each.type === 'Ready' && each.status === 'True')
const readyPods = async (): Promise<string[]> => (await pods()).filter(isReady).map(({ metadata }) => metadata.name)

/** What the pods say when they do not become ready. */
const troubles = async (): Promise<string> => {
  const all = await pods()
  const logs = await Promise.all(
    all.map(({ metadata }) =>
      admin.ask('GET', `/api/v1/namespaces/${namespace}/pods/${metadata.name}/log?tailLines=30`),
    ),
  )
  const events = (await admin.get(`/api/v1/namespaces/${namespace}/events`)).items.map(({ message }: Json) => message)
  return [...logs.map(({ body }) => body.text), ...events, ...all.map(({ status }) => JSON.stringify(status))].join(
    '\n',
  )
}

interface Answer {
  status: number
  body: Json
}

/** By a connection of its own, as a stranger comes to the Service. */
const ask = async (method: string, path: string, body?: object): Promise<Answer> => {
  const sent = request(url + path, {
    ...{ method, agent: false, timeout: 20_000 },
    headers: {
      ...{ authorization: `Token ${token}`, 'x-state-vocabulary': 'deployment' },
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
  })
  sent.on('timeout', () => sent.destroy(new Error(`${method} ${path}: no answer`)))
  sent.end(body === undefined ? undefined : JSON.stringify(body))
  const [answer] = await once(sent, 'response')
  const said = await text(answer)
  return { status: answer.statusCode, body: said === '' ? null : JSON.parse(said) }
}
const must = async (method: string, path: string, body?: object): Promise<Json> => {
  const answer = await ask(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

before(async () => {
  if (skip) return
  admin = await openCluster()
  registry = await startNodeRegistry()
  registry.publish('slipway:1', await slipwayImage())
  database = await testDatabase()
  const enforce = { 'pod-security.kubernetes.io/enforce': 'restricted' }
  await admin.apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace, labels: enforce } })
  await admin.apply({
    ...{ apiVersion: 'v1', kind: 'Secret', metadata: inNamespace('slipway-given') },
    stringData: {
      'database-url': await openDoor(database.connectionString),
      'master-key': `${randomBytes(32).toString('base64')}\n`,
      'admin-token': token,
    },
  })
})
after(async () => {
  if (skip) return
  for (const name of [...made, namespace])
    await admin.remove({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
  admin.close()
  await registry.close()
  door.close()
  for (const visitor of visitors) visitor.destroy()
})

test('two replicas start, restricted, and are reached through the Service', { skip }, async () => {
  await install()
  assert.equal((await readyPods()).length, 2)
  const { spec } = await admin.get(`/api/v1/namespaces/${namespace}/services/slipway`)
  url = `http://${host}:${spec.ports[0].nodePort}`
  const isThere = () =>
    ask('GET', '/readyz').then(
      ({ status }) => status === 200,
      () => false,
    )
  await until(isThere, { ...patience, what: 'the Service to lead to a server' })
  const { id } = await must('GET', '/organization')
  const [{ status }] = (await must('GET', `/organization/${id}/cluster/status`)).results
  assert.equal(status, 'READY')
  // The second one to start has the keys of the first: what one seals the other opens.
  for (const pod of await pods()) assert.equal(pod.status.containerStatuses[0].restartCount, 0)
})

/** The kubeconfig of the guide. */
const ownKubeconfig = async (): Promise<string> => {
  const { data } = await admin.get(`/api/v1/namespaces/${namespace}/secrets/slipway-token`)
  const known = { server: 'https://kubernetes.default.svc', 'certificate-authority-data': data['ca.crt'] }
  return JSON.stringify({
    ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'slipway' },
    clusters: [{ name: 'cluster', cluster: known }],
    users: [{ name: 'slipway', user: { token: Buffer.from(data.token, 'base64').toString() } }],
    contexts: [{ name: 'slipway', context: { cluster: 'cluster', user: 'slipway' } }],
  })
}

const script = (page: string): string =>
  `mkdir -p /tmp/w; echo ${page} > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w`
let service: string
let environment: Json
const deploy = async (page: string): Promise<void> => {
  await must('PUT', service, { arguments: [script(page)] })
  await must('POST', `${service}/deploy`, { image_tag: '1' })
}
const stateOf = async (): Promise<string | null> => {
  const { status, body } = await ask('GET', `${service}/status`)
  return status === 200 && isSettled(body.state) ? body.state : null
}
/** True if the only running pod was started with this page. */
const runs = async (page: string): Promise<boolean> => {
  const { items } = await admin.get(`/api/v1/namespaces/slipway-${environment.id}/pods`)
  const there = items.filter(({ metadata }: Json) => metadata.deletionTimestamp === undefined)
  return there.length === 1 && isReady(there[0]) && there[0].spec.containers[0].args[0] === script(page)
}
const comesTo = async (page: string): Promise<void> => {
  // While a server is down, a request may reach none.
  const settled = () => stateOf().catch(() => null)
  const state = await until(settled, { ...patience, what: `the deployment of ${page} to settle` })
  const why = async () => JSON.stringify((await ask('GET', `/environment/${environment.id}/logs`)).body).slice(-2000)
  if (state !== 'DEPLOYED') assert.fail(`${state}: ${await why()}`)
  await until(() => runs(page), { ...patience, what: `${page} to run` })
}

test('it deploys to the cluster that it runs in, by the account of the chart', { skip }, async () => {
  const { id: organizationId } = await must('GET', '/organization')
  const base = `/organization/${organizationId}`
  const kubeconfig = await ownKubeconfig()
  const { id } = await must('POST', `${base}/onPremise/credentials`, { name: 'this cluster', kubeconfig })
  const cluster = await must('POST', `${base}/cluster`, {
    ...{ name: 'this cluster', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' },
    cloud_provider_credentials: { credentials: { id } },
  })
  const images = { name: 'images', kind: 'GENERIC_CR', url: registry.url.origin, config: {} }
  const { id: registry_id } = await must('POST', `${base}/containerRegistry`, images)
  const project = await must('POST', `${base}/project`, { name: 'shop' })
  const place = { name: 'production', cluster: cluster.id }
  environment = await must('POST', `/project/${project.id}/environment`, place)
  made.push(`slipway-${environment.id}`)
  const container = await must('POST', `/environment/${environment.id}/container`, {
    ...{ name: 'web', registry_id, image_name: 'shop/app', tag: '1', healthchecks: {}, cpu: 50, memory: 32 },
    ...{ entrypoint: 'sh -c', arguments: [script('none')] },
    ports: [{ internal_port: 8080, protocol: 'HTTP', publicly_accessible: true }],
  })
  service = `/container/${container.id}`
  await deploy('first')
  await comesTo('first')
})

const holder = async (): Promise<string | undefined> => {
  const rows = await database.query<{ worker: string }>(
    'select worker from cluster_work where lease_until > clock_timestamp()',
  )
  return (await pods()).map(({ metadata }) => metadata.name).find((name) => rows[0]?.worker.startsWith(`${name}-`))
}

test('one replica is killed: the other continues, and a new one starts', { skip }, async () => {
  const killed = await until(holder, { ...patience, what: 'a replica to look after the cluster' })
  await deploy('second')
  const path = `/api/v1/namespaces/${namespace}/pods/${killed}?gracePeriodSeconds=0`
  assert.ok((await admin.ask('DELETE', path)).status < 300)
  await comesTo('second')
  const isOther = async () => ![undefined, killed].includes(await holder())
  await until(isOther, { ...patience, what: 'another replica to look after the cluster' })
  await until(async () => (await readyPods()).length === 2, { ...patience, what: 'two replicas' })
  await deploy('third')
  await comesTo('third')
})

test('an upgrade replaces both replicas and loses no request', { skip }, async () => {
  const before = await readyPods()
  const failures: string[] = []
  let isOver = false
  const client = async (): Promise<number> => {
    for (let asked = 0; ; asked += 1) {
      if (isOver) return asked
      const failure = await ask('GET', '/organization').then(
        ({ status }) => (status === 200 ? null : String(status)),
        (error: Error) => error.message,
      )
      if (failure !== null) failures.push(failure)
    }
  }
  const clients = Promise.all([client(), client()])
  await install('--set-json', 'podAnnotations={"again":"yes"}').finally(() => {
    isOver = true
  })
  const [first, second] = await clients
  assert.deepEqual(failures, [])
  assert.ok(first > 20 && second > 20, `${first} and ${second} requests`)
  const gone = async () => (await readyPods()).every((name) => !before.includes(name))
  await until(gone, { ...patience, what: 'the former replicas to be gone' })
})

const kinds = [
  ...['api/v1/pods', 'api/v1/services', 'api/v1/secrets', 'api/v1/serviceaccounts', 'apis/apps/v1/deployments'],
  ...['apis/apps/v1/replicasets', 'apis/policy/v1/poddisruptionbudgets', 'apis/networking.k8s.io/v1/networkpolicies'],
  ...['apis/rbac.authorization.k8s.io/v1/clusterroles', 'apis/rbac.authorization.k8s.io/v1/clusterrolebindings'],
]

test('after the environments are deleted and the release is uninstalled, nothing is left', { skip }, async () => {
  await must('DELETE', `/environment/${environment.id}`)
  const gone = async () => (await admin.ask('GET', `/api/v1/namespaces/slipway-${environment.id}`)).status === 404
  await until(gone, { ...patience, what: 'the namespace of the environment to be gone' })
  await helm('uninstall', 'slipway')
  const left = async (): Promise<string[]> =>
    (await Promise.all(kinds.map(async (path) => (await admin.get(`/${path}?${mine}`)).items))).flat()
  await until(async () => (await left()).length === 0, { ...patience, what: 'nothing of the release to be left' })
  const { items } = await admin.get(`/api/v1/namespaces/${namespace}/secrets`)
  assert.deepEqual(
    items.map(({ metadata }: Json) => metadata.name),
    ['slipway-given'],
  )
})
