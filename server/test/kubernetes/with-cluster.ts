/**
 * with-cluster.ts <folder of the programs> <folder for clusters> [command]: runs the command with a cluster of its own,
 * which KUBECONFIG names; without a command, keeps the cluster until it is interrupted.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { startOwnCluster } from './cluster/cluster.ts'

const [, , programs, nodes, command, ...words] = process.argv
if (programs === undefined || nodes === undefined) throw new Error('which folders?')

const interrupted = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')])
const started = performance.now()
const cluster = await startOwnCluster(programs, nodes)
const seconds = Math.round((performance.now() - started) / 100) / 10
const env = { KUBECONFIG: join(cluster.folder, 'kubeconfig'), SLIPWAY_TEST_NODE: cluster.folder }
const settings = Object.entries(env).map(([name, value]) => `${name}=${value}`)
process.stderr.write(`A Kubernetes cluster runs (started in ${seconds} s): export ${settings.join(' ')}\n`)

const run = async (): Promise<number> => {
  if (command === undefined) return interrupted.then(() => 0)
  const child = spawn(command, words, { stdio: 'inherit', env: { ...process.env, ...env } })
  void interrupted.then(() => child.kill('SIGTERM'))
  const [code] = (await once(child, 'exit')) as [number | null]
  return code ?? 1
}

try {
  process.exitCode = await Promise.race([run(), cluster.ended])
} finally {
  await cluster.close()
}
process.exit()
