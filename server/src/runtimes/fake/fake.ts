/**
 * A runtime without an engine, for trying the product out and for tests (`--fake`).
 *
 * Promises: those of the interface, with real endpoints: each port of each instance listens on 127.0.0.1 and answers
 * `{service, revision, index}`, so that routing is real. No program of the user runs. Does not know: images, except
 * for the script in an image's name (script.ts). When the process dies: the endpoints end with it; with
 * `persistFolder` the next process listens on the same ports.
 */
import { on, once } from 'node:events'
import { DeploymentError } from '../../lib/errors.ts'
import { outOfMemory } from '../../lib/exit-codes.ts'
import { type Clock, systemClock } from '../../lib/time/clock.ts'
import { type BlueGreenParts, createBlueGreen, noRouter } from '../blue-green/blue-green.ts'
import type { Instances, PlacedInstance } from '../blue-green/instances.ts'
import type { Images } from '../images.ts'
import { normalizeTime } from '../log-time.ts'
import { type Mark, type Marks, newestFirst } from '../marks.ts'
import {
  type Capacity,
  engineAbilities,
  type Instance,
  type LogLine,
  type LogOptions,
  type Progress,
  type Runtime,
  type RuntimeEvent,
  type Task,
  type Usage,
  type Workload,
} from '../runtime.ts'
import { createFakeEngine, type FakeEngine, type FakeInstance, play } from './fake-engine.ts'
import { type Behaviour, behaviourOf, type Script } from './script.ts'
import { createFakeTasks } from './tasks.ts'

const createFakeMarks = ({ state, restored, save }: FakeEngine): Marks => ({
  async list(scope) {
    await restored
    const own = (state.marks ?? []).filter((each) => each.scope === scope)
    return own.map(({ scope: _, ...mark }): Mark => mark).sort(newestFirst)
  },
  async put(scope, mark) {
    await restored
    state.marks ??= []
    const there = state.marks.find((each) => each.scope === scope && each.generation === mark.generation)
    if (there !== undefined) return { generation: there.generation, nonce: there.nonce, writer: there.writer }
    state.marks.push({ scope, ...mark })
    save()
    return mark
  },
  async remove(scope, { generation }) {
    await restored
    state.marks = (state.marks ?? []).filter((each) => each.scope !== scope || each.generation !== generation)
    save()
  },
  async clear() {
    await restored
    state.marks = []
    save()
  },
})

interface FakeRuntimeOptions {
  ownerId: string
  clock?: Clock
  /** Where to keep the state as JSON; without it, it ends with the process. */
  persistFolder?: string
  /** Takes precedence over the image's name. */
  script?: Script
  /** The capacity of its imagined machines. */
  capacity?: Capacity
  /** Simulates programs whose standard streams are connected; without it they are refused. */
  pipe?: Runtime['pipe']
  /** Routes requests to instances. Without it, nothing is published. */
  router?: BlueGreenParts['router']
}

const usualCapacity: Capacity = { cpuMillicores: 16_000, memoryMb: 65_536, architecture: 'AMD64', limitsVolumes: true }

export interface FakeRuntime extends Runtime {
  /** The operations of its rollouts. */
  readonly instances: Instances
  instancesOf(serviceId: string): Promise<PlacedInstance[]>
  append(serviceId: string, text: string, stream?: LogLine['stream']): void
  /** Sets the processor use of all instances of a service together, each up to its limit. */
  burn(serviceId: string, millicores: number): void
  limitVolumes(does: boolean): void
  /** Sets whether an instance reports that it is ready. */
  say(instance: Pick<PlacedInstance, 'id' | 'serviceId'>, isReady: boolean): Promise<void>
}

const stepMs = 5

const refuseMissing = ({ kind }: Behaviour, image: string): void => {
  if (kind === 'refuse') throw new DeploymentError('image_missing', `Image ${image} does not exist.`)
}

const begin = async (world: FakeEngine, workload: Workload, index: number, name: string, behaviour: Behaviour) => {
  const seen = await world.start(workload, index, name, behaviour)
  const exitCode = workload.postStart === undefined ? 0 : play(world.log, seen, workload.postStart)
  if (exitCode === 0) return seen
  world.remove(world.of(workload.serviceId).find((each) => each.seen === seen)!)
  const message = `The post-start command exited with code ${exitCode}: the program reported an error.`
  throw new DeploymentError('post_start_failed', message)
}

const applyTo = async (world: FakeEngine, workload: Workload, behaviour: Behaviour, signal: AbortSignal) => {
  const { environmentId, serviceId, revision, volumes, record } = workload
  const { state } = world
  refuseMissing(behaviour, workload.image)
  if (!state.environments.includes(environmentId)) state.environments.push(environmentId)
  for (const { id, sizeGb } of volumes)
    if (!state.volumes.some((volume) => volume.id === id))
      state.volumes.push({ id, environmentId, serviceId, limitGb: world.limitsVolumes ? sizeGb : null, record })
  const instances = []
  for (let index = 0; index < workload.instances; index += 1) {
    signal.throwIfAborted()
    const name = `fake-${serviceId}-${revision}-${index}`
    const known = world.of(serviceId).find(({ seen }) => seen.name === name)
    instances.push(known?.seen ?? (await begin(world, workload, index, name, behaviour)))
  }
  for (const instance of world.of(serviceId))
    if (instance.seen.revision === revision && instance.seen.index >= workload.instances) world.remove(instance)
  return instances
}

/** True when ready; throws the error of one that never becomes ready, `late` (the deadline, in words) included. */
const isReady = (
  world: FakeEngine,
  { seen, behaviour }: FakeInstance,
  memoryMb: number,
  late: string | null,
): boolean => {
  const lines = () =>
    world
      .linesOf(seen)
      .slice(-50)
      .map(({ text }) => text)
  const fail = (code: string, message: string) => new DeploymentError(code, message, { lines: lines() })
  if (behaviour.kind === 'oom')
    throw fail('out_of_memory', `The service ran out of memory (OOMKilled): ${outOfMemory(memoryMb)}.`)
  if (behaviour.kind === 'crash')
    throw fail('crash_loop', `The service exited 3 times instead of becoming ready (exit code ${seen.exitCode}).`)
  if (seen.state === 'running' && behaviour.kind !== 'never-ready') return true
  if (late !== null)
    throw fail('not_ready', `The service did not become ready within ${late}: connection refused or closed.`)
  return false
}

const waitReady = async (
  world: FakeEngine,
  clock: Clock,
  workload: Workload,
  progress: Progress,
  signal: AbortSignal,
) => {
  const deadlineMs = clock.monotonicMs() + workload.readyTimeoutMs
  for (;;) {
    signal.throwIfAborted()
    const late = clock.monotonicMs() >= deadlineMs ? `${workload.readyTimeoutMs / 1000} s` : null
    const found = world.of(workload.serviceId).filter(({ seen }) => seen.revision === workload.revision)
    if (found.length < workload.instances) throw new DeploymentError('not_ready', 'The service was removed.')
    const ready = found.filter((instance) => isReady(world, instance, workload.memoryMb, late))
    if (ready.length === found.length) {
      progress(`${ready.length} of ${found.length} instances are ready`)
      return ready.map(({ seen }) => seen)
    }
    await clock.sleep(stepMs, signal)
  }
}

/** Ends quietly when aborted. */
async function* untilAborted<T>(source: AsyncIterable<T>, signal: AbortSignal | undefined): AsyncGenerator<T> {
  try {
    yield* source
  } catch (error) {
    if (!signal?.aborted) throw error
  }
}

async function* streamEvents(source: AsyncIterable<[RuntimeEvent]>, signal: AbortSignal): AsyncGenerator<RuntimeEvent> {
  for await (const [event] of untilAborted(source, signal)) yield event
}

async function* streamLines(
  world: FakeEngine,
  serviceId: string,
  { since, until, tail }: LogOptions,
  live: AsyncIterable<[string, LogLine]>,
) {
  const later = since === undefined ? '' : normalizeTime(since)
  const end = until === undefined ? null : normalizeTime(until)
  const all = world.of(serviceId).flatMap(({ seen }) => world.linesOf(seen))
  const isWanted = (at: string): boolean => at > later && (end === null || at < end)
  const past = all
    .filter(({ at }) => isWanted(normalizeTime(at)))
    .sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0))
  yield* tail === undefined ? past : past.slice(Math.max(0, past.length - tail))
  for await (const [from, line] of live) if (from === serviceId && !all.includes(line)) yield line
}

async function* nothing(): AsyncGenerator<never> {}

const createImages = (decide: (image: string) => Behaviour): Images => ({
  async hold({ reference }, progress, signal) {
    signal.throwIfAborted()
    progress(`Pulling image ${reference}`)
    refuseMissing(decide(reference), reference)
    return reference
  },
  resolve: async ({ reference }) => (decide(reference).kind === 'refuse' ? null : reference),
  isHeld: async (_organizationId, reference) => decide(reference).kind !== 'refuse',
  owners: async () => [],
  drop: async () => {},
  sweep: async () => {},
})

const createInstances = (world: FakeEngine, clock: Clock, decide: (of: Workload) => Behaviour): Instances => {
  const { state, restored, save } = world
  const retire: Instances['retire'] = async ({ serviceId }, keep, _graceMs, signal) => {
    await restored
    signal.throwIfAborted()
    for (const instance of world.of(serviceId)) if (instance.seen.revision !== keep) world.remove(instance)
    save()
  }
  return {
    retire,
    apply: async (workload, _progress, signal) => {
      await restored
      signal.throwIfAborted()
      return structuredClone(await applyTo(world, workload, decide(workload), signal).finally(save))
    },
    shrink: async ({ serviceId, revision, instances }, signal) => {
      await restored
      signal.throwIfAborted()
      for (const instance of world.of(serviceId))
        if (instance.seen.revision === revision && instance.seen.index >= instances) world.remove(instance)
      save()
    },
    ready: async (workload, progress, signal) => {
      await restored
      return structuredClone(await waitReady(world, clock, workload, progress, signal))
    },
    remove: async (service, signal) => {
      await retire(service, null, 0, signal)
      state.volumes = state.volumes.filter((volume) => volume.serviceId !== service.serviceId)
      save()
    },
    see: async (services) => {
      await restored
      const ids = services?.map(({ serviceId }) => serviceId)
      const seen = state.instances.map((instance) => instance.seen)
      return structuredClone(ids === undefined ? seen : seen.filter((each) => ids.includes(each.serviceId)))
    },
  }
}

/** No program runs, so usage is only what a test sets; the limits are those that a program would have. */
const usageOf = ({ state, loads }: FakeEngine, wanted: readonly Instance[]): Map<string, Usage> => {
  const ids = new Set(wanted.map(({ id }) => id))
  const running = state.instances.filter(({ seen }) => ids.has(seen.id) && seen.state === 'running')
  const shareOf = (serviceId: string): number =>
    (loads.get(serviceId) ?? 0) / running.filter(({ seen }) => seen.serviceId === serviceId).length
  const nothing = { memoryMb: 0, memoryRssMb: 0 }
  return new Map(
    running.map(({ seen, limits }) => {
      const most = limits?.cpuMillicores ?? null
      const cpuMillicores = Math.min(shareOf(seen.serviceId), most ?? Number.POSITIVE_INFINITY)
      return [seen.id, { ...nothing, cpuMillicores, cpuLimitMillicores: most, memoryLimitMb: limits?.memoryMb ?? null }]
    }),
  )
}

const refusePipe: Runtime['pipe'] = async () => {
  throw new DeploymentError('pipes_unavailable', 'Nothing can be streamed from and to a simulated program.')
}

export const createFakeRuntime = (options: FakeRuntimeOptions): FakeRuntime => {
  const { ownerId, clock = systemClock, persistFolder, script, capacity = usualCapacity, router = noRouter } = options
  const world = createFakeEngine(ownerId, clock, persistFolder)
  world.limitsVolumes = capacity.limitsVolumes
  const { state, restored, news, save } = world
  const decide = (of: Pick<Workload | Task, 'image' | 'serviceId'>): Behaviour => script?.(of) ?? behaviourOf(of.image)
  const instances = createInstances(world, clock, decide)
  const { follow, ...blueGreen } = createBlueGreen({ instances, router })

  return {
    ...blueGreen,
    abilities: engineAbilities,
    scalesItself: false,
    rollsItself: false,
    growsVolumes: false,
    marks: createFakeMarks(world),
    images: createImages((image) => decide({ image, serviceId: '' })),
    instances,
    ping: () => restored,
    capacity: async () => ({ ...capacity, limitsVolumes: world.limitsVolumes }),
    volumeSizes: async (ids) => {
      await restored
      const wanted = state.volumes.filter(({ id }) => ids.includes(id))
      return new Map(wanted.map(({ id, limitGb }) => [id, limitGb ?? null]))
    },
    removeEnvironment: async (environmentId) => {
      await restored
      state.environments = state.environments.filter((each) => each !== environmentId)
      save()
    },
    observe: instances.see,
    usage: async (wanted) => usageOf(world, wanted),
    watch: (signal) => streamEvents(on(news, 'event', { signal }) as AsyncIterable<[RuntimeEvent]>, signal),
    // Its instances have no probe that could fail.
    keepAlive: async (signal) => {
      if (!signal.aborted) await once(signal, 'abort')
    },
    logs: ({ serviceId }, wanted) => {
      const { follow, signal } = wanted
      const live = follow ? (on(news, 'line', { signal }) as AsyncIterable<[string, LogLine]>) : nothing()
      return untilAborted(streamLines(world, serviceId, wanted, live), signal)
    },
    ...createFakeTasks(clock, world.closed, decide),
    pipe: options.pipe ?? refusePipe,
    owned: async () => {
      await restored
      const { instances, environments, volumes } = state
      const owned = volumes.map(({ limitGb: _, record: __, ...volume }) => volume)
      return structuredClone({ instances: instances.map(({ seen }) => seen), environments, volumes: owned })
    },
    records: async (services) => {
      await restored
      const { instances, volumes } = state
      const all = [...instances.map(({ seen, record }) => ({ ...seen, record })), ...volumes]
      return new Map(
        services.map(({ serviceId }) => {
          const texts = all.flatMap((each) => (each.serviceId === serviceId ? (each.record ?? []) : []))
          return [serviceId, [...new Set(texts)]]
        }),
      )
    },
    close: world.close,
    burn: (serviceId, millicores) => void world.loads.set(serviceId, millicores),
    limitVolumes: (does) => {
      world.limitsVolumes = does
    },
    instancesOf: (serviceId) => instances.see([{ environmentId: '', serviceId }]),
    async say({ id, serviceId }, isReady) {
      const found = world.of(serviceId).find(({ seen }) => seen.id === id)
      if (found === undefined) return
      found.seen.unready = !isReady
      world.notify(found.seen, isReady ? 'ready' : 'unready')
      await follow({ environmentId: found.seen.environmentId, serviceId })
    },
    append: (serviceId, text, stream) => {
      for (const { seen } of world.of(serviceId)) world.log(seen, text, stream)
    },
  }
}
