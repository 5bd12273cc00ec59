/** A server without Kubernetes clusters has not loaded the code for them; the first cluster loads it. */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { startMemoryCluster } from './support/kubernetes/api-server.ts'
import { type Json, main, prepareSlipway } from './support/slipway/slipway.ts'
import { until } from './support/until.ts'

const hook = new URL('./support/slipway/loaded.ts', import.meta.url).pathname

/** Our client, the runtime that uses it, and the package that reads kubeconfigs. */
const clientParts = [
  ...['/src/lib/kubernetes/kubernetes-api.ts', '/src/lib/kubernetes/watch.ts'],
  ...['/src/runtimes/kubernetes/open.ts', '/src/runtimes/kubernetes/runtime.ts', '/node_modules/yaml/'],
]

test('a server loads the Kubernetes client for its first cluster, and not before', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-loaded-'))
  const file = join(folder, 'modules')
  const cluster = await startMemoryCluster()
  const slipway = await prepareSlipway({
    ...{ fake: true, server: ['--import', hook, main], env: { SLIPWAY_TEST_LOADED: file } },
  })
  after(async () => {
    await slipway.remove()
    await cluster.close()
    rmSync(folder, { recursive: true })
  })
  await slipway.start()
  const loaded = (): string[] => {
    const modules = readFileSync(file, 'utf8').split('\n')
    return clientParts.filter((part) => modules.some((url) => url.includes(part)))
  }
  const must = async (method: string, path: string, body?: unknown): Promise<Json> => {
    const answer = await slipway.api(method, path, body)
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const base = `/organization/${(await must('GET', '/organization')).id}`
  await must('GET', `${base}/cluster`)
  assert.match(readFileSync(file, 'utf8'), /\/src\/clusters\/connected\.ts/)
  assert.deepEqual(loaded(), [])

  const credentials = { name: 'kubernetes', kubeconfig: cluster.kubeconfig() }
  const { id } = await must('POST', `${base}/onPremise/credentials`, credentials)
  await must('POST', `${base}/cluster`, {
    ...{ name: 'kubernetes', cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'here' },
    cloud_provider_credentials: { credentials: { id } },
  })
  await until(() => loaded().length === clientParts.length, { timeoutMs: 30_000, what: 'all of the client' })
})
