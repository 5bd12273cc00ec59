/**
 * kill -9 of the server at random moments of rollouts on a real cluster: every deployment ends final, and the cluster
 * has what was wanted. `SLIPWAY_TEST_KILLS` says how many.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import type { Json } from '../support/api.ts'
import { howMany } from '../support/nightly.ts'
import { prepareSlipway } from '../support/slipway/slipway.ts'
import { isSettled } from '../support/slipway/story.ts'
import { until } from '../support/until.ts'
import { registerCluster } from './cluster/place.ts'
import { outsideAddress, startNodeRegistry } from './cluster/registry.ts'
import { host, openCluster, ownNode, port, revokeAccess } from './cluster/scene.ts'

const kills = howMany(3, 20, 'SLIPWAY_TEST_KILLS')
const patience = { timeoutMs: 120_000 }
const skip = ownNode === undefined && 'it needs the cluster of the tests, whose node pulls from a registry here'

test(`after each of ${kills} kill -9 the deployment reaches a final state, and the cluster has the desired objects`, {
  skip,
  timeout: 120_000 + kills * 60_000,
}, async (context) => {
  const seed = Number(process.env.SLIPWAY_TEST_SEED ?? Date.now() % 1_000_000)
  context.diagnostic(`seed ${seed}`)
  const admin = await openCluster()
  const registry = await startNodeRegistry()
  const slipway = await prepareSlipway({
    fake: true,
    env: { SLIPWAY_OUTBOUND_ALLOW: `loopback,${host}:${port},${outsideAddress()}` },
  })
  const namespaces: string[] = []
  after(async () => {
    for (const name of namespaces) await admin.remove({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } })
    await revokeAccess(admin)
    admin.close()
    await slipway.remove()
    await registry.close()
  })
  await slipway.start()
  const must = async (method: string, path: string, body?: unknown): Promise<Json> => {
    const answer = await slipway.api(method, path, body)
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const { id: organizationId } = await must('GET', '/organization')
  const { clusterId, registryId: registry_id } = await registerCluster(must, organizationId, admin, registry)
  const project = await must('POST', `/organization/${organizationId}/project`, { name: 'kills' })
  const place = { name: 'production', cluster: clusterId }
  const environment = await must('POST', `/project/${project.id}/environment`, place)
  const namespace = `slipway-${environment.id}`
  namespaces.push(namespace)
  const script = (page: string) => `mkdir -p /tmp/w; echo ${page} > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w`
  const container = await must('POST', `/environment/${environment.id}/container`, {
    ...{ name: 'web', registry_id, image_name: 'shop/app', tag: '1', healthchecks: {}, cpu: 50, memory: 32 },
    ...{ entrypoint: 'sh -c', arguments: [script('v0')], min_running_instances: 2, max_running_instances: 2 },
    ports: [{ internal_port: 8080, protocol: 'HTTP', publicly_accessible: true }],
  })
  const path = `/container/${container.id}`
  const stateOf = async (): Promise<string> =>
    (await slipway.api('GET', `${path}/status`, undefined, { 'x-state-vocabulary': 'deployment' })).body.state
  const settle = (): Promise<string> =>
    until(
      async () => {
        const state = await stateOf()
        return isSettled(state) ? state : null
      },
      { ...patience, what: 'the deployment to settle' },
    )
  /** The first argument of each program that keeps running. */
  const told = async (): Promise<string[]> => {
    const { items } = await admin.get(`/api/v1/namespaces/${namespace}/pods`)
    return items.flatMap(({ metadata, spec }: Json) =>
      metadata.deletionTimestamp === undefined ? [spec.containers[0].args[0]] : ['(ending)'],
    )
  }
  const roll = async (page: string): Promise<void> => {
    await must('PUT', path, { arguments: [script(page)] })
    await must('POST', `${path}/deploy`, { image_tag: '1' })
  }
  await roll('calm')
  assert.equal(await settle(), 'DEPLOYED')
  const began = performance.now()
  await roll('calmer')
  assert.equal(await settle(), 'DEPLOYED')
  const longestMs = performance.now() - began
  let [random, hits] = [seed, 0]
  for (let round = 1; round <= kills; round += 1) {
    await roll(`v${round}`)
    random = (random * 1664525 + 1013904223) % 2 ** 32
    const at = performance.now() + (random / 2 ** 32) * longestMs
    await until(() => performance.now() >= at, { timeoutMs: 60_000, what: 'the moment of the kill' })
    if (!isSettled(await stateOf())) hits += 1
    await slipway.kill('SIGKILL')
    await slipway.start()
    assert.equal(await settle(), 'DEPLOYED', `round ${round}`)
    const wanted = [script(`v${round}`), script(`v${round}`)]
    const isSo = async () => JSON.stringify(await told()) === JSON.stringify(wanted)
    await until(isSo, { ...patience, what: `the two pods of round ${round}` })
    const { items } = await admin.get(`/api/v1/namespaces/${namespace}/secrets?labelSelector=slipway.service`)
    assert.ok(items.length <= 1, `${items.length} secrets of variables`)
  }
  context.diagnostic(`${hits} of ${kills} kills met a deployment at work`)
  assert.ok(hits * 2 >= kills, `${hits} of ${kills} kills met a deployment at work`)
  await must('DELETE', `/environment/${environment.id}`)
  const gone = async () => (await admin.ask('GET', `/api/v1/namespaces/${namespace}`)).status === 404
  await until(gone, { ...patience, what: 'the namespace to be gone' })
})
