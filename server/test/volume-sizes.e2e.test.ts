// Runs alone: it measures, or takes what the machine has.
/**
 * Sizes of volumes on real engines: the machine's, which may or may not limit them, and one of our own on a disk with
 * quotas, where this machine can mount such a disk.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { createEngine, type Engine } from '../src/lib/docker/docker-engine.ts'
import { defaultConnection } from '../src/lib/docker/engine-connection.ts'
import { newId } from '../src/lib/ids.ts'
import { createLog } from '../src/lib/log.ts'
import { createDockerRuntime, type DockerRuntime } from '../src/runtimes/docker/docker.ts'
import { busyboxImage, ensureBusybox } from './support/docker/busybox-image.ts'
import { type OwnEngine, ownEngineIsMissing, startOwnEngine } from './support/docker/own-engine.ts'
import { mountQuotaDisk } from './support/docker/quota-disk.ts'
import { createTask, signal } from './support/runtimes/conformance.ts'

const image = busyboxImage

const open = (host: string | undefined): DockerRuntime =>
  createDockerRuntime({
    connection: defaultConnection(host),
    ownerId: `sizes-${newId()}`,
    log: createLog('silent'),
  })

interface Stored {
  /** Writes a file of so many MB to the volume, and returns the exit code and the output. */
  take(megabytes: number, more?: { sizeGb?: number }): Promise<[number, string]>
  size(): Promise<number | null | undefined>
  remove(): Promise<void>
}

const store = (runtime: DockerRuntime, sizeGb: number): Stored => {
  const id = newId()
  const ids = { environmentId: newId(), serviceId: newId() }
  return {
    async take(megabytes, { sizeGb: asked = sizeGb } = {}) {
      const program = { image, entrypoint: ['fallocate'], arguments: ['-l', `${megabytes}M`, '/data/x'] }
      const volumes = [{ id, mountPath: '/data', sizeGb: asked }]
      const task = createTask(program, { ...ids, volumes, timeoutMs: 60_000 })
      const lines: string[] = []
      const { exitCode } = await runtime.run(task, (line) => lines.push(line), signal())
      await runtime.endTask(task, signal())
      return [exitCode, lines.join('\n')]
    },
    size: async () => (await runtime.volumeSizes([id])).get(id),
    async remove() {
      await runtime.converge(ids, { state: 'absent', graceMs: 0 }, null, signal())
      await runtime.removeEnvironment(ids.environmentId, signal())
    },
  }
}

const volumesOf = async (engine: Engine): Promise<string[]> =>
  ((await engine.call<{ Volumes: { Name: string }[] | null }>('GET', '/volumes')).Volumes ?? []).map(({ Name }) => Name)

test('the engine of this machine is tested for volume limits, works either way, and keeps nothing of the test', async () => {
  await ensureBusybox()
  const runtime = open(process.env.DOCKER_HOST)
  const engine = createEngine(defaultConnection(process.env.DOCKER_HOST))
  const stored = store(runtime, 1)
  try {
    const { limitsVolumes } = await runtime.capacity()
    assert.equal(await stored.size(), undefined)
    assert.equal((await stored.take(1))[0], 0)
    assert.equal(await stored.size(), limitsVolumes ? 1 : null)
    await stored.remove()
    assert.equal(await stored.size(), undefined)
    assert.deepEqual(
      (await volumesOf(engine)).filter((name) => name.startsWith('slipway-size-probe')),
      [],
    )
  } finally {
    await stored.remove()
    await runtime.close()
    await engine.close()
  }
})

const disk = ownEngineIsMissing || (await mountQuotaDisk())

describe('an engine on a disk with quotas', { skip: typeof disk === 'string' ? disk : false }, () => {
  let own: OwnEngine
  let runtime: DockerRuntime

  before(async () => {
    if (typeof disk === 'string') return
    await ensureBusybox()
    own = await startOwnEngine({ dataRoot: disk.folder })
    await own.load(image)
    runtime = open(own.host)
  })
  after(async () => {
    await runtime?.close()
    await own?.close()
    if (typeof disk !== 'string') await disk.close()
  })

  test('limits a volume to its size, whatever is requested later', async () => {
    assert.equal((await runtime.capacity()).limitsVolumes, true)
    const stored = store(runtime, 1)
    const [code, said] = await stored.take(1100)
    assert.equal(code, 1)
    assert.match(said, /No space left on device/)
    assert.equal(await stored.size(), 1)
    assert.equal((await stored.take(1100, { sizeGb: 2 }))[0], 1)
    assert.equal(await stored.size(), 1)
    await stored.remove()
    assert.deepEqual(await volumesOf(own.engine), [])
  })

  test('does not change a volume that was made without a limit', async () => {
    const stored = store(runtime, 1)
    assert.equal((await stored.take(1))[0], 0)
    const [name] = await volumesOf(own.engine)
    const { Labels } = await own.engine.call<{ Labels: object }>('GET', `/volumes/${name}`)
    await own.engine.call('DELETE', `/volumes/${name}`)
    await own.engine.call('POST', '/volumes/create', { body: { Name: name, Labels } })
    assert.equal((await stored.take(1100))[0], 0)
    assert.equal(await stored.size(), null)
    await stored.remove()
    assert.deepEqual(await volumesOf(own.engine), [])
  })
})
