/** The runtime of a cluster that this server cannot use: nothing runs there, and nothing can be started there. */
import { DeploymentError } from '../lib/errors.ts'
import type { Runtime } from '../runtimes/runtime.ts'

const refuse = async (): Promise<never> => {
  throw new DeploymentError('cluster_not_connected', 'This server cannot run anything on the cluster of this service.')
}

async function* nothing(): AsyncGenerator<never> {}
const done = async (): Promise<void> => {}

export const noRuntime: Runtime = {
  name: 'none',
  can: new Set(),
  ping: refuse,
  capacity: refuse,
  pull: refuse,
  lookUp: async () => null,
  imageOwners: async () => [],
  dropImages: done,
  sweepImages: done,
  apply: refuse,
  ready: refuse,
  retire: done,
  removeService: done,
  removeEnvironment: done,
  observe: async () => [],
  watch: nothing,
  logs: nothing,
  run: refuse,
  stopTask: done,
  readTask: async () => null,
  endTask: done,
  owned: async () => ({ instances: [], environments: [], volumes: [] }),
  close: done,
}
