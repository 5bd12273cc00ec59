/**
 * Usage of the instances of a service, on the websocket of the public API: one list per frame, empty if nothing runs.
 * Streams of the same service share the readings; without streams the engine is not asked.
 */
import Type from 'typebox'
import { nodeInPath, type Operation, operation, reading } from '../api/operations/operation.ts'
import { Discarded, Maybe, Text, Uuid } from '../api/operations/schema.ts'
import type { Parts } from '../api/parts.ts'
import { readRef } from '../clusters/refs.ts'
import type { Instance, Usage } from '../runtimes/runtime.ts'
import { followShared, type Shared } from '../streams/shared-read.ts'
import { socketSink } from '../streams/sink.ts'

const everyMs = 5000
const engineMs = 8000

interface Reading {
  instance: Instance
  usage: Usage
}

/** Percent of a limit: above these, the status is a warning, then an alert. */
const warningPercent = 80
const alertPercent = 95

const metricOf = (current: number, limit: number | null, unit: 'mCPU' | 'MiB') => {
  const percent = limit === null || limit === 0 ? 0 : Math.round((100 * current) / limit)
  const status = percent >= alertPercent ? 'ALERT' : percent >= warningPercent ? 'WARNING' : 'OK'
  return { current, limit: limit ?? 0, current_percent: percent, status, unit }
}

const asFrame = (readings: Reading[]) =>
  readings.map(({ instance, usage }) => ({
    pod_name: instance.name,
    cpu: metricOf(usage.cpuMillicores, usage.cpuLimitMillicores, 'mCPU'),
    memory: metricOf(usage.memoryMb, usage.memoryLimitMb, 'MiB'),
    storages: [],
  }))

const readAll = async ({ clusters, database }: Parts, serviceId: string): Promise<Reading[] | null> => {
  const ref = await readRef(database, serviceId)
  if (ref === null) return null
  const { runtime } = await clusters.of(ref.clusterId)
  const instances = await runtime.observe([ref])
  const usage = await runtime.usage(instances, AbortSignal.timeout(engineMs))
  return instances.flatMap((instance) => {
    const found = usage.get(instance.id)
    return found === undefined ? [] : [{ instance, usage: found }]
  })
}

const ofService = (parts: Parts, environmentId: string, serviceId: string): Shared<Reading[]> => ({
  everyMs,
  subscribe: (changed) => parts.streams.changes.subscribe(environmentId, changed),
  async read() {
    try {
      return await readAll(parts, serviceId)
    } catch (error) {
      // An engine that does not answer has no usage.
      parts.log.debug({ err: error, serviceId }, 'the engine did not say what a service uses')
      return []
    }
  },
})

/** Why its cluster can never report usage; null if it only does not answer now. */
const problemOf = async ({ clusters, database }: Parts, serviceId: string): Promise<string | null> => {
  const ref = await readRef(database, serviceId)
  if (ref === null) return null
  const { runtime } = await clusters.of(ref.clusterId)
  return (await runtime.usageProblem?.(AbortSignal.timeout(engineMs)).catch(() => null)) ?? null
}

export const serviceMetricsSocket: Operation = operation({
  id: 'handleServiceMetrics',
  ...reading,
  path: '/service/metrics',
  tag: 'Websocket',
  summary:
    'Follow what the running instances of a service use: an empty list while none runs, or while the engine does not answer. Ends with a reason that begins with `NotFound` on a cluster without metrics',
  area: 'projects',
  owner: { ...nodeInPath('service', 'service'), inQuery: true },
  query: Type.Object({
    service: Uuid(),
    organization: Maybe(Discarded(Text())),
    cluster: Maybe(Discarded(Text())),
    project: Maybe(Text()),
    environment: Maybe(Text()),
    service_type: Maybe(Text()),
  }),
  produces: 'websocket',
  socket({ parts, node }, socket) {
    const sink = socketSink(socket)
    const stream = { sink, view: { name: 'metrics', show: asFrame } }
    void problemOf(parts, node.id)
      .catch(() => null)
      .then((problem) => {
        if (problem !== null) sink.end(`NotFound: ${problem}`)
        else followShared(parts, `metrics ${node.id}`, () => ofService(parts, node.parentId!, node.id), stream)
      })
  },
})
