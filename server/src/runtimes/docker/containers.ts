/** What the engine says about our containers, in our words. */

import { type Engine, isEngineError } from '../../lib/docker-engine.ts'
import type { Instance, InstanceState } from '../runtime.ts'
import { labels, parsePorts } from './describe.ts'
import type { Events } from './events.ts'

/** A row of the engine's list. */
export interface ContainerRow {
  Id: string
  Names: string[]
  State: string
  /** Unix seconds. */
  Created: number
  Labels: Record<string, string>
}

export interface ContainerDetail {
  Id: string
  Config: { User: string; Labels: Record<string, string> }
  RestartCount: number
  State: {
    Status: string
    Running: boolean
    Restarting: boolean
    OOMKilled: boolean
    ExitCode: number
    StartedAt: string
  }
}

export interface Containers {
  /** One call. `labelled` narrows by further labels; tasks are left out unless asked for. */
  list(labelled?: Record<string, string>, options?: { tasks?: boolean; signal?: AbortSignal }): Promise<ContainerRow[]>
  /** The instances of these rows; only those that do not run cost a call each. */
  describe(rows: ContainerRow[]): Promise<Instance[]>
  inspect(id: string, signal?: AbortSignal): Promise<ContainerDetail>
}

const states: Record<string, InstanceState> = {
  created: 'created',
  running: 'running',
  paused: 'running',
  restarting: 'restarting',
  exited: 'exited',
  dead: 'exited',
  removing: 'missing',
}

export const endpointsOf = (ports: string | undefined): Instance['endpoints'] =>
  Object.fromEntries(Object.entries(parsePorts(ports)).map(([inner, port]) => [inner, { host: '127.0.0.1', port }]))

export const toInstance = (row: Pick<ContainerRow, 'Id' | 'Names' | 'State' | 'Labels'>): Instance => ({
  id: row.Id,
  name: (row.Names[0] ?? '').replace(/^\//, ''),
  organizationId: row.Labels[labels.organization] ?? '',
  environmentId: row.Labels[labels.environment] ?? '',
  serviceId: row.Labels[labels.service] ?? '',
  revision: row.Labels[labels.revision] ?? '',
  index: Number(row.Labels[labels.index] ?? 0),
  state: states[row.State] ?? 'missing',
  exitCode: null,
  oomKilled: false,
  restarts: 0,
  startedAt: null,
  endpoints: endpointsOf(row.Labels[labels.ports]),
  ...(row.Labels[labels.task] === undefined ? {} : { taskId: row.Labels[labels.task] }),
})

const withDetail = (instance: Instance, { State, RestartCount }: ContainerDetail): Instance => ({
  ...instance,
  state: states[State.Status] ?? instance.state,
  exitCode: ['running', 'created'].includes(State.Status) ? null : State.ExitCode,
  oomKilled: State.OOMKilled,
  restarts: RestartCount,
  startedAt: State.StartedAt.startsWith('0001') ? null : State.StartedAt,
})

export const createContainers = (engine: Engine, ownerId: string, events: Events): Containers => {
  const inspect: Containers['inspect'] = (id, signal) =>
    engine.call<ContainerDetail>('GET', `/containers/${id}/json`, { signal })

  const describeOne = async (row: ContainerRow): Promise<Instance> => {
    const instance = toInstance(row)
    const seen = events.seen(row.Id)
    // The engine tells of an end before it cleans up, and lists the container as running until it has.
    if (instance.state === 'running' && seen?.down !== true) {
      const created = new Date(row.Created * 1000).toISOString()
      return { ...instance, startedAt: seen?.startedAt ?? created, restarts: seen?.exits ?? 0 }
    }
    try {
      return withDetail(instance, await inspect(row.Id))
    } catch (error) {
      if (!isEngineError(error, 404)) throw error
      return { ...instance, state: 'missing' }
    }
  }

  return {
    list: async (labelled = {}, { tasks = false, signal } = {}) => {
      const wanted = Object.entries({ ...labelled, [labels.owner]: ownerId }).map(([key, value]) => `${key}=${value}`)
      const query = { all: true, filters: JSON.stringify({ label: wanted }) }
      const rows = await engine.call<ContainerRow[]>('GET', '/containers/json', { query, signal })
      return tasks ? rows : rows.filter((row) => row.Labels[labels.task] === undefined)
    },
    describe: (rows) => Promise.all(rows.map(describeOne)),
    inspect,
  }
}
