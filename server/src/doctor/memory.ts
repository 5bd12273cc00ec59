/** The memory that is promised to running services, compared with that of the machines they run on. */
import type { Cluster } from '../clusters/clusters.ts'
import { isRefused, type MemoryRoom, readPromised } from '../clusters/memory-room.ts'
import { failed, topic, warning } from '../lib/finding.ts'
import type { Queryable } from '../store/database.ts'
import { readNames } from './engine.ts'
import { memoryIn, readProc } from './proc.ts'

interface MachineFacts extends MemoryRoom {
  name: string
}

export interface MemoryFacts {
  machines: readonly MachineFacts[]
  /** The memory of this server's own machine; null if the system does not say. */
  own: { totalMb: number; availableMb: number; swapMb: number } | null
}

export const readOwnMemory = async (): Promise<MemoryFacts['own']> => memoryIn(await readProc('meminfo'))

/** Kubernetes places its pods by itself, so only single machines count. */
export const readMachines = async (
  database: Queryable,
  clusters: readonly Pick<Cluster, 'key' | 'nodes' | 'capacity'>[],
  overcommitPercent: number,
  ownKey: string,
): Promise<MachineFacts[]> => {
  const machines: MachineFacts[] = []
  const single = clusters.filter(({ nodes }) => nodes === null)
  const keys = single.map(({ key }) => key)
  const names = await readNames(database, keys, ownKey)
  for (const cluster of single) {
    const capacity = await cluster.capacity()
    if (capacity === null) continue
    const promisedMb = await readPromised(database, cluster.key)
    const name = names.get(cluster.key) ?? cluster.key
    machines.push({ name, promisedMb, memoryMb: capacity.memoryMb, overcommitPercent })
  }
  return machines
}

const memory = topic('memory', 'Memory')
const shortShare = 0.05

const advice = 'Lower `memory` or `max_running_instances` of services, stop some, or add memory to the machine.'

const promiseProblem = (machine: MachineFacts) => {
  const { name, promisedMb, memoryMb } = machine
  const sum = `${promisedMb} MB are promised to the running services on ${name}, which has ${memoryMb} MB`
  if (isRefused(machine)) return failed(`${sum}: deployments that start more are refused.`, advice)
  return warning(`${sum}: if they need it all at once, the machine ends some of them.`, advice)
}

export const judgeMemory = ({ machines, own }: MemoryFacts) => {
  if (machines.length === 0 && own === null) return memory.skipped('The memory of no machine is known.')
  const crowded = machines.filter((each) => each.promisedMb > each.memoryMb || isRefused(each)).map(promiseProblem)
  const short =
    own !== null && own.availableMb < own.totalMb * shortShare
      ? [
          warning(
            `This machine has ${own.availableMb} MB of ${own.totalMb} MB of memory left${own.swapMb === 0 ? ' and no swap' : ''}.`,
            'See what uses it (`docker stats`, `ps aux --sort=-rss`), and stop or limit it.',
          ),
        ]
      : []
  const promised = machines.map(
    ({ name, promisedMb, memoryMb }) => `${promisedMb} of ${memoryMb} MB are promised to services on ${name}.`,
  )
  const free = own === null ? [] : [`${own.availableMb} MB are available.`]
  return memory.judge([...crowded, ...short], [...promised, ...free].join(' '))
}
