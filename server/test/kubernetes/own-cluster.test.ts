/** The cluster that the tests start leaves nothing behind, whatever ends its runner. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { until } from '../support/until.ts'
import { removeLeftovers } from './cluster/leftovers.ts'
import { processesOf } from './cluster/processes.ts'
import { ownNode } from './cluster/scene.ts'

const programs = process.env.SLIPWAY_TEST_PROGRAMS
const patience = { timeoutMs: 120_000 }

const skip = ownNode === undefined || programs === undefined ? 'this cluster was not started by the tests' : false

test('a cluster whose runner was killed ends, and the next start removes its folder', { skip }, async (t) => {
  const nodes = mkdtempSync(join(dirname(dirname(ownNode!)), 'killed-'))
  t.after(() => rmSync(nodes, { recursive: true, force: true }))
  const runner = spawn(process.execPath, [join(import.meta.dirname, 'with-cluster.ts'), programs!, nodes])
  let said = ''
  runner.stderr.setEncoding('utf8').on('data', (text) => (said += text))
  await until(() => said.includes('export KUBECONFIG='), { ...patience, what: 'another cluster' })
  const [name] = readdirSync(nodes)
  const link = name!.replace('slipway-kubernetes', 'slk')
  assert.ok(networkInterfaces()[link] !== undefined)
  const exit = once(runner, 'exit')
  runner.kill('SIGKILL')
  await exit
  await until(() => processesOf(name!).length === 0, { ...patience, what: 'all of its processes to end' })
  await until(() => networkInterfaces()[link] === undefined, { ...patience, what: 'its network to go' })
  assert.ok(!readFileSync('/proc/mounts', 'utf8').includes(name!))
  const gone = (): boolean => {
    removeLeftovers(nodes)
    return readdirSync(nodes).length === 0 && !existsSync(`/sys/fs/cgroup/memory/${name}`)
  }
  await until(gone, { ...patience, what: 'its folder and its cgroups to be removed' })
})
