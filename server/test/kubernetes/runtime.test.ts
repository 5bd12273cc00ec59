/**
 * What the runtime does on a real cluster beside what every runtime does, with the rights of our manifest and no more.
 */
import assert from 'node:assert/strict'
import { request } from 'node:http'
import { text } from 'node:stream/consumers'
import { after, before, test } from 'node:test'
import { newId } from '../../src/lib/ids.ts'
import { parseKubeconfig } from '../../src/lib/kubernetes/kubeconfig.ts'
import { createKubernetesApi } from '../../src/lib/kubernetes/kubernetes-api.ts'
import { Secret } from '../../src/lib/secret.ts'
import type { Exposure } from '../../src/runtimes/ingress.ts'
import { accessManifest } from '../../src/runtimes/kubernetes/rights.ts'
import { createKubernetesRuntime } from '../../src/runtimes/kubernetes/runtime.ts'
import type { Runtime, Workload } from '../../src/runtimes/runtime.ts'
import {
  absent,
  createRollout,
  createWorkload,
  deploymentError,
  nowhere,
  runningAs,
  signal,
} from '../support/runtimes/conformance.ts'
import { until } from '../support/until.ts'
import { type Admin, openAdmin } from './cluster/admin.ts'
import { grantAccess, kubeconfig, outbound, revokeAccess } from './cluster/scene.ts'

const patience = { timeoutMs: 60_000 }
const user = 10_001
const shell = (script: string) => ({
  image: 'docker.io/library/busybox:1',
  entrypoint: ['sh', '-c'],
  arguments: [script],
})
const serve = shell('mkdir -p /tmp/w; echo "$PAGE" > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w')
const silent = shell('echo waiting; trap "exit 0" TERM; while :; do sleep 1; done')

const ownerId = newId()
let admin: Admin
let runtime: Runtime
const opened: Runtime[] = []

const open = async (account: string, runAs?: number): Promise<Runtime> => {
  const api = createKubernetesApi(await parseKubeconfig(account), outbound.checkMachine)
  const made = createKubernetesRuntime({
    ...{ api, ownerId, version: (await admin.get('/version')).gitVersion, outbound, close: api.close },
    ...(runAs === undefined ? {} : { runAs }),
    registryLogins: async () => [],
    ping: async () => {},
    capacity: () => Promise.reject(new Error('not asked')),
  })
  opened.push(made)
  return made
}

let account: string
before(async () => {
  admin = await openAdmin(kubeconfig)
  account = await grantAccess(admin, accessManifest.items)
  runtime = await open(account, user)
})
after(async () => {
  const { environments } = await runtime.owned()
  for (const environmentId of environments) {
    const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: `slipway-${environmentId}` } }
    await admin.remove(namespace)
  }
  for (const each of opened) await each.close()
  await revokeAccess(admin)
  admin.close()
})

const roll = (workload: Workload, exposure: Exposure = nowhere, made = createRollout()) =>
  runtime.converge(workload, runningAs(workload, exposure), made.rollout, signal())
const back = (workload: Workload, exposure: Exposure = nowhere) =>
  runtime.converge(workload, runningAs(workload, exposure), null, signal())
const versionAfter = (old: Workload, over: Partial<Workload> = {}): Workload => ({ ...old, revision: newId(), ...over })
const pageOf = (page: string) => ({ env: new Secret({ PAGE: page }) })
const revisions = async (workload: Workload) =>
  (await runtime.observe([workload])).map(({ revision }) => revision).sort()

let nextPort = 32_000
const balanced = (): Exposure & { port: number } => {
  nextPort += 1
  const port = { externalPort: nextPort, internalPort: 8080, protocol: 'TCP' as const }
  return { hosts: [], ports: [port], port: nextPort }
}
const visit = async (address: string): Promise<string> => {
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  request(`http://${address}/`, { agent: false, timeout: 10_000 }, (answer) => {
    text(answer).then((body) => resolve(`${answer.statusCode} ${body.trim()}`), reject)
  })
    .on('error', reject)
    .end()
  return promise
}

test('a change under load loses no request, and a failing version leaves the previous one untouched', async () => {
  const exposure = balanced()
  const old = createWorkload(serve, { instances: 2, ...pageOf('old'), stopGraceMs: 5000, readyTimeoutMs: 60_000 })
  await roll(old, exposure)
  const address = await until(
    async () => {
      await runtime.ingress.look([old])
      const found = runtime.ingress.address(exposure.port)
      return found !== null && (await visit(found).catch(() => '')) === '200 old' ? found : null
    },
    { ...patience, what: 'the load balancer' },
  )
  const answers: string[] = []
  let isOver = false
  const client = async (): Promise<void> => {
    while (!isOver) answers.push(await visit(address).catch((error: Error) => error.message))
  }
  const clients = Promise.all([client(), client(), client()])
  const fresh = versionAfter(old, pageOf('new'))
  const { rollout, steps, told } = createRollout()
  await roll(fresh, exposure, { rollout, steps, told }).finally(() => {
    isOver = true
  })
  await clients
  assert.deepEqual(steps, ['start', 'ready', 'switch', 'drain', 'retire'])
  assert.deepEqual(
    answers.filter((answer) => !/^200 (old|new)$/.test(answer)),
    [],
    `of ${answers.length}`,
  )
  assert.equal(await visit(address), '200 new')
  assert.deepEqual(await revisions(fresh), [fresh.revision, fresh.revision])
  const crashing = versionAfter(fresh, { ...shell('echo about to fail >&2; exit 3'), readyTimeoutMs: 60_000 })
  const error = await deploymentError(roll(crashing, exposure))
  assert.equal(error.code, 'crash_loop', error.message)
  assert.match(error.message, /exit code 3.*It said: about to fail$/)
  assert.equal(await visit(address), '200 new')
  await back(fresh, exposure)
  await until(async () => (await revisions(fresh)).every((each) => each === fresh.revision), {
    ...patience,
    what: 'the end of the failed version',
  })
  const stopped = { state: 'stopped', exposure: async () => exposure, graceMs: 2000 } as const
  await runtime.converge(fresh, stopped, null, signal())
  assert.deepEqual(await runtime.observe([fresh]), [])
  await roll(fresh, exposure)
  await runtime.converge(fresh, absent, null, signal())
  await runtime.removeEnvironment(fresh.environmentId, signal())
  const left = await admin.ask('GET', `/api/v1/namespaces/slipway-${fresh.environmentId}`)
  assert.equal(left.status, 404)
})

test('a program that cannot run fails with the reason', async () => {
  const short = { readyTimeoutMs: 15_000 }
  const cases: [Partial<Workload>, string, RegExp][] = [
    [{ image: 'localhost:1/no/such:1' }, 'image_unreachable', /cannot pull the image localhost:1\/no\/such:1/],
    [{ cpuMillicores: 900_000 }, 'unschedulable', /No machine of the cluster has room/],
    [{ entrypoint: ['/no/such'] }, 'cannot_start', /its command \/no\/such cannot be started/],
    [{ ...shell('x=aaaaaaaa; while :; do x=$x$x; done'), memoryMb: 16 }, 'out_of_memory', /limit of 16 MB/],
    [{ ...silent }, 'not_ready', /.*/],
    [{ ...silent, ports: [], postStart: ['sh', '-c', 'exit 3'] }, 'post_start_failed', /post-start command failed/],
  ]
  await Promise.all(
    cases.map(async ([over, code, sentence]) => {
      const error = await deploymentError(roll(createWorkload(serve, { ...short, ...over })))
      assert.equal(error.code, code, `${JSON.stringify(over)}: ${error.message}`)
      assert.match(error.message, sentence)
    }),
  )
  const asRoot = await open(account)
  const root = createWorkload(serve, short)
  const error = await deploymentError(asRoot.converge(root, runningAs(root), createRollout().rollout, signal()))
  assert.equal(error.code, 'runs_as_root', error.message)
})

test('a volume keeps its data over versions, one at a time, and grows', async () => {
  const volumes = [{ id: newId(), mountPath: '/data', sizeGb: 1 }]
  const write = shell('echo "$PAGE" >> /data/pages; cat /data/pages; exec httpd -f -p 8080 -h /data')
  const old = createWorkload(write, { volumes, ...pageOf('first'), readyTimeoutMs: 60_000 })
  await roll(old)
  const fresh = versionAfter(old, { ...pageOf('second'), volumes: [{ ...volumes[0]!, sizeGb: 2 }] })
  await roll(fresh)
  const lines: string[] = []
  for await (const line of runtime.logs(fresh, {})) lines.push(line.text)
  assert.deepEqual(lines, ['first', 'second'])
  assert.equal((await runtime.volumeSizes([volumes[0]!.id])).get(volumes[0]!.id), 2)
  await runtime.converge(fresh, absent, null, signal())
  assert.deepEqual((await runtime.owned()).volumes, [])
})
