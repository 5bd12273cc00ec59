/** The engine's data about our containers, in our own types. */

import { type Engine, isEngineError } from '../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Keep } from '../../lib/foreign-text/keep.ts'
import type { PlacedInstance as Instance } from '../blue-green/instances.ts'
import type { InstanceState } from '../runtime.ts'
import { isOwnName, labelOf, labels, networkName, parsePlace, taskIdIn } from './describe.ts'
import type { Events, Seen } from './events.ts'
import { isBridgeGone } from './network/bridge.ts'
import { isOurs } from './network/ports.ts'
import type { Readiness } from './probes/readiness.ts'
import { cutOff, type Troubles } from './probes/troubles.ts'

export interface ContainerRow {
  Id: string
  Names: string[]
  State: string
  /** Unix seconds. */
  Created: number
  Labels: Record<string, string>
  NetworkSettings?: NetworkSettings
}

interface NetworkSettings {
  /** By name. */
  Networks?: Record<string, { IPAddress: string; NetworkID?: string }> | null
}

export interface ContainerDetail {
  Id: string
  Config: { User: string; Labels: Record<string, string>; ExposedPorts?: Record<string, object> }
  HostConfig: { ReadonlyRootfs: boolean }
  NetworkSettings?: NetworkSettings
  RestartCount: number
  State: {
    Status: string
    Pid: number
    Running: boolean
    Restarting: boolean
    OOMKilled: boolean
    ExitCode: number
    StartedAt: string
    FinishedAt: string
  }
}

export interface Containers {
  /** One call. `labelled` filters by further labels; tasks are left out unless requested. */
  list(labelled?: Record<string, string>, options?: { tasks?: boolean; signal?: AbortSignal }): Promise<ContainerRow[]>
  /** The instances of these rows; only those that do not run cost a call each. */
  describe(rows: ContainerRow[]): Promise<Instance[]>
  inspect(id: string, signal?: AbortSignal): Promise<ContainerDetail>
  /** The instance as far as the row itself describes it, with its address. */
  instanceOf(row: NamedRow): Instance
}

/** An image can have any number of labels of its own, and the engine lists them all. */
const ownLabels: Keep = Object.fromEntries(Object.values(labels).map((name) => [name, true]))
const keep: Keep = [{ Id: true, Names: [true], State: true, Created: true, Labels: ownLabels, NetworkSettings: 'any' }]

export type NamedRow = Pick<ContainerRow, 'Id' | 'Names' | 'State' | 'Labels'>

const states: Record<string, InstanceState> = {
  created: 'created',
  running: 'running',
  paused: 'running',
  restarting: 'restarting',
  exited: 'exited',
  dead: 'exited',
  removing: 'missing',
}

/**
 * For instances without an address of their own, or one that cannot be reached: published ports. From an engine on
 * another machine only ports that we would choose are accepted: others could route requests to another service.
 */
const endpointsOf = (text: string | undefined, elsewhere: string | undefined): Instance['endpoints'] => {
  const place = parsePlace(text)
  if (!('address' in place)) {
    const published = Object.entries(place.hostPorts).filter(([, port]) => elsewhere === undefined || isOurs(port))
    return Object.fromEntries(published.map(([inner, port]) => [inner, { host: elsewhere ?? '127.0.0.1', port }]))
  }
  if (elsewhere !== undefined) return {}
  return Object.fromEntries(place.ports.map((port) => [port, { host: place.address, port }]))
}

const portsOf = (text: string | undefined): readonly number[] => {
  const place = parsePlace(text)
  return 'address' in place ? place.ports : Object.keys(place.hostPorts).map(Number)
}

/** '' if it is unknown, or if the engine publishes its ports. */
const networkIdOf = ({ Labels, NetworkSettings }: ContainerRow): string =>
  'address' in parsePlace(Labels[labels.ports])
    ? (NetworkSettings?.Networks?.[networkName(Labels[labels.environment] ?? '')]?.NetworkID ?? '')
    : ''

const nameOf = (row: Pick<ContainerRow, 'Names'>): string => (row.Names[0] ?? '').replace(/^\//, '')

const taskOf = (row: Pick<ContainerRow, 'Names' | 'Labels'>): string | undefined => taskIdIn(nameOf(row), row.Labels)

const indexOf = (text: string | undefined): number => (/^\d{1,9}$/.test(text ?? '') ? Number(text) : 0)

/** `elsewhere`: the address of the engine's machine at which it publishes ports. */
export const toInstance = (row: NamedRow, elsewhere?: string): Instance => {
  const taskId = taskOf(row)
  return {
    id: row.Id,
    name: nameOf(row),
    organizationId: row.Labels[labels.organization] ?? '',
    environmentId: row.Labels[labels.environment] ?? '',
    serviceId: row.Labels[labels.service] ?? '',
    revision: row.Labels[labels.revision] ?? '',
    index: indexOf(row.Labels[labels.index]),
    ports: taskId === undefined ? portsOf(labelOf(row.Labels, labels.ports)) : [],
    state: states[row.State] ?? 'missing',
    exitCode: null,
    oomKilled: false,
    restarts: 0,
    startedAt: null,
    // Tasks have none; those made before every label was ours may have other labels.
    endpoints: taskId === undefined ? endpointsOf(labelOf(row.Labels, labels.ports), elsewhere) : {},
    ...(taskId === undefined ? {} : { taskId }),
  }
}

const withDetail = (instance: Instance, { State, RestartCount }: ContainerDetail): Instance => ({
  ...instance,
  state: states[State.Status] ?? instance.state,
  exitCode: ['running', 'created'].includes(State.Status) ? null : State.ExitCode,
  oomKilled: State.OOMKilled,
  restarts: RestartCount,
  startedAt: State.StartedAt.startsWith('0001') ? null : State.StartedAt,
  ...(['exited', 'restarting', 'dead'].includes(State.Status)
    ? { lastExit: { exitCode: State.ExitCode, oomKilled: State.OOMKilled, at: State.FinishedAt } }
    : {}),
})

/** With the endings seen in events: more than the engine stores about a container that runs again. */
const withSeen = (instance: Instance, seen: Seen | undefined): Instance => {
  if (seen === undefined || seen.lastExit === null) return instance
  return { ...instance, restarts: Math.max(instance.restarts, seen.exits), lastExit: seen.lastExit }
}

/** More than an engine can run, here and elsewhere. No decision is based on such a list, or on a part of it. */
const mostListed = { here: 20_000, elsewhere: 5000 }
const describedAtOnce = 200

const tooMany = (most: number): DeploymentError =>
  new DeploymentError('engine_unavailable', `The engine lists more than ${most} containers of this server.`, {
    next: 'wait',
  })

export interface ContainersParts {
  engine: Engine
  ownerId: string
  events: Events
  readiness: Pick<Readiness, 'isUnready'>
  troubles: Pick<Troubles, 'of'>
  elsewhere?: string | undefined
}

export const createContainers = ({
  engine,
  ownerId,
  events,
  readiness,
  troubles,
  elsewhere,
}: ContainersParts): Containers => {
  const most = elsewhere === undefined ? mostListed.here : mostListed.elsewhere
  const instanceOf = (row: NamedRow): Instance => {
    const trouble = troubles.of(row.Id)
    return {
      ...toInstance(row, elsewhere),
      ...(readiness.isUnready(row.Id) ? { unready: true } : {}),
      ...(trouble === undefined ? {} : { trouble }),
    }
  }

  /** The list may be a moment old: a lost network is confirmed by one more call. */
  const confirmCutOff = async (row: ContainerRow, instance: Instance, isGone: boolean): Promise<Instance> => {
    const { State, NetworkSettings } = await inspect(row.Id)
    const trouble = State.Running ? cutOff({ ...row, ...(NetworkSettings && { NetworkSettings }) }, isGone) : null
    return trouble === null ? instance : { ...instance, trouble, unready: true }
  }

  const inspect: Containers['inspect'] = (id, signal) =>
    engine.call<ContainerDetail>('GET', `/containers/${id}/json`, { signal })

  const describeOne = async (row: ContainerRow): Promise<Instance> => {
    const instance = instanceOf(row)
    const seen = events.seen(row.Id)
    // The engine reports an end before it cleans up, and lists the container as running until then.
    if (instance.state === 'running' && seen?.down !== true && (seen?.exits ?? 0) === 0) {
      const created = new Date(row.Created * 1000).toISOString()
      const running = { ...instance, startedAt: seen?.startedAt ?? created }
      const isGone = elsewhere === undefined && (await isBridgeGone(networkIdOf(row)))
      if (cutOff(row, isGone) === null) return running
      return confirmCutOff(row, running, isGone).catch(() => running)
    }
    try {
      const detail = await inspect(row.Id)
      const found = withSeen(withDetail(instance, detail), seen)
      const trouble = detail.State.Running ? cutOff({ ...row, ...detail, Labels: row.Labels }) : null
      return trouble === null ? found : { ...found, trouble, unready: true }
    } catch (error) {
      // One that the engine cannot describe must not hide all others: the data of the list is used.
      return isEngineError(error, 404) ? { ...instance, state: 'missing' } : instance
    }
  }

  return {
    list: async (labelled = {}, { tasks = false, signal } = {}) => {
      const wanted = Object.entries({ ...labelled, [labels.owner]: ownerId }).map(([key, value]) => `${key}=${value}`)
      const query = { all: true, filters: JSON.stringify({ label: wanted }) }
      const listed = await engine.call<ContainerRow[]>('GET', '/containers/json', { query, signal, keep })
      if (listed.length > most) throw tooMany(most)
      const rows = listed.filter((row) => isOwnName(nameOf(row)))
      return tasks ? rows : rows.filter((row) => taskOf(row) === undefined)
    },
    async describe(rows) {
      let found: Instance[] = []
      // In order, and not all at once: each stopped one costs a call.
      for (let at = 0; at < rows.length; at += describedAtOnce)
        found = found.concat(await Promise.all(rows.slice(at, at + describedAtOnce).map(describeOne)))
      return found
    },
    inspect,
    instanceOf,
  }
}
