/** The runtime of a cluster that this server cannot use: nothing runs there, and nothing can be started there. */
import type { ImageBuilder } from '../builds/builder.ts'
import { DeploymentError } from '../lib/errors.ts'
import type { Images } from '../runtimes/images.ts'
import type { Ingress } from '../runtimes/ingress.ts'
import type { Runtime } from '../runtimes/runtime.ts'

const refuse = async (): Promise<never> => {
  throw new DeploymentError('cluster_not_connected', 'This server cannot run anything on the cluster of this service.')
}

async function* nothing(): AsyncGenerator<never> {}
const done = async (): Promise<void> => {}

export const noBuilder: Pick<ImageBuilder, 'build' | 'built'> = { build: refuse, built: async () => null }

const ingress: Ingress = {
  sharesPorts: true,
  publish: async () => [],
  unpublish: done,
  keep: () => {},
  look: async () => ({ services: [], isAs: () => true }),
  url: (host) => `http://${host}`,
  address: (port) => `localhost:${port}`,
}

const images: Images = {
  resolve: async () => null,
  isHeld: async () => false,
  hold: refuse,
  owners: async () => [],
  drop: done,
  sweep: done,
}

export const noRuntime: Runtime = {
  abilities: new Set(),
  scalesItself: false,
  rollsItself: false,
  growsVolumes: false,
  ingress,
  images,
  marks: { list: async () => [], put: refuse, remove: done, clear: done },
  ping: refuse,
  capacity: refuse,
  volumeSizes: async () => new Map(),
  stopsFirst: () => false,
  // A service that ends has no instance there, and one that should run cannot.
  converge: async (_service, { state }) => (state === 'running' ? refuse() : { instances: [], refused: [] }),
  resize: refuse,
  removeEnvironment: done,
  observe: async () => [],
  usage: async () => new Map(),
  watch: nothing,
  keepAlive: done,
  logs: nothing,
  run: refuse,
  pipe: refuse,
  stopTask: async () => null,
  endTask: done,
  owned: async () => ({ instances: [], environments: [], volumes: [] }),
  records: async () => new Map(),
  close: done,
}
