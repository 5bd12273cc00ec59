/** The address or ports at which each instance is reached, from before its start until its removal. */
import type { Workload } from '../../runtime.ts'
import { type ContainerRow, type Containers, toInstance } from '../containers.ts'
import { askedPorts, type InstancePlace, labels, parsePlace } from '../describe.ts'
import type { Addresses } from './addresses.ts'
import type { Networks } from './network.ts'
import type { Ports } from './ports.ts'

interface PlacesParts {
  containers: Pick<Containers, 'list'>
  networks: Pick<Networks, 'ensure' | 'forget'>
  addresses: Addresses
  ports: Ports
  /** The address of the engine's machine at which it publishes ports; absent for this machine's engine. */
  elsewhere?: string | undefined
}

export interface Places {
  /** A place for the container of this name that no other has, kept until released. */
  take(
    workload: Pick<Workload, 'environmentId' | 'ports' | 'readiness' | 'liveness'>,
    name: string,
  ): Promise<InstancePlace>
  /** The engine refused it: the cached data may be of a former network. */
  refused(environmentId: string, name: string): void
  release(name: string): void
  /** The places of all instances: a complete list shows changes by other control planes. */
  learn(rows: readonly ContainerRow[]): void
}

export const createPlaces = ({ containers, networks, addresses, ports, elsewhere }: PlacesParts): Places => {
  let known: Promise<void> | undefined

  const learn = (rows: readonly ContainerRow[]): void => {
    const held = new Map<string, string>()
    for (const row of rows) {
      const { name, taskId } = toInstance(row)
      if (taskId !== undefined) continue
      const place = parsePlace(row.Labels[labels.ports])
      if ('address' in place) held.set(name, place.address)
      else ports.keep(name, place.hostPorts)
    }
    addresses.learn(held)
  }

  /** Before the first choice: reads places of containers that are down at the moment. */
  const know = (): Promise<void> => {
    known ??= containers.list().then(learn)
    known.catch(() => {
      known = undefined
    })
    return known
  }

  const release = (name: string): void => {
    addresses.release(name)
    ports.release(name)
  }

  return {
    take: async (workload, name) => {
      const [subnet] = await Promise.all([networks.ensure(workload.environmentId), know()])
      // The whole network can reach published ports: only ports that are needed from outside are published.
      if (elsewhere !== undefined) return { hostIp: elsewhere, hostPorts: await ports.take(name, askedPorts(workload)) }
      const address = subnet && addresses.take(subnet, name)
      if (address === null) return { hostPorts: await ports.take(name, workload.ports) }
      return { address, ports: [...new Set(workload.ports.map(({ internalPort }) => internalPort))] }
    },
    refused: (environmentId, name) => {
      networks.forget(environmentId)
      release(name)
    },
    release,
    learn,
  }
}
