/**
 * What every runtime guarantees, as tests: the same cases on each of them. `conform` registers them; a runtime brings
 * programs that behave as told, in whatever way it can run them.
 */

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { answersDatagrams } from '../../test/datagrams.ts'
import { conformTasks } from '../../test/task-conformance.ts'
import { until as untilTrue } from '../../test/until.ts'
import { DeploymentError } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import { Secret } from '../lib/secret.ts'
import type { LogLine, Runtime, RuntimeEvent, Task, Workload } from './runtime.ts'

export type Program = Pick<Workload, 'image' | 'entrypoint' | 'arguments'>

export interface Subject {
  create(ownerId: string): Runtime
  programs: {
    /** Answers HTTP on port 8080. */
    serve: Program
    /** The same, and answers every datagram on its port 8080 too. */
    serveBoth: Program
    /** Runs, logs at least one line, and never answers. */
    neverReady: Program
    /** Logs at least one line and ends with code 3, each time it is started. */
    crash: Program
    /** Serves; logs lines that end in `line 1` … `line 5` at once, then up to `line 200`, one about every 20 ms. */
    talk: Program
    /** As a task: a first line that differs per execution, then `one`, `two`; ends with code 3. */
    task: Program
    /** As a task: does not end within a minute. */
    endlessTask: Program
    /** As a task: tells what is in `/in/given`, writes `left` to `/out/left.txt`, and ends with code 0. */
    writer: Program
    /** As a task: writes `left` to `/out/left.txt`, and ends with code 3. */
    badWriter: Program
    /** As a task: writes `begun` to `/out/left.txt`, then a line, and does not end within a minute unless it is asked to. */
    endlessWriter: Program
  }
  images: {
    /** With a host; the engine holds it. */
    held: string
    /** Neither the engine nor a registry has it. */
    missing: string
  }
}

export const signal = (): AbortSignal => AbortSignal.timeout(60_000)
export const ignore = (): void => {}

export const createWorkload = (program: Program, over: Partial<Workload> = {}): Workload => ({
  organizationId: newId(),
  projectId: newId(),
  environmentId: newId(),
  serviceId: newId(),
  revision: newId(),
  aliases: ['web'],
  ...program,
  env: new Secret({}),
  files: new Secret([]),
  cpuMillicores: 200,
  memoryMb: 64,
  instances: 1,
  ports: [{ internalPort: 8080, protocol: 'HTTP', publiclyAccessible: true }],
  volumes: [],
  readiness: null,
  liveness: null,
  readyTimeoutMs: 20_000,
  stopGraceMs: 2000,
  ...over,
})

export const createTask = (program: Program, over: Partial<Task> = {}): Task => ({
  organizationId: newId(),
  environmentId: newId(),
  serviceId: newId(),
  taskId: newId(),
  ...program,
  env: new Secret({}),
  files: new Secret([]),
  volumes: [],
  outputs: [],
  cpuMillicores: 200,
  memoryMb: 64,
  timeoutMs: 30_000,
  ...over,
})

/** Tries until `check` gives something; rejects after ten seconds. */
export const until = <T>(what: string, check: () => Promise<T | null> | T | null) =>
  untilTrue(check, { timeoutMs: 10_000, what })

/** Applies and waits until ready. */
export const deploy = async (runtime: Runtime, workload: Workload) => {
  await runtime.apply(workload, ignore, signal())
  return runtime.ready(workload, ignore, signal())
}

export const rejection = async (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => assert.fail('it was fulfilled'),
    (error: unknown) => error,
  )

export const deploymentError = async (work: Promise<unknown>): Promise<DeploymentError> => {
  const error = await rejection(work)
  assert.ok(error instanceof DeploymentError, String(error))
  return error
}

/** Removes all that the runtime's owner has. */
export const clean = async (runtime: Runtime): Promise<void> => {
  const owned = await runtime.owned()
  for (const service of [...owned.instances, ...owned.volumes]) {
    await runtime.retire(service, null, 0, signal())
    await runtime.removeService(service, signal())
  }
  for (const environmentId of owned.environments) await runtime.removeEnvironment(environmentId, signal())
  assert.deepEqual(await runtime.owned(), { instances: [], environments: [], volumes: [] })
}

const answers = async ({ host, port }: { host: string; port: number }): Promise<boolean> => {
  const { status } = await fetch(`http://${host}:${port}/`)
  return status > 0
}

const collect = async (lines: AsyncIterable<LogLine>, enough: (line: LogLine) => boolean): Promise<LogLine[]> => {
  const all: LogLine[] = []
  for await (const line of lines) {
    all.push(line)
    if (enough(line)) break
  }
  return all
}

const numberOf = (line: LogLine): number => Number(/line (\d+)$/.exec(line.text)?.[1] ?? 0)
const range = (first: number, last: number): number[] => Array.from({ length: last - first + 1 }, (_, i) => first + i)

const nobody = { organizationId: newId(), origin: null, login: null }

export const conform = ({ create, programs, images }: Subject): void => {
  let runtime: Runtime
  before(() => {
    runtime = create(`conformance-${newId()}`)
  })
  after(async () => {
    await clean(runtime)
    await runtime.close()
  })

  describe('pull', () => {
    test('an image that is held is there at once, twice and more, by a reference that runs', async () => {
      const image = { ...nobody, reference: images.held, refresh: false }
      const reference = await runtime.pull(image, ignore, signal())
      assert.equal(await runtime.pull(image, ignore, signal()), reference)
      assert.equal(await runtime.pull({ ...image, reference }, ignore, signal()), reference)
      await deploy(runtime, createWorkload({ ...programs.serve, image: reference }))
    })

    test('an image that is nowhere is refused by its name', async () => {
      const image = { ...nobody, reference: images.missing, refresh: true }
      const error = await deploymentError(runtime.pull(image, ignore, signal()))
      assert.match(error.code, /^image_/)
      assert.ok(error.message.includes(images.missing), error.message)
    })

    test('an aborted pull rejects with the reason', async () => {
      const reason = new Error('canceled by the user')
      const image = { ...nobody, reference: images.held, refresh: true }
      assert.equal(await rejection(runtime.pull(image, ignore, AbortSignal.abort(reason))), reason)
    })
  })

  describe('apply and ready', () => {
    test('apply starts as many instances as asked, and again changes nothing', async () => {
      const workload = createWorkload(programs.serve, { instances: 3 })
      const first = await runtime.apply(workload, ignore, signal())
      assert.deepEqual(
        first.map(({ index }) => index),
        [0, 1, 2],
      )
      const second = await runtime.apply(workload, ignore, signal())
      const ids = (instances: { id: string }[]) => instances.map(({ id }) => id)
      assert.deepEqual(ids(second), ids(first))
      assert.deepEqual(ids(await runtime.observe([workload])).sort(), ids(first).sort())
    })

    test('fewer instances of the same revision end those that are too many', async () => {
      const workload = createWorkload(programs.serve, { instances: 2 })
      await runtime.apply(workload, ignore, signal())
      await runtime.apply({ ...workload, instances: 1 }, ignore, signal())
      const left = await runtime.observe([workload])
      assert.deepEqual(
        left.map(({ index }) => index),
        [0],
      )
    })

    test('when ready resolves, every endpoint answers', async () => {
      const workload = createWorkload(programs.serve, { instances: 2 })
      const instances = await deploy(runtime, workload)
      assert.equal(instances.length, 2)
      assert.notDeepEqual(instances[0]!.endpoints[8080], instances[1]!.endpoints[8080])
      for (const { endpoints, state } of instances) {
        assert.equal(state, 'running')
        assert.ok(await answers(endpoints[8080]!))
      }
    })

    test('a port that is open over TCP and UDP both is reached over both at its one address', async () => {
      const ports = (['TCP', 'UDP'] as const).map((protocol) => ({
        internalPort: 8080,
        protocol,
        publiclyAccessible: true,
        externalPort: 30_000,
      }))
      const [instance] = await deploy(runtime, createWorkload(programs.serveBoth, { ports, memoryMb: 128 }))
      const address = instance!.endpoints[8080]!
      assert.ok(await answers(address))
      assert.ok(await answersDatagrams(address))
    })

    test('a service that never answers is refused at its deadline, with its last log lines', async () => {
      const workload = createWorkload(programs.neverReady, { readyTimeoutMs: 700 })
      await runtime.apply(workload, ignore, signal())
      const begun = performance.now()
      const error = await deploymentError(runtime.ready(workload, ignore, signal()))
      const tookMs = performance.now() - begun
      assert.equal(error.code, 'not_ready')
      assert.ok(error.lines.length > 0)
      assert.ok(tookMs >= 650 && tookMs < 3000, `took ${tookMs} ms`)
    })

    test('a service that keeps ending is a crash loop, told with its exit code and log, long before the deadline', async () => {
      const workload = createWorkload(programs.crash)
      await runtime.apply(workload, ignore, signal())
      const error = await deploymentError(runtime.ready(workload, ignore, signal()))
      assert.equal(error.code, 'crash_loop')
      assert.match(error.message, /code 3/)
      assert.ok(error.lines.length > 0)
    })

    test('an aborted apply rejects with the reason and leaves nothing that retire does not remove', async () => {
      for (const delayMs of [0, 30, 120, 200]) {
        const workload = createWorkload(programs.serve, { instances: 2 })
        const controller = new AbortController()
        const reason = new Error('canceled by the user')
        const work = runtime.apply(workload, ignore, controller.signal)
        setTimeout(() => controller.abort(reason), delayMs)
        await work.catch((error) => assert.equal(error, reason))
        await runtime.retire(workload, null, 0, signal())
        assert.deepEqual(await runtime.observe([workload]), [])
      }
    })

    test('an aborted ready rejects promptly with the reason', async () => {
      const workload = createWorkload(programs.neverReady)
      await runtime.apply(workload, ignore, signal())
      const controller = new AbortController()
      const reason = new Error('canceled by the user')
      const begun = performance.now()
      setTimeout(() => controller.abort(reason), 100)
      assert.equal(await rejection(runtime.ready(workload, ignore, controller.signal)), reason)
      assert.ok(performance.now() - begun < 1000)
    })
  })

  describe('retire and remove', () => {
    test('a new revision runs beside the old one until retire keeps only the given one', async () => {
      const old = createWorkload(programs.serve)
      const [oldInstance] = await deploy(runtime, old)
      const next = { ...old, revision: newId() }
      const [nextInstance] = await deploy(runtime, next)
      assert.ok(await answers(oldInstance!.endpoints[8080]!))
      await runtime.retire(old, next.revision, 2000, signal())
      const left = await runtime.observe([old])
      assert.deepEqual(
        left.map(({ id }) => id),
        [nextInstance!.id],
      )
      assert.ok(await answers(nextInstance!.endpoints[8080]!))
      // The address of what is gone may refuse, or say nothing.
      const { host, port } = oldInstance!.endpoints[8080]!
      await assert.rejects(fetch(`http://${host}:${port}/`, { signal: AbortSignal.timeout(2000) }))
    })

    test('retire of what is gone, and retire twice at once, succeed', async () => {
      const workload = createWorkload(programs.serve)
      await runtime.retire(workload, null, 2000, signal())
      await deploy(runtime, workload)
      const retire = () => runtime.retire(workload, null, 2000, signal())
      await Promise.all([retire(), retire()])
      await retire()
      assert.deepEqual(await runtime.observe([workload]), [])
    })

    test('volumes outlive retire and end with their service', async () => {
      const volume = { id: newId(), mountPath: '/data', sizeGb: 1 }
      const workload = createWorkload(programs.serve, { volumes: [volume] })
      await deploy(runtime, workload)
      await runtime.retire(workload, null, 2000, signal())
      const mine = async () =>
        (await runtime.owned()).volumes.filter(({ serviceId }) => serviceId === workload.serviceId)
      assert.deepEqual(await mine(), [
        { id: volume.id, environmentId: workload.environmentId, serviceId: workload.serviceId },
      ])
      await runtime.removeService(workload, signal())
      assert.deepEqual(await mine(), [])
      await runtime.removeService(workload, signal())
    })

    test('an environment is owned while it has a network, and gone after its removal', async () => {
      const workload = createWorkload(programs.serve)
      await deploy(runtime, workload)
      assert.ok((await runtime.owned()).environments.includes(workload.environmentId))
      await runtime.retire(workload, null, 2000, signal())
      await runtime.removeEnvironment(workload.environmentId, signal())
      assert.ok(!(await runtime.owned()).environments.includes(workload.environmentId))
      await runtime.removeEnvironment(workload.environmentId, signal())
      await deploy(runtime, { ...workload, revision: newId() })
    })

    test('two owners side by side do not see or end what the other has', async () => {
      const other = create(`conformance-${newId()}`)
      try {
        const mine = createWorkload(programs.serve)
        const theirs = createWorkload(programs.serve)
        await Promise.all([deploy(runtime, mine), deploy(other, theirs)])
        const seen = await other.owned()
        assert.deepEqual(
          seen.instances.map(({ serviceId }) => serviceId),
          [theirs.serviceId],
        )
        assert.deepEqual(seen.environments, [theirs.environmentId])
        await other.retire(mine, null, 0, signal())
        await other.removeService(mine, signal())
        assert.equal((await runtime.observe([mine])).length, 1)
        assert.deepEqual(await runtime.observe([theirs]), [])
      } finally {
        await clean(other)
        await other.close()
      }
    })
  })

  describe('observe, watch and logs', () => {
    test('observe tells ids, state and times of the asked services only', async () => {
      const [one, two] = [createWorkload(programs.serve), createWorkload(programs.serve)]
      await Promise.all([deploy(runtime, one), deploy(runtime, two)])
      const [seen, ...others] = await runtime.observe([one])
      assert.equal(others.length, 0)
      const { organizationId, environmentId, serviceId, revision } = one
      assert.partialDeepStrictEqual(seen, { organizationId, environmentId, serviceId, revision, index: 0 })
      assert.partialDeepStrictEqual(seen, { state: 'running', exitCode: null, oomKilled: false })
      assert.ok(Math.abs(Date.now() - Date.parse(seen!.startedAt!)) < 60_000)
      assert.equal((await runtime.observe([one, two])).length, 2)
      assert.deepEqual(await runtime.observe([]), [])
    })

    test('watch yields what starts and what ends, and ends itself when aborted', async () => {
      const workload = createWorkload(programs.serve)
      const controller = new AbortController()
      const events: RuntimeEvent[] = []
      const watching = (async () => {
        for await (const event of runtime.watch(controller.signal))
          if (event.serviceId === workload.serviceId) events.push(event)
      })()
      const [instance] = await deploy(runtime, workload)
      await runtime.retire(workload, null, 2000, signal())
      const has = (kind: RuntimeEvent['kind']) => events.find((event) => event.kind === kind) ?? null
      const started = await until('started', () => has('started'))
      await until('died', () => has('died'))
      await until('removed', () => has('removed'))
      assert.deepEqual([started.instanceId, started.revision], [instance!.id, workload.revision])
      controller.abort()
      await watching
    })

    test('logs: tail gives the last lines in order, since only later ones, follow goes on without loss until aborted', async () => {
      const workload = createWorkload(programs.talk)
      await deploy(runtime, workload)
      const logs = (options = {}) => runtime.logs(workload, options)
      const controller = new AbortController()
      const followed = await collect(logs({ follow: true, signal: controller.signal }), (line) => numberOf(line) === 20)
      const told = followed.map(numberOf).filter((number) => number > 0)
      assert.deepEqual(told, range(1, 20))
      assert.deepEqual(new Set(followed.map(({ instance }) => instance)).size, 1)

      const tail = await collect(logs({ tail: 4 }), () => false)
      assert.equal(tail.length, 4)
      assert.deepEqual(tail.map(numberOf), range(numberOf(tail[0]!), numberOf(tail[0]!) + 3))
      assert.ok(numberOf(tail[0]!) >= 17)

      const ten = followed.find((line) => numberOf(line) === 10)!
      const since = await collect(logs({ since: ten.at, follow: true }), (line) => numberOf(line) >= 25)
      assert.deepEqual(since.map(numberOf), range(11, 25))

      const last: number[] = []
      for await (const line of logs({ tail: 1, follow: true, signal: controller.signal })) {
        last.push(numberOf(line))
        if (last.length === 3) controller.abort()
      }
      assert.deepEqual(last, range(last[0]!, last[0]! + 2))
    })

    test('logs of several instances are merged by time, and instances that start later are followed too', async () => {
      const workload = createWorkload(programs.talk, { instances: 2 })
      await deploy(runtime, workload)
      const tail = await collect(runtime.logs(workload, { tail: 8 }), () => false)
      assert.equal(tail.length, 8)
      assert.deepEqual(
        tail.map(({ at }) => at),
        tail.map(({ at }) => at).toSorted(),
      )
      const next = { ...workload, revision: newId(), instances: 1 }
      const seen = new Map<string, number[]>()
      let applied: Promise<unknown> | undefined
      for await (const line of runtime.logs(workload, { tail: 4, follow: true, signal: signal() })) {
        applied ??= runtime.apply(next, ignore, signal())
        seen.set(line.instance, [...(seen.get(line.instance) ?? []), numberOf(line)])
        if (line.revision === next.revision && numberOf(line) === 10) break
      }
      await applied
      assert.equal(seen.size, 3)
      for (const numbers of seen.values()) {
        const told = numbers.filter((number) => number > 0)
        assert.deepEqual(told, range(told[0]!, told.at(-1)!))
      }
    })

    test('following the last lines does not replay older ones of an instance that is silent since', async () => {
      const silent = createWorkload(programs.neverReady)
      await runtime.apply(silent, ignore, signal())
      const logs = (options = {}) => runtime.logs(silent, options)
      await collect(logs({ follow: true }), () => true)
      const talking = { ...silent, ...programs.talk, revision: newId() }
      await deploy(runtime, talking)
      await collect(logs({ follow: true }), (line) => numberOf(line) === 5)
      const lines = await collect(logs({ tail: 2, follow: true }), (line) => numberOf(line) >= 25)
      assert.deepEqual(new Set(lines.map(({ revision }) => revision)), new Set([talking.revision]))
      assert.deepEqual(lines.map(numberOf), range(numberOf(lines[0]!), numberOf(lines.at(-1)!)))
    })

    test('capacity says what there is for services', async () => {
      const { cpuMillicores, memoryMb, architecture } = await runtime.capacity()
      assert.ok(cpuMillicores >= 1000 && memoryMb >= 256, `${cpuMillicores} ${memoryMb}`)
      assert.match(architecture, /^(AMD64|ARM64)$/)
    })

    test('logs of a service without instances are empty', async () => {
      assert.deepEqual(
        await collect(runtime.logs({ environmentId: newId(), serviceId: newId() }, { tail: 10 }), () => false),
        [],
      )
    })
  })

  conformTasks(() => runtime, programs)
}
