/** Outputs of executions on a cluster in memory: never lost before they are read, whatever is killed. */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { startMemoryCluster } from '../../../../test/support/kubernetes/api-server.ts'
import { createMemoryRuntime } from '../../../../test/support/kubernetes/memory-runtime.ts'
import {
  absent,
  createTask,
  createWorkload,
  deploymentError,
  ignore,
  signal,
} from '../../../../test/support/runtimes/conformance.ts'
import { until } from '../../../../test/support/until.ts'
import { Secret } from '../../../lib/secret.ts'
import type { Task } from '../../runtime.ts'

const program = { image: 'registry.test/tool@sha256:1', entrypoint: ['/bin/tool'], arguments: null }
const outputs = [
  { path: '/out/state', maxBytes: 100 },
  { path: '/out/told', maxBytes: 100 },
  { path: '/other/told', maxBytes: 100, isAlternative: true },
]
const files = { '/out/state': '{"serial":1}', '/out/told': '{}' }
const texts = { '/out/state': { text: '{"serial":1}' }, '/out/told': { text: '{}' } }
const kinds = ['Job', 'Pod', 'Secret', 'PersistentVolumeClaim']

const start = async (t: TestContext) => {
  const cluster = await startMemoryCluster()
  const runtime = createMemoryRuntime(cluster, 'owner')
  t.after(async () => {
    await runtime.close()
    await cluster.close()
  })
  const isCollector = (metadata: { labels?: Record<string, string> }) =>
    metadata.labels?.['slipway.role'] === 'collector'
  /** The behavior of the execution; the reader of its files waits. */
  const behave = (does: ReturnType<typeof cluster.behave>) => {
    cluster.behave = ({ metadata }) => (isCollector(metadata) ? { kind: 'endless' } : does)
  }
  const named = () => kinds.flatMap((kind) => cluster.store.all(kind).map(({ metadata }) => metadata.name))
  const create = (over: Partial<Task> = {}): Task => {
    const task = createTask(program, { outputs, env: new Secret({ A: '1' }), ...over })
    cluster.files.set(task.taskId, files)
    return task
  }
  const podOf = (task: Task) =>
    cluster.store.all('Pod').find(({ metadata }) => metadata.name.startsWith(`t-${task.taskId}`))
  const running = (task: Task) => until(() => podOf(task)?.status?.phase === 'Running', { what: 'its program' })
  let marks = 0
  const mark = async () => {
    marks += 1
  }
  const once = (marked: boolean) => ({ marked, mark })
  return { cluster, runtime, behave, named, create, podOf, running, once, marks: () => marks }
}

test('files of a run are read after its end, any number of times, and are removed by its end', async (t) => {
  const { runtime, behave, named, create, once, marks } = await start(t)
  behave({ kind: 'end', exitCode: 1, lines: ['one'] })
  const task = create()
  const lines: string[] = []
  const end = await runtime.run(task, (line) => lines.push(line), signal(), once(false))
  assert.deepEqual(end, { exitCode: 1, oomKilled: false, timedOut: false, outputs: texts })
  assert.deepEqual(await runtime.run(task, ignore, signal(), once(true)), end)
  assert.deepEqual(lines, ['one'])
  const { '/out/state': state } = texts
  assert.deepEqual(await runtime.stopTask({ ...task, outputs: outputs.slice(0, 1) }, 0, signal()), {
    '/out/state': state,
  })
  assert.equal(marks(), 1)
  await runtime.endTask(task, signal())
  assert.deepEqual([named(), (await runtime.owned()).instances], [[], []])
  assert.equal(await runtime.stopTask(task, 0, signal()), null)
  assert.equal((await deploymentError(runtime.run(task, ignore, signal(), once(true)))).code, 'task_gone')
})

test('a pod that is deleted during its run takes no files with it, whether or not they were being read', async (t) => {
  const { cluster, runtime, behave, named, create, podOf, running, once } = await start(t)
  behave({ kind: 'endless' })
  const wanted = { exitCode: 137, oomKilled: false, timedOut: false, outputs: texts }
  const watched = create()
  const lines: string[] = []
  const run = runtime.run(watched, (line) => lines.push(line), signal(), once(false))
  await running(watched)
  cluster.store.drop(podOf(watched)!)
  assert.deepEqual(await run, wanted)
  assert.match(lines.join(), /pod of the run was removed/)
  await runtime.endTask(watched, signal())

  for (const isJobThere of [true, false]) {
    const task = create()
    const leaves = new AbortController()
    const left = runtime.run(task, ignore, leaves.signal, once(false)).catch(ignore)
    await running(task)
    leaves.abort()
    await left
    const job = cluster.store.all('Job').find(({ metadata }) => metadata.name === `t-${task.taskId}`)!
    cluster.store.drop(podOf(task)!)
    if (!isJobThere) cluster.store.drop(job)
    const { instances, volumes } = await runtime.owned()
    assert.deepEqual([instances.map(({ taskId, state }) => [taskId, state]), volumes], [[[task.taskId, 'missing']], []])
    assert.deepEqual(await runtime.stopTask(task, 0, signal()), texts)
    assert.deepEqual(await runtime.run(task, ignore, signal(), once(true)), wanted)
    await runtime.endTask(task, signal())
    assert.deepEqual(named(), [])
  }
})

test('a run that is stopped gives its files, and one that never began has none', async (t) => {
  const { cluster, runtime, behave, create, running, once } = await start(t)
  behave({ kind: 'endless' })
  const task = create()
  const run = runtime.run(task, ignore, signal(), once(false))
  await running(task)
  assert.deepEqual(await runtime.stopTask({ ...task, outputs: [] }, 1000, signal()), {})
  assert.deepEqual(await runtime.stopTask(task, 1000, signal()), texts)
  assert.deepEqual([(await run).exitCode, (await run).outputs], [143, texts])
  await runtime.endTask(task, signal())

  const waiting = create()
  cluster.files.delete(waiting.taskId)
  const mark = () => Promise.reject(new Error('killed'))
  await assert.rejects(runtime.run(waiting, ignore, signal(), { marked: false, mark }), /killed/)
  assert.deepEqual(await runtime.stopTask(waiting, 0, signal()), {})
  await runtime.endTask(waiting, signal())
})

test('files that cannot be read are waited for and stay; what is too large, or not all there, is not taken', async (t) => {
  const { cluster, runtime, behave, named, create, once } = await start(t)
  behave({ kind: 'end', exitCode: 0 })
  const task = create()
  const usual = cluster.exec
  const fails: (typeof cluster.exec)[] = [
    () => ({ pieces: ['12\n', '{'], exitCode: null }),
    () => ({ pieces: ['12\n', '{'], exitCode: 0 }),
    () => ({ pieces: ['x'.repeat(200)], exitCode: 0 }),
    () => ({ pieces: ['-1\n'], exitCode: 0 }),
    () => ({ pieces: [], exitCode: 0 }),
    () => ({ pieces: ['sh: not found'], exitCode: 127 }),
  ]
  for (const [index, exec] of fails.entries()) {
    cluster.exec = exec
    const failed = index === 0 ? runtime.run(task, ignore, signal(), once(false)) : runtime.stopTask(task, 0, signal())
    const error = await deploymentError(failed)
    assert.equal(error.next, 'wait', `${index}: ${error.message}`)
  }
  let cuts = 2
  cluster.exec = (...asked) => {
    cuts -= 1
    return cuts < 0 ? usual(...asked) : { pieces: [], exitCode: null }
  }
  assert.deepEqual((await runtime.run(task, ignore, signal(), once(true))).outputs, texts)
  cluster.exec = usual
  cluster.refuse = (_method, kind, body) => (kind === 'Job' && 'spec' in body ? [403, 'not you'] : null)
  const refused = await deploymentError(runtime.stopTask(task, 0, signal()))
  assert.deepEqual([refused.code, refused.next], ['outputs_unread', 'wait'])
  cluster.refuse = () => null
  assert.ok(named().includes(`c-${task.taskId}`))
  assert.deepEqual(await runtime.stopTask(task, 0, signal()), texts)
  cluster.files.set(task.taskId, { '/out/state': 'x'.repeat(101), '/out/told': '{}' })
  const { '/out/state': large, '/out/told': told } = (await runtime.run(task, ignore, signal(), once(true))).outputs
  assert.ok(large !== undefined && 'error' in large && large.error.code === 'file_too_large')
  assert.deepEqual(told, { text: '{}' })
  assert.match(refused.message, new RegExp(`delete the PersistentVolumeClaim t-${task.taskId} in the namespace `))
  const [claim] = cluster.store.all('PersistentVolumeClaim')
  cluster.store.merge(claim!, { metadata: { deletionTimestamp: new Date().toISOString() } })
  assert.equal(await runtime.stopTask(task, 0, signal()), null)
})

test('what runs of a service left goes with it', async (t) => {
  const { runtime, behave, named, create, once } = await start(t)
  behave({ kind: 'end', exitCode: 0 })
  const workload = createWorkload(program)
  const { organizationId, environmentId, serviceId } = workload
  await runtime.run(create({ organizationId, environmentId, serviceId }), ignore, signal(), once(false))
  await runtime.converge(workload, absent, null, signal())
  assert.deepEqual(named(), [])
})
