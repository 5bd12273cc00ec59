/** A module that makes clusters at AWS, for a server whose runs are simulated: its plans are read, and it tells no login. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const source = fileURLToPath(new URL('../examples/cluster-modules/aws-eks', import.meta.url))

/** Before its first start. */
export const writeClusterModules = (dataDir: string): void => {
  const modules = join(dataDir, 'cluster-modules.json')
  const module = {
    ...{ engine: 'tofu', image: 'fake/task:1', source, versions: ['1.33', '1.34'] },
    inputs: { name: '/name', region: '/region', stopped: '/stopped', nodes: '/min_running_nodes' },
    outputs: { kubeconfig: 'kubeconfig' },
  }
  writeFileSync(modules, JSON.stringify({ AWS: module }))
  writeFileSync(join(dataDir, 'slipway.env'), `SLIPWAY_CLUSTER_MODULES=${modules}\n`, { mode: 0o600 })
}
