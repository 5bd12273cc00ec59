/**
 * The guarantees of every runtime, as tests: the same cases on each of them. `conform` registers them; a runtime
 * provides programs with the required behavior, in any form that it can run, and is called from outside, through its
 * ingress.
 */

import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { type IncomingMessage, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { after, before, describe, test } from 'node:test'
import { forEachParallel } from '../../../src/lib/concurrency/parallel.ts'
import { DeploymentError } from '../../../src/lib/errors.ts'
import { newId } from '../../../src/lib/ids.ts'
import { createLog } from '../../../src/lib/log.ts'
import { Secret } from '../../../src/lib/secret.ts'
import { createRouter } from '../../../src/router/control/client.ts'
import type { Router } from '../../../src/router/router.ts'
import type { Instances } from '../../../src/runtimes/blue-green/instances.ts'
import type { Exposure } from '../../../src/runtimes/ingress.ts'
import {
  type Ability,
  type Desired,
  engineAbilities,
  type Instance,
  type LogLine,
  type Probe,
  type Rollout,
  type RolloutStep,
  type Running,
  type Runtime,
  type RuntimeEvent,
  type Task,
  type Workload,
} from '../../../src/runtimes/runtime.ts'
import { until as untilTrue } from '../until.ts'
import { conformContainers } from './container-conformance.ts'
import { conformRollouts } from './rollout-conformance.ts'
import { conformTasks } from './task-conformance.ts'

/** With its own size, where the usual one is too large. */
export type Program = Pick<Workload, 'image' | 'entrypoint' | 'arguments'> &
  Partial<Pick<Workload, 'cpuMillicores' | 'memoryMb'>>

/** What a runtime says of itself, by which cases are chosen: one of them asks whether it does. */
export interface Declared extends Pick<Runtime, 'scalesItself' | 'rollsItself'> {
  abilities: ReadonlySet<Ability>
  sharesPorts: boolean
}

/** An engine with our router. */
const engine: Declared = { abilities: engineAbilities, scalesItself: false, rollsItself: false, sharesPorts: true }

/** Asks an address of the ingress: `<status> <body>`. */
export type Visit = (url: string) => Promise<string>

export interface Subject {
  /** Default: an engine with our router. */
  declared?: Declared
  /** Default: the router, at its port on loopback. */
  visit?: Visit
  /** How long it may take until the program of a new instance has begun. Default 0. */
  startMs?: number
  /** Whether a task may leave a file that goes to a place as a stream, and files of several folders. Default true. */
  streamsFiles?: boolean
  /** `router`: for one that leads requests itself. */
  create(ownerId: string, router: Router): Runtime
  programs: {
    /** Answers HTTP on port 8080, at / with what contains its variable PAGE, or its revision. */
    serve: Program
    /** The same, but each instance answers what no other does; it is ready by `readiness`. */
    distinct: Program
    /** The same as `serve`, and answers every datagram on its port 8080 too. */
    serveBoth: Program
    /** Runs, logs at least one line, and never answers. */
    neverReady: Program
    /** Logs at least one line and ends with code 3, each time it is started. */
    crash: Program
    /** Serves; logs lines that end in `line 1` … `line 5` at once, then up to `line 200`, one about every 20 ms. */
    talk: Program
    /** As a task: a first line that differs per execution, then `one`, `two`; ends with code 3. */
    task: Program
    /** As a task: prints the content of `/in/kept`, and then writes `kept` to it. */
    keeper: Program
    /** As a task: does not end within a minute. */
    endlessTask: Program
    /** As a task: prints the content of `/in/given`, writes `left` to `/out/left.txt`, and ends with code 0. */
    writer: Program
    /** As a task: writes `left` to `/out/left.txt`, and ends with code 3. */
    badWriter: Program
    /**
     * As a task: writes `begun` to `/out/left.txt`, then a line, and does not end within a minute unless it is asked
     * to.
     */
    endlessWriter: Program
  }
  /** Asks an instance of `distinct` every second whether it is ready; one no counts. */
  readiness: Probe
  /** Lets an instance of `distinct` say that from now on. */
  say(runtime: Runtime, instance: Instance, isReady: boolean): Promise<void>
  commands: {
    /** Lets the log of its instance, one of `serve`, have this line. */
    tell(line: string): string[]
    /** Ends with code 3. */
    fail: string[]
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
  artifact: 'image',
  organizationId: newId(),
  projectId: newId(),
  environmentId: newId(),
  serviceId: newId(),
  revision: newId(),
  aliases: ['web'],
  env: new Secret({}),
  files: new Secret([]),
  cpuMillicores: 200,
  memoryMb: 64,
  ...program,
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
  env: new Secret({}),
  files: new Secret([]),
  volumes: [],
  outputs: [],
  cpuMillicores: 200,
  memoryMb: 64,
  ...program,
  timeoutMs: 30_000,
  ...over,
})

/** Where names of hosts lead nowhere from here, the ingress is asked by its address. */
export const visit: Visit = async (url) => {
  const { hostname, port } = new URL(url)
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  const options = { host: '127.0.0.1', port, headers: { host: hostname }, agent: false }
  request(options, resolve).on('error', reject).end()
  const answer = await promise
  return `${answer.statusCode} ${await text(answer)}`
}

/** Tries until `check` gives something; rejects after half a minute. */
export const until = <T>(what: string, check: () => Promise<T | null> | T | null) =>
  untilTrue(check, { timeoutMs: 30_000, what })

/** Asserts what holds at once; or, of what the cluster's own controllers do, within a minute. */
export type Soon = (check: () => Promise<void>) => Promise<void>

const within = async (check: () => Promise<void>, ms: number): Promise<void> => {
  const deadline = performance.now() + ms
  await untilTrue(
    () =>
      check().then(
        () => true,
        (error: unknown) => {
          if (performance.now() > deadline) throw error
          return false
        },
      ),
    { timeoutMs: 2 * ms, what: 'what is asserted' },
  )
}

/** What all parts of the suite know. */
export interface Suite extends Required<Pick<Subject, 'declared' | 'visit' | 'startMs' | 'streamsFiles'>> {
  runtime(): Runtime
  soon: Soon
}

export const nowhere: Exposure = { hosts: [], ports: [] }

export const runningAs = (workload: Workload, exposure: Exposure = nowhere): Running<Workload> => ({
  state: 'running',
  workload,
  exposure: async () => exposure,
})

/** The steps of a rollout as they come; `at` is called before one is done, and may end it. */
export const createRollout = (at: (step: RolloutStep | 'serving') => Promise<void> | void = ignore) => {
  const steps: string[] = []
  const told: string[] = []
  const rollout: Rollout = {
    async step(name, _deadlineMs, work) {
      steps.push(name)
      await at(name)
      await work(signal())
    },
    report: (_, text) => told.push(text),
    serving: async () => at('serving'),
  }
  return { rollout, steps, told }
}

/** Rolls a version out, and answers its instances. */
export const deploy = async (runtime: Runtime, workload: Workload, exposure = nowhere) =>
  (await runtime.converge(workload, runningAs(workload, exposure), createRollout().rollout, signal())).instances

/** Starts a version beside whatever runs, where a runtime is made of single instances, and waits until it is ready. */
export const start = async ({ instances }: { instances: Instances }, workload: Workload) => {
  await instances.apply(workload, ignore, signal())
  return instances.ready(workload, ignore, signal())
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

export const absent: Desired = { state: 'absent', graceMs: 0 }

/** Removes all that the runtime's owner has. */
export const clean = async (runtime: Runtime): Promise<void> => {
  const owned = await runtime.owned()
  const services = new Map([...owned.instances, ...owned.volumes].map((each) => [each.serviceId, each]))
  const inside = Map.groupBy(services.values(), ({ environmentId }) => environmentId)
  await forEachParallel(32, [...new Set([...inside.keys(), ...owned.environments])], async (environmentId) => {
    for (const service of inside.get(environmentId) ?? []) await runtime.converge(service, absent, null, signal())
    await runtime.removeEnvironment(environmentId, signal())
  })
  assert.deepEqual(await runtime.owned(), { instances: [], environments: [], volumes: [] })
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

export const conform = ({ create, programs, images, ...rest }: Subject): void => {
  const { declared = engine, startMs = 0, streamsFiles = true } = rest
  const { rollsItself } = declared
  const soon: Soon = rollsItself ? (check) => within(check, 60_000) : (check) => check()
  let runtime: Runtime
  let router: Router
  let dataDir: string
  before(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'conformance-'))
    router = createRouter({ dataDir, host: '127.0.0.1', port: 0, log: createLog('silent') })
    await router.start()
    runtime = create(`conformance-${newId()}`, router)
  })
  after(async () => {
    await clean(runtime)
    await runtime.close()
    await router.stop()
    await rm(dataDir, { recursive: true })
  })

  const converge = (workload: Workload, desired: Desired, rollout: Rollout | null = createRollout().rollout) =>
    runtime.converge(workload, desired, rollout, signal())

  const suite: Suite = { declared, visit: rest.visit ?? visit, startMs, streamsFiles, soon, runtime: () => runtime }
  test('it has what it declares', () => {
    const { abilities, scalesItself, ingress } = runtime
    const found: Declared = {
      abilities,
      scalesItself,
      rollsItself: runtime.rollsItself,
      sharesPorts: ingress.sharesPorts,
    }
    assert.deepEqual(found, declared)
  })

  conformRollouts({ ...suite, create: (ownerId) => create(ownerId, router), programs, images })

  describe('observe, watch and logs', () => {
    test('observe reports ids, state and times of the requested services only', async () => {
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

    test('usage reports use and limits of running instances, also to several concurrent callers, and nothing about removed ones', async () => {
      const workload = createWorkload(programs.serve)
      await deploy(runtime, workload)
      const instances = await runtime.observe([workload])
      await soon(async () => assert.equal((await runtime.usage(instances, signal())).size, 1))
      const [first, second] = await Promise.all([
        runtime.usage(instances, signal()),
        runtime.usage(instances, signal()),
      ])
      assert.deepEqual([...first.keys()], [instances[0]!.id])
      assert.deepEqual(first, second)
      const [used] = first.values()
      assert.deepEqual([used!.cpuLimitMillicores, used!.memoryLimitMb], [workload.cpuMillicores, workload.memoryMb])
      assert.ok(used!.cpuMillicores >= 0 && used!.cpuMillicores < 20_000, JSON.stringify(used))
      assert.ok(used!.memoryRssMb <= used!.memoryMb && used!.memoryMb <= workload.memoryMb, JSON.stringify(used))
      await converge(workload, absent)
      await untilTrue(async () => (await runtime.usage(instances, signal())).size === 0, { what: 'nothing to be told' })
    })

    test('watch yields starts and ends, and ends when aborted', async () => {
      const workload = createWorkload(programs.serve)
      const controller = new AbortController()
      const events: RuntimeEvent[] = []
      const watching = (async () => {
        for await (const event of runtime.watch(controller.signal))
          if (event.serviceId === workload.serviceId) events.push(event)
      })()
      const [instance] = await deploy(runtime, workload)
      await converge(workload, { state: 'stopped', exposure: async () => nowhere, graceMs: 2000 })
      const has = (kind: RuntimeEvent['kind']) => events.find((event) => event.kind === kind) ?? null
      const started = await until('started', () => has('started'))
      await until('died', () => has('died'))
      await until('removed', () => has('removed'))
      assert.deepEqual([started.instanceId, started.revision], [instance!.id, workload.revision])
      controller.abort()
      await watching
    })

    test('logs: tail returns the last lines in order, since only later ones, follow continues without loss until aborted', async () => {
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
        applied ??= deploy(runtime, next)
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

    test('following the last lines does not replay older ones of an instance that has been silent since', async () => {
      const silent = createWorkload(programs.neverReady)
      await converge(silent, runningAs(silent), null)
      const logs = (options = {}) => runtime.logs(silent, options)
      await collect(logs({ follow: true }), () => true)
      const talking = { ...silent, ...programs.talk, revision: newId() }
      const { rollout } = createRollout((step) => (step === 'drain' ? Promise.reject(new Error('kill')) : undefined))
      await rejection(converge(talking, runningAs(talking), rollout))
      // A cluster of itself ends what was never ready as soon as another version begins.
      if (!rollsItself) assert.equal((await runtime.observe([silent])).length, 2)
      await collect(logs({ follow: true }), (line) => numberOf(line) === 5)
      const lines = await collect(logs({ tail: 2, follow: true }), (line) => numberOf(line) >= 25)
      assert.deepEqual(new Set(lines.map(({ revision }) => revision)), new Set([talking.revision]))
      assert.deepEqual(lines.map(numberOf), range(numberOf(lines[0]!), numberOf(lines.at(-1)!)))
    })

    test('capacity reports the resources for services', async () => {
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

  conformContainers({ ...suite, programs, commands: rest.commands, readiness: rest.readiness, say: rest.say })
  conformTasks(suite, programs)
}
