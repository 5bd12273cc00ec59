/** Where instances are reached: which address or which ports each has, from before its start until its removal. */
import type { WorkloadPort } from '../runtime.ts'
import type { Addresses } from './addresses.ts'
import { type ContainerRow, type Containers, toInstance } from './containers.ts'
import { labels, type Place, parsePlace } from './describe.ts'
import type { Networks } from './network.ts'
import type { Ports } from './ports.ts'

export interface PlacesParts {
  containers: Pick<Containers, 'list'>
  networks: Pick<Networks, 'ensure' | 'forget'>
  addresses: Addresses
  ports: Ports
}

export interface Places {
  /** A place for the container of this name that no other has, kept until released. */
  take(environmentId: string, name: string, ports: readonly WorkloadPort[]): Promise<Place>
  /** The engine refused it: what is known of the network may be of one that was there before. */
  refused(environmentId: string, name: string): void
  release(name: string): void
  /** What all instances have: a list of all of them tells what other control planes made and removed. */
  learn(rows: readonly ContainerRow[]): void
}

export const createPlaces = ({ containers, networks, addresses, ports }: PlacesParts): Places => {
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

  /** Before the first choice: places of containers that are down at the moment. */
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
    take: async (environmentId, name, wanted) => {
      const [subnet] = await Promise.all([networks.ensure(environmentId), know()])
      const address = subnet && addresses.take(subnet, name)
      if (address === null) return { hostPorts: await ports.take(name, wanted) }
      return { address, ports: [...new Set(wanted.map(({ internalPort }) => internalPort))] }
    },
    refused: (environmentId, name) => {
      networks.forget(environmentId)
      release(name)
    },
    release,
    learn,
  }
}
