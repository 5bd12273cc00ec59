import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../test/support/docker/busybox-image.ts'
import {
  clean,
  createTask,
  createWorkload,
  deploymentError,
  ignore,
  type Program,
  signal,
  start,
  until,
} from '../../../test/support/runtimes/conformance.ts'
import { createEngine, type Engine } from '../../lib/docker/docker-engine.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { Secret } from '../../lib/secret.ts'
import { createDockerRuntime, type DockerRuntime } from './docker.ts'

const shell = (script: string): Program => ({ image: busyboxImage, entrypoint: ['sh', '-c'], arguments: [script] })
const files = (...paths: string[]) => new Secret(paths.map((path) => ({ path, content: `of ${path}` })))

describe('a read-only root and labels of owners', () => {
  let runtime: DockerRuntime
  let engine: Engine
  const ownerId = `read-only-test-${newId()}`
  before(async () => {
    await ensureBusybox()
    engine = createEngine()
    runtime = createDockerRuntime({ ownerId, log: createLog('silent') })
  })
  after(async () => {
    await clean(runtime)
    await runtime.close()
    await engine.close()
  })
  const volumes = async () =>
    ((await engine.call<{ Volumes: { Name: string }[] | null }>('GET', '/volumes')).Volumes ?? []).map(
      ({ Name }) => Name,
    )
  const volumesOf = async (id: string) =>
    (await engine.call<{ Mounts: { Name: string }[] }>('GET', `/containers/${id}/json`)).Mounts.map(({ Name }) => Name)

  test('nothing but storage can be written to; mounted files are there beside what the image has, and go with the container', async () => {
    const tries = ['/x', '/tmp/x', '/etc/app/x', '/data/x'].map(
      (path) => `touch ${path} 2>/dev/null && echo wrote ${path}`,
    )
    const script = `cat /etc/app/one /data/two; echo; ls /bin/sh /bin/given; ${tries.join('; ')}; exec sleep 1000`
    const workload = createWorkload(shell(script), {
      ports: [],
      readOnlyRoot: true,
      files: files('/etc/app/one', '/bin/given', '/data/two'),
      volumes: [{ id: newId(), mountPath: '/data', sizeGb: 1 }],
    })
    const [instance] = await start(runtime, workload)
    const lines: string[] = []
    for await (const { text } of runtime.logs(workload, { tail: 10 })) lines.push(text)
    assert.deepEqual(lines.sort(), ['/bin/given', '/bin/sh', 'of /etc/app/oneof /data/two', 'wrote /data/x'])
    const own = await volumesOf(instance!.id)
    assert.equal(own.length, 3)
    const owned = await runtime.owned()
    assert.deepEqual(
      owned.instances.map(({ id }) => id),
      [instance!.id],
    )
    await runtime.instances.retire(workload, null, 0, signal())
    await until('the volumes of its files to go', async () => {
      const left = await volumes()
      return own.filter((name) => left.includes(name)).length === 1 || null
    })
  })

  test('a file at the top has no folder that could be given: the start is refused with a sentence', async () => {
    const workload = createWorkload(shell('sleep 1'), { ports: [], readOnlyRoot: true, files: files('/top') })
    const error = await deploymentError(runtime.instances.apply(workload, ignore, signal()))
    assert.equal(error.code, 'read_only_root')
    assert.match(error.message, /\/top .* mount the variable in a folder\.$/)
  })

  test('a task with a read-only root is given its files, and leaves its outputs, also as another user', async () => {
    const script =
      'touch /x 2>/dev/null && exit 9; cat /in/given; su nobody -s /bin/sh -c "printf left > /out/left.txt"'
    const task = createTask(shell(script), {
      readOnlyRoot: true,
      files: files('/in/given'),
      outputs: [{ path: '/out/left.txt', maxBytes: 100 }],
    })
    const lines: string[] = []
    const { exitCode, outputs } = await runtime.run(task, (line) => lines.push(line), signal())
    assert.deepEqual([exitCode, lines, outputs], [0, ['of /in/given'], { '/out/left.txt': { text: 'left' } }])
    const made = await volumesOf(`slipway-task-${task.taskId}`)
    assert.equal(made.length, 2)
    await runtime.endTask(task, signal())
    const own = (await runtime.owned()).instances.filter(({ serviceId }) => serviceId === task.serviceId)
    assert.deepEqual(own, [])
    const left = await volumes()
    assert.deepEqual(
      made.filter((name) => left.includes(name)),
      [],
    )
  })

  test('labels of owners are on containers and executions, but never those that we or the engine believe', async () => {
    const labels = {
      team: 'blue',
      'example.com/cost-center': 'a b',
      'slipway.owner': 'evil',
      'SLIPWAY.task': 'evil',
      'com.docker.compose.project': 'evil',
    }
    const workload = createWorkload(shell('exec sleep 1000'), { ports: [], labels })
    const [instance] = await start(runtime, workload)
    const task = createTask(shell('exit 0'), { labels })
    await runtime.run(task, ignore, signal())
    for (const each of [instance!.id, `slipway-task-${task.taskId}`]) {
      const { Config } = await engine.call<{ Config: { Labels: Record<string, string> } }>(
        'GET',
        `/containers/${each}/json`,
      )
      const { Labels } = Config
      assert.deepEqual([Labels.team, Labels['example.com/cost-center']], ['blue', 'a b'])
      assert.equal(Labels['slipway.owner'], ownerId)
      assert.equal('SLIPWAY.task' in Labels || 'com.docker.compose.project' in Labels, false)
    }
    await runtime.endTask(task, signal())
    const large = { ...labels, note: 'x'.repeat(70_000) }
    const error = await deploymentError(
      runtime.instances.apply(createWorkload(shell(''), { labels: large }), ignore, signal()),
    )
    assert.equal(error.code, 'labels_too_large')
  })
})
