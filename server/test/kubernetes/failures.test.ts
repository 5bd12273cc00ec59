/**
 * The ten usual failures on a real cluster, through the API: each deployment ends in DEPLOYMENT_ERROR by its deadline
 * with a sentence that says what to do, and the version before serves.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import type { Json } from '../support/api.ts'
import { imageOf } from '../support/docker/fake-registry.ts'
import { createTestCa } from '../support/tls/test-ca.ts'
import { until } from '../support/until.ts'
import { busyboxLayer } from './cluster/image.ts'
import { atRest, type Place, pageOf, servingContainer, needsOwnNode as skip, startPlace } from './cluster/place.ts'
import { outsideAddress } from './cluster/registry.ts'

interface Failure {
  name: string
  /** What is written to the service before it is deployed again. */
  change?: Json
  /** What is done in the cluster before that, once the change is written. */
  prepare?(namespace: string, service: Json): Promise<unknown>
  /** What the log says. */
  says: RegExp
  /** The version before has to end before the new one begins: it serves again afterwards. */
  stopsFirst?: boolean
}

/** Ready within 40 s, or not at all. */
const probe = {
  ...{ type: { tcp: { port: 8080 } }, initial_delay_seconds: 0, period_seconds: 1, timeout_seconds: 1 },
  ...{ success_threshold: 1, failure_threshold: 20 },
}

/** A webhook of admission that denies every pod of the namespaces that it is asked for. */
const startWebhook = async ({ admin }: Place) => {
  const address = outsideAddress()
  const ca = await createTestCa()
  const { certificate, key } = await ca.issueFor({ subject: 'CN=webhook', addresses: [address] })
  const server = createServer({ cert: certificate, key }, async (request, response) => {
    let text = ''
    for await (const chunk of request.setEncoding('utf8')) text += chunk
    const { apiVersion, kind, request: asked } = JSON.parse(text)
    const answer = { uid: asked.uid, allowed: false, status: { message: 'no pods on Fridays' } }
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ apiVersion, kind, response: answer }))
  }).listen(0, address)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const configuration = {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingWebhookConfiguration',
    metadata: { name: 'slipway-test' },
  }
  after(async () => {
    await admin.remove(configuration)
    server.closeAllConnections()
    server.close()
  })
  return (namespace: string) =>
    admin.apply({
      ...configuration,
      webhooks: [
        {
          ...{ name: 'fridays.slipway.test', sideEffects: 'None', admissionReviewVersions: ['v1'], timeoutSeconds: 5 },
          clientConfig: {
            ...{ url: `https://${address}:${port}/`, caBundle: Buffer.from(ca.certificate).toString('base64') },
          },
          namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } },
          rules: [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] }],
        },
      ],
    })
}

test('each of the usual failures ends its deployment with advice, and the previous version serves', {
  skip,
}, async (context) => {
  const place = await startPlace()
  const { admin, registry, must, newEnvironment } = place
  const denyPods = await startWebhook(place)
  // Our own look at them is answered; the node's is not.
  for (const name of ['shop/gone', 'shop/secret'])
    registry.publish(`${name}:1`, imageOf(await busyboxLayer(), { Cmd: ['sh'], User: '10001' }))
  registry.bend((request, response) => {
    const [name] = /shop\/(gone|secret)/.exec(request.url ?? '') ?? []
    if (name === undefined || !/containerd/.test(request.headers['user-agent'] ?? '')) return false
    if (name === 'shop/gone') response.writeHead(404)
    else response.writeHead(401, { 'www-authenticate': 'Basic realm="images"' })
    response.end('{}')
    return true
  })
  const quota = (namespace: string): Json => ({
    ...{ apiVersion: 'v1', kind: 'ResourceQuota', metadata: { name: 'small', namespace } },
    spec: { hard: { pods: '1' } },
  })
  const claim = (namespace: string, id: string): Json => ({
    ...{ apiVersion: 'v1', kind: 'PersistentVolumeClaim', metadata: { name: `v-${id}`, namespace } },
    spec: {
      ...{ accessModes: ['ReadWriteOnce'], storageClassName: 'slipway-no-such-class' },
      resources: { requests: { storage: '4Gi' } },
    },
  })
  const volume = { type: 'FAST_SSD', size: 4, mount_point: '/data' }
  const failures: Failure[] = [
    { name: 'missing', change: { image_name: 'shop/gone' }, says: /has no such image .*: check its name and tag/ },
    {
      ...{ name: 'denied', change: { image_name: 'shop/secret' } },
      says: /may not pull the image .*: give the service a registry with a login/,
    },
    {
      ...{ name: 'crash', change: { arguments: ['echo about to fail >&2; exit 3'] } },
      says: /exited 3 times .*exit code 3.*It said: about to fail/,
    },
    {
      ...{ name: 'memory', change: { arguments: ['x=aaaaaaaa; while :; do x=$x$x; done'] } },
      says: /ran out of memory .*limit of 32 MB; raise/,
    },
    {
      ...{ name: 'room', change: { cpu: 2000 } },
      says: /No machine of the cluster has room .*: lower the memory or CPU of the service/,
    },
    {
      name: 'quota',
      prepare: (namespace) => admin.apply(quota(namespace)),
      says: /A quota of the cluster leaves no room .*: raise the quota/,
    },
    {
      ...{ name: 'volume', change: { storage: [volume] }, stopsFirst: true },
      prepare: (namespace, { storage }) => admin.apply(claim(namespace, storage[0].id)),
      says: /A volume of the service does not exist yet .*: the cluster needs a default StorageClass/,
    },
    {
      ...{ name: 'probe', change: { arguments: ['exec sleep 1000'] } },
      says: /Its probe fails .*: check the port and path that it asks/,
    },
    { name: 'root', change: { image_name: 'shop/root' }, says: /runs as root .*: set USER to a number/ },
    {
      ...{ name: 'webhook', prepare: denyPods },
      says: /A rule of the cluster rejects .*no pods on Fridays.*: change the service, or ask the cluster’s administrator/,
    },
  ]
  const fail = async ({ name, change = {}, prepare, says, stopsFirst = false }: Failure): Promise<void> => {
    const id = await newEnvironment(name)
    const body = { healthchecks: { readiness_probe: probe }, max_running_instances: 1 }
    const { id: service } = await must('POST', `/environment/${id}/container`, servingContainer(place, name, body))
    await must('POST', `/container/${service}/environmentVariable`, { key: 'PAGE', value: `old ${name}` })
    await must('POST', `/container/${service}/deploy`, { image_tag: '1' })
    assert.equal(await atRest(place, `/container/${service}`), 'DEPLOYED', name)
    const page = new RegExp(`^200 old ${name}`)
    await until(async () => page.test(await pageOf(place, id, service)), {
      timeoutMs: 30_000,
      what: `${name} to serve`,
    })

    const changed = await must('PUT', `/container/${service}`, change)
    await prepare?.(`slipway-${id}`, changed)
    await must('POST', `/container/${service}/environmentVariable`, { key: 'OTHER', value: 'new' })
    await must('POST', `/container/${service}/deploy`, { image_tag: '1' })
    const answers = new Set<string>()
    let isOver = false
    const asking = (async () => {
      while (!isOver) answers.add(await pageOf(place, id, service))
    })()
    const state = await atRest(place, `/container/${service}`).finally(() => {
      isOver = true
    })
    await asking
    assert.equal(state, 'DEPLOYMENT_ERROR', name)
    const logs = JSON.stringify(await must('GET', `/environment/${id}/logs`))
    context.diagnostic(`${name}: ${says.exec(logs)?.[0].slice(0, 200)}`)
    assert.match(logs, says, name)
    const others = [...answers].filter((answer) => !page.test(answer))
    if (!stopsFirst) assert.deepEqual(others, [], name)
    await until(async () => page.test(await pageOf(place, id, service)), {
      ...{ timeoutMs: 60_000, what: `the old version of ${name} to serve` },
    })
  }
  await Promise.all(failures.map(fail))
})
