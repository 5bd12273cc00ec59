/** The runtime on a cluster in memory: the objects that it creates, its waits, messages and leftovers. */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { type MemoryCluster, startMemoryCluster } from '../../../test/support/kubernetes/api-server.ts'
import { createMemoryRuntime } from '../../../test/support/kubernetes/memory-runtime.ts'
import type { Stored } from '../../../test/support/kubernetes/store.ts'
import {
  absent,
  createRollout,
  createTask,
  createWorkload,
  deploymentError,
  ignore,
  nowhere,
  rejection,
  runningAs,
  signal,
} from '../../../test/support/runtimes/conformance.ts'
import { until } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'
import { Secret } from '../../lib/secret.ts'
import type { Exposure } from '../ingress.ts'
import type { RuntimeEvent, Workload } from '../runtime.ts'

const program = { image: 'registry.test/serve@sha256:1', entrypoint: null, arguments: null }
const signalNow = signal

let password = 'p'

const createRuntime = (cluster: MemoryCluster, ownerId: string) =>
  createMemoryRuntime(cluster, ownerId, async (_organizationId, host) =>
    host === 'private.test'
      ? [{ origin: new URL('https://private.test'), login: new Secret({ username: 'me', password }) }]
      : [],
  )

const start = async (t: TestContext) => {
  const cluster = await startMemoryCluster()
  const runtime = createRuntime(cluster, 'owner')
  t.after(async () => {
    await runtime.close()
    await cluster.close()
  })
  const named = (kind: string) => cluster.store.all(kind).map(({ metadata }) => metadata.name)
  const roll = (workload: Workload, exposure: Exposure = nowhere, made = createRollout()) =>
    runtime.converge(workload, runningAs(workload, exposure), made.rollout, signalNow())
  const back = (workload: Workload, exposure: Exposure = nowhere) =>
    runtime.converge(workload, runningAs(workload, exposure), null, signalNow())
  const revisions = async (workload: Workload) =>
    (await runtime.observe([workload])).map(({ revision }) => revision).sort()
  return { cluster, runtime, named, roll, back, revisions }
}

const versionAfter = (old: Workload, over: Partial<Workload> = {}): Workload => ({ ...old, revision: newId(), ...over })
const hostsOf = ({ serviceId }: Workload): Exposure => ({
  ...nowhere,
  hosts: [{ host: `${serviceId}.test`, internalPort: 8080, protocol: 'HTTP' }],
})

test('a version is rolled out step by step, visible to its readers, and takes over from the one before', async (t) => {
  const { cluster, named, roll, revisions, runtime } = await start(t)
  const old = createWorkload(program, { instances: 2, env: new Secret({ A: '1' }) })
  const { rollout, steps, told } = createRollout()
  const { instances } = await roll(old, hostsOf(old), { rollout, steps, told })
  assert.deepEqual(steps, ['start', 'ready', 'switch', 'drain', 'retire'])
  assert.deepEqual(
    instances.map(({ state, revision, index }) => [state, revision, index]),
    [
      ['running', old.revision, 0],
      ['running', old.revision, 1],
    ],
  )
  assert.equal(told[0], 'Waiting for TCP port 8080 (up to 20 s).')
  assert.ok(told.includes('2 of 2 instances are ready'), told.join('; '))
  assert.equal(told.at(-1), `Requests to http://${old.serviceId}.test now go to the new version.`)
  assert.deepEqual(named('Service').sort(), [`s-${old.serviceId}`, 'web'].sort())
  const secrets = named('Secret')
  assert.equal(secrets.length, 1)
  const publication = { service: old, revision: old.revision, exposure: hostsOf(old) }
  assert.equal((await runtime.ingress.look([old])).isAs(publication), true)
  assert.equal((await runtime.ingress.look()).isAs({ ...publication, exposure: nowhere }), false)

  const fresh = versionAfter(old, { instances: 1, env: new Secret({ A: '2' }) })
  await roll(fresh, hostsOf(fresh))
  assert.deepEqual(await revisions(fresh), [fresh.revision])
  assert.equal(named('Secret').length, 1)
  assert.notDeepEqual(named('Secret'), secrets)
  const before = cluster.store.version
  await roll(fresh, hostsOf(fresh))
  assert.equal(cluster.store.version, before, 'the same again changes nothing')
})

test('what carries the labels of a service in the namespace of another environment is none of its instances', async (t) => {
  const { cluster, roll, runtime } = await start(t)
  const [victim, stranger] = [createWorkload(program), createWorkload(program)]
  for (const each of [victim, stranger]) await roll(each)
  const namespace = `slipway-${stranger.environmentId}`
  for (const pod of cluster.store.all('Pod', `slipway-${victim.environmentId}`))
    cluster.store.put({ ...pod, metadata: { ...pod.metadata, name: 'forged', namespace } })
  assert.equal(cluster.store.all('Pod').length, 3)
  for (const instances of [await runtime.observe(), (await runtime.owned()).instances])
    assert.deepEqual(instances.map(({ serviceId }) => serviceId).sort(), [victim.serviceId, stranger.serviceId].sort())
})

test('what cannot become ready fails with the reason and its last lines, and going back leaves the old one untouched', async (t) => {
  const { cluster, runtime, roll, back, revisions } = await start(t)
  const old = createWorkload(program)
  await roll(old)
  const [served] = await runtime.observe([old])
  const crashing = versionAfter(old, { image: 'crash' })
  cluster.behave = ({ image }) =>
    image === 'crash' ? { kind: 'crash', exitCode: 3, lines: ['begin', 'error: no database'] } : { kind: 'ready' }
  const error = await deploymentError(roll(crashing))
  assert.equal(error.code, 'crash_loop')
  assert.match(error.message, /exited 3 times .*exit code 3.* It said: error: no database$/)
  assert.deepEqual(error.lines, ['begin', 'error: no database'])
  assert.deepEqual(await revisions(old), [old.revision, crashing.revision].sort())
  await back(old)
  await until(async () => (await revisions(old)).length === 1, { what: 'the end of the failed version' })
  assert.deepEqual(
    (await runtime.observe([old])).map(({ id }) => id),
    [served!.id],
  )
})

test('the reason why a version waits is reported at once, and is the error when its time is over', async (t) => {
  const { cluster, roll } = await start(t)
  cluster.behave = () => ({ kind: 'unscheduled', message: '0/1 nodes are available: 1 Insufficient cpu.' })
  const made = createRollout()
  const error = await deploymentError(roll(createWorkload(program, { readyTimeoutMs: 600 }), nowhere, made))
  assert.equal(error.code, 'unschedulable')
  assert.match(error.message, /^The service did not become ready within 0\.6 s\. No machine of the cluster has room/)
  assert.ok(made.told.some((line) => line.startsWith('No machine of the cluster has room')))
  cluster.behave = () => ({ kind: 'deaf' })
  const deaf = await deploymentError(roll(createWorkload(program, { readyTimeoutMs: 600 })))
  assert.deepEqual(
    [deaf.code, deaf.message],
    ['not_ready', 'The service did not become ready within 0.6 s while waiting for TCP port 8080.'],
  )
})

test('a quota and a rule of the cluster refuse with a sentence, and a cluster that is away is waited for', async (t) => {
  const { cluster, roll } = await start(t)
  cluster.refuse = (method, kind) =>
    method === 'PATCH' && kind === 'Deployment' ? [403, 'admission webhook "rules.test" denied the request: no'] : null
  const denied = await deploymentError(roll(createWorkload(program)))
  assert.deepEqual([denied.code, denied.next], ['admission_denied', 'stop'])
  cluster.refuse = () => [503, 'the API is being restarted']
  const away = await deploymentError(roll(createWorkload(program)))
  assert.deepEqual([away.code, away.next], ['engine_unavailable', 'wait'])
  cluster.refuse = () => null
  cluster.busy = 1
  await roll(createWorkload(program))
})

test('a rollout that was killed at any step resumes when it is requested again', async (t) => {
  const { roll, revisions } = await start(t)
  for (const killed of ['start', 'ready', 'switch', 'serving', 'drain', 'retire'] as const) {
    const old = createWorkload(program)
    await roll(old)
    const fresh = versionAfter(old)
    const made = createRollout((step) => (step === killed ? Promise.reject(new Error('kill')) : undefined))
    await rejection(roll(fresh, nowhere, made))
    await roll(fresh)
    assert.deepEqual(await revisions(fresh), [fresh.revision], killed)
  }
})

test('an instance that the cluster has ended and keeps holds up no other version', async (t) => {
  const { cluster, roll, revisions } = await start(t)
  const old = createWorkload(program)
  await roll(old)
  const [{ metadata, spec }] = cluster.store.all('Pod') as [Stored]
  const name = `${metadata.name}-evicted`
  const status = { phase: 'Failed', reason: 'Evicted', message: 'The node was low on resource: memory.' }
  cluster.store.put({ kind: 'Pod', metadata: { ...metadata, name, uid: undefined }, spec, status } as never)
  const fresh = versionAfter(old)
  await roll(fresh)
  assert.deepEqual(await revisions(fresh), [fresh.revision])
})

test('with volumes the old version ends first, and so does one that had none before', async (t) => {
  const { roll, named, revisions, runtime } = await start(t)
  const old = createWorkload(program)
  await roll(old)
  const volumes = [{ id: newId(), mountPath: '/data', sizeGb: 2 }]
  let fresh = versionAfter(old, { volumes })
  for (const _ of [1, 2]) {
    const made = createRollout(async (step) => {
      if (step === 'start') assert.deepEqual(await revisions(fresh), [])
    })
    await roll(fresh, nowhere, made)
    assert.deepEqual(made.steps, ['stop-first', 'start', 'ready', 'switch', 'drain', 'retire'])
    assert.deepEqual([named('Deployment'), named('StatefulSet')], [[], [`s-${old.serviceId}`]])
    fresh = versionAfter(fresh)
  }
  assert.deepEqual([...(await runtime.volumeSizes([volumes[0]!.id, newId()]))], [[volumes[0]!.id, 2]])
  await roll(versionAfter(old))
  assert.deepEqual([named('Deployment'), named('StatefulSet')], [[`s-${old.serviceId}`], []])
})

test('stopped, nothing runs and hosts and volumes stay; absent, nothing is left, and the namespace goes with its environment', async (t) => {
  const { cluster, runtime, roll, named } = await start(t)
  const workload = createWorkload(program, {
    volumes: [{ id: newId(), mountPath: '/data', sizeGb: 1 }],
    env: new Secret({ A: '1' }),
    image: 'private.test/app@sha256:1',
  })
  const exposure = hostsOf(workload)
  await roll(workload, exposure)
  assert.ok(named('Secret').some((name) => name.startsWith(`s-${workload.serviceId}-pull-`)))
  assert.equal(
    (await deploymentError(runtime.removeEnvironment(workload.environmentId, signalNow()))).code,
    'environment_in_use',
  )
  const stopped = { state: 'stopped', exposure: async () => exposure, graceMs: 1000 } as const
  await runtime.converge(workload, stopped, null, signalNow())
  assert.deepEqual(await runtime.observe([workload]), [])
  const stoppedThere = { service: workload, revision: null, exposure }
  assert.equal((await runtime.ingress.look([workload])).isAs(stoppedThere), true)
  const { volumes, environments } = await runtime.owned()
  assert.deepEqual([volumes.length, environments], [1, [workload.environmentId]])
  // Nothing runs: the volume would be removed with the namespace all the same.
  const kept = await deploymentError(runtime.removeEnvironment(workload.environmentId, signalNow()))
  assert.deepEqual(
    [kept.code, kept.message],
    ['environment_in_use', 'The environment still has volumes of services in its namespace.'],
  )
  assert.equal(named('PersistentVolumeClaim').length, 1)
  await roll(workload, exposure)
  await runtime.converge(workload, absent, null, signalNow())
  const kinds = new Set([...cluster.store.objects.values()].map(({ kind }) => kind))
  assert.deepEqual([...kinds].sort(), ['Namespace', 'NetworkPolicy'])
  await runtime.removeEnvironment(workload.environmentId, signalNow())
  await runtime.removeEnvironment(workload.environmentId, signalNow())
  assert.equal(cluster.store.objects.size, 0)
})

test('a version pulls with the login of today, and that of before goes with its last pod', async (t) => {
  const { cluster, runtime, roll, named } = await start(t)
  const old = createWorkload(program, { image: 'private.test/app@sha256:1' })
  await roll(old)
  const [first] = named('Secret')
  await roll(versionAfter(old))
  assert.deepEqual(named('Secret'), [first], 'the same login is the same secret')
  password = 'changed'
  const during: string[][] = []
  const fresh = versionAfter(old)
  await roll(
    fresh,
    nowhere,
    createRollout(async (step) => void (step === 'ready' && during.push(named('Secret')))),
  ).finally(() => {
    password = 'p'
  })
  assert.deepEqual([during[0]?.length, during[0]?.includes(first!)], [2, true])
  const [second, ...others] = named('Secret')
  assert.notEqual(second, first)
  assert.deepEqual(others, [])
  const { template } = cluster.store.all('Deployment')[0]!.spec
  assert.deepEqual(template.spec.imagePullSecrets, [{ name: second }])

  cluster.behave = () => ({ kind: 'end', exitCode: 0 })
  const task = createTask({ ...program, image: 'private.test/task@sha256:1' }, { ...fresh, taskId: newId() })
  await runtime.run(task, () => {}, signalNow())
  assert.equal(named('Secret').length, 2)
  await runtime.endTask(task, signalNow())
  assert.deepEqual(named('Secret'), [second])
})

test('executions go with their service', async (t) => {
  const { cluster, runtime, roll, named } = await start(t)
  const workload = createWorkload(program)
  await roll(workload)
  cluster.behave = () => ({ kind: 'endless' })
  const { organizationId, environmentId, serviceId } = workload
  const task = createTask(program, { organizationId, environmentId, serviceId, env: new Secret({ A: '1' }) })
  const run = runtime.run(task, ignore, signalNow()).catch(ignore)
  await until(async () => (await runtime.owned()).instances.some(({ taskId }) => taskId === task.taskId), {
    what: 'it',
  })
  await runtime.converge(workload, absent, null, signalNow())
  await run
  assert.deepEqual([named('Job'), named('Pod'), named('Secret'), named('Deployment')], [[], [], [], []])
})

test('a rollout continues after the cluster was silent, lost its connections and forgot its position', async (t) => {
  const { cluster, roll, revisions } = await start(t)
  const workload = createWorkload(program)
  const made = createRollout((step) => {
    if (step === 'ready') cluster.hush()
  })
  const rolling = roll(workload, nowhere, made)
  rolling.catch(ignore)
  await until(() => cluster.asked.at(-1)?.startsWith('GET') === true && made.steps.includes('ready'), {
    what: 'the wait',
  })
  cluster.store.forget()
  cluster.cut()
  cluster.busy = 2
  cluster.speak()
  await rolling
  assert.deepEqual(await revisions(workload), [workload.revision])
})

test('two installations on one cluster do not see or end what the other has', async (t) => {
  const { cluster, runtime, roll } = await start(t)
  const mine = createWorkload(program)
  await roll(mine)
  const other = createRuntime(cluster, 'other')
  try {
    assert.deepEqual(await other.owned(), { instances: [], environments: [], volumes: [] })
    await other.converge(mine, absent, null, signalNow())
    await other.removeEnvironment(mine.environmentId, signalNow())
    assert.equal((await runtime.observe([mine])).length, 1)
    const theirs = { ...createWorkload(program), environmentId: mine.environmentId }
    const error = await deploymentError(other.converge(theirs, runningAs(theirs), null, signalNow()))
    assert.equal(error.code, 'name_taken')
  } finally {
    await other.close()
  }
})

test('another number of instances restarts none of the others', async (t) => {
  const { runtime, roll } = await start(t)
  const workload = createWorkload(program, { instances: 1 })
  const [first] = (await roll(workload)).instances
  const resize = (instances: number) =>
    runtime.resize(workload, runningAs({ ...workload, instances }), async () => {}, signalNow())
  const more = await resize(3)
  assert.equal(more.instances.length, 3)
  assert.ok(more.instances.some(({ id }) => id === first!.id))
  await resize(1)
  await until(async () => (await runtime.observe([workload])).length === 1, { what: 'one instance' })
})

test('events of instances are reported, and none from before', async (t) => {
  const { cluster, runtime, roll } = await start(t)
  await roll(createWorkload(program))
  const ends = new AbortController()
  const events: RuntimeEvent[] = []
  const watching = (async () => {
    for await (const event of runtime.watch(ends.signal)) events.push(event)
  })()
  await until(() => cluster.asked.filter((each) => each === 'GET /api/v1/pods').length === 2, { what: 'the watch' })
  const workload = createWorkload(program)
  const [instance] = (await roll(workload)).instances
  const has = (kind: RuntimeEvent['kind']) => until(() => events.find((each) => each.kind === kind), { what: kind })
  const { serviceId, revision, instanceId } = await has('started')
  assert.deepEqual([serviceId, revision, instanceId], [workload.serviceId, workload.revision, instance!.id])
  await runtime.converge(workload, absent, null, signalNow())
  await has('died')
  await has('removed')
  ends.abort()
  await watching
})

test('an execution ends once for all who ask, with its lines and what it left, until its end is called for', async (t) => {
  const { cluster, runtime, named } = await start(t)
  cluster.behave = () => ({ kind: 'end', exitCode: 3, left: 'text', lines: ['one', 'two'] })
  const task = createTask(program, { outputs: [{ path: '/out/left', maxBytes: 100 }], env: new Secret({ A: '1' }) })
  const wanted = { exitCode: 3, oomKilled: false, timedOut: false, outputs: { '/out/left': { text: 'text' } } }
  let marks = 0
  const mark = async () => {
    marks += 1
  }
  for (const marked of [false, true]) {
    const lines: string[] = []
    assert.deepEqual(await runtime.run(task, (line) => lines.push(line), signalNow(), { marked, mark }), wanted)
    assert.deepEqual(lines, ['one', 'two'])
  }
  assert.equal(marks, 1)
  assert.deepEqual(await runtime.observe([task]), [])
  assert.deepEqual(
    (await runtime.owned()).instances.map(({ taskId }) => taskId),
    [task.taskId],
  )
  assert.deepEqual(await runtime.stopTask(task, 0, signalNow()), wanted.outputs)
  cluster.behave = () => ({ kind: 'end', exitCode: 0 })
  assert.equal((await runtime.run({ ...task, attempt: 2 }, ignore, signalNow())).exitCode, 0)
  assert.equal((await runtime.run(task, ignore, signalNow())).exitCode, 0)
  await runtime.endTask(task, signalNow())
  assert.deepEqual([named('Job'), named('Pod'), named('Secret')], [[], [], []])
  assert.equal(await runtime.stopTask(task, 0, signalNow()), null)
  const lost = runtime.run(task, ignore, signalNow(), { marked: true, mark })
  assert.equal((await deploymentError(lost)).code, 'task_gone')
})

test('what an execution leaves is refused when it is too large, and what it may not leave before it begins', async (t) => {
  const { cluster, runtime, named } = await start(t)
  cluster.behave = () => ({ kind: 'end', exitCode: 0, left: 'x'.repeat(4096) })
  const large = createTask(program, { outputs: [{ path: '/out/left', maxBytes: 2 ** 20 }] })
  const [left] = Object.values((await runtime.run(large, ignore, signalNow())).outputs)
  assert.ok(left !== undefined && 'error' in left)
  assert.match(left.error.message, /larger than 4095 bytes/)
  await runtime.endTask(large, signalNow())
  const elsewhere = createTask(program, { outputs: [...large.outputs, { path: '/more/left', maxBytes: 1 }] })
  const stream = { to: async () => {}, deadlineMs: 1 }
  const streamed = createTask(program, { outputs: [{ path: '/out/left', maxBytes: 1, stream }] })
  for (const task of [elsewhere, streamed])
    assert.equal((await deploymentError(runtime.run(task, ignore, signalNow()))).code, 'task_unsupported')
  assert.deepEqual(named('Job'), [])
})

test('an execution that is stopped gives what it left, and one that cannot start says why', async (t) => {
  const { cluster, runtime, named } = await start(t)
  cluster.behave = () => ({ kind: 'endless' })
  const task = createTask(program, { outputs: [{ path: '/out/left', maxBytes: 100 }] })
  const run = runtime.run(task, ignore, signalNow())
  await until(() => named('Pod').length === 1, { what: 'its pod' })
  await until(async () => (await runtime.owned()).instances[0]?.state === 'running', { what: 'its program' })
  assert.deepEqual(await runtime.stopTask(task, 1000, signalNow()), { '/out/left': { text: 'begun' } })
  assert.equal((await run).exitCode, 143)
  assert.equal((await runtime.run(task, ignore, signalNow())).exitCode, 143)
  await runtime.endTask(task, signalNow())
  cluster.behave = () => ({ kind: 'wait', reason: 'ErrImagePull', message: 'not found' })
  const missing = createTask(program)
  assert.equal((await deploymentError(runtime.run(missing, ignore, signalNow()))).code, 'image_missing')
  const leaves = new AbortController()
  cluster.behave = () => ({ kind: 'endless' })
  const left = rejection(runtime.run(createTask(program), ignore, leaves.signal))
  const reason = new Error('left')
  leaves.abort(reason)
  assert.equal(await left, reason)
})

test('logs of several instances are merged by time, and the last lines are the last of all', async (t) => {
  const { cluster, runtime, roll } = await start(t)
  const workload = createWorkload(program, { instances: 2 })
  const { instances } = await roll(workload)
  for (const line of [1, 2, 3, 4]) {
    cluster.log(instances[line % 2]!.id, `line ${line}`)
    // The time of a line has a millisecond.
    const at = Date.now()
    await until(() => Date.now() > at, { what: 'another time' })
  }
  const read = async (options: object) => {
    const lines = []
    for await (const { text, instance } of runtime.logs(workload, options)) lines.push([text, instance])
    return lines
  }
  const all = [1, 2, 3, 4].map((line) => [`line ${line}`, instances[line % 2]!.id])
  assert.deepEqual(await read({}), all)
  assert.deepEqual(await read({ tail: 3 }), all.slice(1))
  const followed = []
  for await (const { text } of runtime.logs(workload, { tail: 2, follow: true, signal: signalNow() })) {
    followed.push(text)
    if (text === 'line 4') break
  }
  assert.deepEqual(followed, ['line 3', 'line 4'])
})
