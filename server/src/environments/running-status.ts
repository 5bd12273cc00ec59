/**
 * Running states on the websocket of the public API: the services of an environment or a project with their instances,
 * and the instances of one service. The state of a service is in the database, its instances come from the engine;
 * while the engine does not answer, the last known instances are sent.
 */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation, reading } from '../api/operations/operation.ts'
import type { Parts } from '../api/parts.ts'
import { artifactOf } from '../clusters/artifact.ts'
import { readClusterId } from '../clusters/refs.ts'
import type { ServiceStatus } from '../deployments/deployments.ts'
import { absent, allKinds, type Kind, kinds } from '../kinds.ts'
import { untilAborted } from '../lib/concurrency/waiting.ts'
import type { Instance } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'
import { followShared, type Shared } from '../streams/shared-read.ts'
import { type Sink, socketSink } from '../streams/sink.ts'
import { ofProject, seenBy } from './live-status.ts'
import { EnvironmentOrProject, environmentOrProject, ofService } from './stream-query.ts'

const runningStates = ['STARTING', 'RUNNING', 'ERROR', 'STOPPING', 'STOPPED', 'COMPLETED', 'WARNING'] as const
export type RunningState = (typeof runningStates)[number]

const ending = new Set(['STOPPING', 'DELETING'])

const isWord = (word: string): word is RunningState => runningStates.some((each) => each === word)

interface Noted {
  running_state: string
  deployment_state: string
}

const isAlive = ({ state }: Pick<Instance, 'state'>): boolean => state !== 'exited' && state !== 'missing'

/** The running state of a service, from its recorded state, the current action and its instances. */
export const serviceStateOf = (
  { running_state, deployment_state }: Noted,
  instances: readonly Pick<Instance, 'state'>[],
): RunningState => {
  // There is no value for an unknown state.
  const state = isWord(running_state) ? running_state : 'WARNING'
  if (ending.has(deployment_state)) return state === 'STOPPED' ? state : 'STOPPING'
  // A first version is recorded once it is ready.
  return state === 'STOPPED' && instances.some(isAlive) ? 'STARTING' : state
}

const ofInstance: Record<Instance['state'], RunningState> = {
  created: 'STARTING',
  starting: 'STARTING',
  running: 'RUNNING',
  restarting: 'ERROR',
  exited: 'STOPPED',
  missing: 'STOPPED',
}

/**
 * Running states: whether instances are up, whatever the last deployment did. Pure. The values are those of the public
 * websocket API.
 */
export const instanceStateOf = ({ state, exitCode }: Pick<Instance, 'state' | 'exitCode'>): RunningState =>
  state === 'exited' && exitCode !== null && exitCode !== 0 ? 'ERROR' : ofInstance[state]

/** One failure is a warning, nothing but failures an error; then what is changing, then what is running. */
export const environmentRunningState = (services: readonly RunningState[]): RunningState => {
  if (services.length > 0 && services.every((state) => state === 'ERROR')) return 'ERROR'
  if (services.includes('ERROR')) return 'WARNING'
  const order = ['WARNING', 'STARTING', 'STOPPING', 'RUNNING', 'COMPLETED'] as const
  return order.find((state) => services.includes(state)) ?? 'STOPPED'
}

const engineMs = 2000

interface Release {
  revision: string
  image: string
  version: string
}

const readReleases = async (db: Queryable, instances: readonly Instance[]): Promise<Map<string, Release>> => {
  if (instances.length === 0) return new Map()
  const rows = await db.query<Release & { serviceId: string }>(
    `select service_id as "serviceId", deployment_id as revision, image,
       coalesce(commit ->> 'git_commit_id', image) as version
     from release where service_id = any($1) and deployment_id = any($2)`,
    [instances.map(({ serviceId }) => serviceId), instances.map(({ revision }) => revision)],
  )
  return new Map(rows.map((row) => [`${row.serviceId} ${row.revision}`, row]))
}

const millisecondsOf = (at: string | null): number => (at === null ? 0 : Date.parse(at))

const messageOf = ({ oomKilled, exitCode, state }: Instance): string => {
  if (oomKilled) return 'It ran out of memory: raise its memory limit.'
  return state !== 'running' && exitCode !== null && exitCode !== 0 ? `It exited with code ${exitCode}.` : ''
}

const podOf = (instance: Instance, name: string, release: Release | undefined) => {
  const state = instanceStateOf(instance)
  const told = {
    state,
    state_message: messageOf(instance),
    state_reason: instance.oomKilled ? 'OOMKilled' : '',
    started_at: millisecondsOf(instance.startedAt),
  }
  const container = {
    name,
    image: release?.image ?? '',
    restart_count: instance.restarts,
    current_state: told,
    last_terminated_state: null,
  }
  return {
    name: instance.name,
    ...told,
    restart_count: instance.restarts,
    service_version: release?.version ?? instance.revision,
    containers: [container],
    last_events: [],
  }
}

interface Service {
  id: string
  kind: string
}

/** Asks the engine, with a timeout; remembers its last answer. */
const createInstanceReader = ({ clusters, database, log }: Parts) => {
  const last = new Map<string, Instance[]>()
  const read = async (environmentId: string, services: readonly Service[]): Promise<Instance[]> => {
    const clusterId = await readClusterId(database, environmentId)
    if (clusterId === null) return []
    const { runtime } = await clusters.of(clusterId)
    return runtime.observe(
      services.map(({ kind, id }) => ({ environmentId, serviceId: id, artifact: artifactOf(kind) })),
    )
  }
  const ask = (environmentId: string, services: readonly Service[]): Promise<Instance[]> =>
    untilAborted(read(environmentId, services), AbortSignal.timeout(engineMs))
  return async (environmentId: string, key: string, services: readonly Service[]): Promise<Instance[]> => {
    try {
      last.set(key, services.length === 0 ? [] : await ask(environmentId, services))
    } catch (error) {
      log.warn({ err: error }, 'the engine does not answer: streams show its last known state')
    }
    return last.get(key) ?? []
  }
}

type InstanceReader = ReturnType<typeof createInstanceReader>

interface Known {
  kind: Kind
  name: string
  status: ServiceStatus
}

const actions = new Set(['DEPLOY', 'RESTART', 'STOP', 'DELETE'])

/** The fields that the record of a kind has besides state and instances. */
const ownFields = ({ kind, status }: Known): object => {
  const { action, sub_action } = status.status_details
  const triggered = { action: actions.has(action) ? action : 'DEPLOY', sub_action }
  const fields = { certificates: { certificates: [] }, 'triggered action': { triggered_action: triggered }, none: {} }
  return fields[kinds[kind].runningFields]
}

const readNames = async (db: Queryable, environmentId: string) => {
  const rows = await db.query<{ id: string; name: string; isParent: boolean; projectId: string }>(
    `select id, name, id = $1 as "isParent", parent_id as "projectId" from node where id = $1 or parent_id = $1`,
    [environmentId],
  )
  return {
    names: new Map(rows.map((row) => [row.id, row.name])),
    projectId: rows.find((row) => row.isParent)?.projectId,
  }
}

/** An environment's services with their instances; null if it no longer exists. */
const readRunning = async ({ database, deployments }: Parts, see: InstanceReader, environmentId: string) => {
  const { names, projectId } = await readNames(database, environmentId)
  if (projectId === undefined) return null
  const found = await deployments.environmentStatuses(database, environmentId)
  const instances = await see(
    environmentId,
    environmentId,
    found.map(({ kind, status: { id } }) => ({ kind, id })),
  )
  const releases = await readReleases(database, instances)
  const items = found.map((service) => {
    const known: Known = { ...service, name: names.get(service.status.id) ?? '' }
    const mine = instances.filter(({ serviceId }) => serviceId === known.status.id)
    const state = serviceStateOf(known.status, mine)
    const pods = mine.map((each) => podOf(each, known.name, releases.get(`${each.serviceId} ${each.revision}`)))
    return { kind: known.kind, item: { id: known.status.id, state, pods, ...ownFields(known) } }
  })
  const byKind = allKinds.map((kind) => [
    kinds[kind].runningPlural,
    items.filter((each) => each.kind === kind).map(({ item }) => item),
  ])
  const states: RunningState[] = items.map(({ item }) => item.state)
  return {
    id: environmentId,
    project_id: projectId,
    state: environmentRunningState(states),
    ...(Object.fromEntries(byKind) as Record<string, object[]>),
    [absent.plural]: [] as object[],
  }
}

type Running = NonNullable<Awaited<ReturnType<typeof readRunning>>>

const ofEnvironment = (parts: Parts, id: string): Shared<Running> => {
  const see = createInstanceReader(parts)
  return {
    subscribe: (changed) => parts.streams.changes.subscribe(id, changed),
    read: () => readRunning(parts, see, id),
  }
}

const ofWholeProject = (parts: Parts, id: string) => {
  const see = createInstanceReader(parts)
  return ofProject(parts, id, (environmentId) => readRunning(parts, see, environmentId))
}

const followRunning = (context: Context, sink: Sink): void => {
  const { parts, node } = context
  const key = `running ${node.id}`
  if (node.kind === 'project') {
    const view = seenBy<Running | null>(context, (all) => ({ environments: all.filter((each) => each !== null) }))
    followShared(parts, key, () => ofWholeProject(parts, node.id), { sink, view })
    return
  }
  const view = { name: 'running', show: (running: Running) => ({ environments: [running] }) }
  followShared(parts, key, () => ofEnvironment(parts, node.id), { sink, view })
}

const statusSocket = operation({
  id: 'handleServiceStatus',
  ...reading,
  path: '/service/status',
  tag: 'Websocket',
  summary: 'Follow the running state of services with their instances, in an environment or a whole project',
  area: 'projects',
  owner: environmentOrProject,
  query: Type.Object(EnvironmentOrProject),
  produces: 'websocket',
  socket: (context, socket) => followRunning(context, socketSink(socket)),
})

const podsOf = (parts: Parts, environmentId: string, serviceId: string): Shared<Instance[]> => {
  const see = createInstanceReader(parts)
  return {
    subscribe: (changed) => parts.streams.changes.subscribe(environmentId, changed),
    async read() {
      const sql = 'select service_id as id, kind from service_state where service_id = $1'
      const services = await parts.database.query<Service>(sql, [serviceId])
      return services.length === 0 ? null : see(environmentId, serviceId, services)
    },
  }
}

const asPods = (instances: Instance[]) => ({
  pods: instances.map(({ name, ports }) => ({ name, ports })),
})

const podsSocket = operation({
  id: 'handleServiceListPods',
  ...reading,
  path: '/service/pods',
  tag: 'Websocket',
  summary: 'Follow the instances of a service and the ports they listen on',
  area: 'projects',
  owner: { ...nodeInPath('service', 'service'), inQuery: true },
  query: ofService,
  produces: 'websocket',
  socket({ parts, node }, socket) {
    const stream = { sink: socketSink(socket), view: { name: 'pods', show: asPods } }
    followShared(parts, `pods ${node.id}`, () => podsOf(parts, node.parentId!, node.id), stream)
  },
})

export const runningStatusOperations: Operation[] = [statusSocket, podsSocket]
