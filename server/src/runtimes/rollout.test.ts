import assert from 'node:assert/strict'
import { test } from 'node:test'
import { deploymentError, nowhere, signal } from '../../test/support/runtimes/conformance.ts'
import { standIn } from '../../test/support/stand-in.ts'
import { type BlueGreenParts, createBlueGreen, noRouter } from './blue-green/blue-green.ts'
import { createConverge } from './rollout.ts'
import type { ArtifactKind, Running } from './runtime.ts'

const sentences: Record<ArtifactKind, RegExp> = {
  chart: /^The cluster cannot install charts\.$/,
  app: /^The cluster has no Argo CD, which this service needs\.$/,
  image: /^The cluster cannot run images\.$/,
}
const service = { environmentId: 'e', serviceId: 's' }
const runs = (artifact: ArtifactKind): Running => ({
  state: 'running',
  workload: standIn<Running['workload']>({ artifact }),
  exposure: async () => nowhere,
})

test('a service that no driver of its cluster can run is refused with the reason', async () => {
  const converge = createConverge({ of: () => undefined, ending: () => [] })
  for (const artifact of ['chart', 'app', 'image'] as const) {
    const { code, message } = await deploymentError(converge(service, runs(artifact), null, signal()))
    assert.equal(code, 'cluster_unable')
    assert.match(message, sentences[artifact])
  }
})

test('an engine with our router refuses a chart and an app before it looks at instances or routes', async () => {
  const instances = standIn<BlueGreenParts['instances']>({
    see: () => assert.fail('it looked at instances'),
    apply: () => assert.fail('it started an instance'),
  })
  const { converge } = createBlueGreen({ instances, router: noRouter })
  for (const artifact of ['chart', 'app'] as const) {
    const { code, message } = await deploymentError(converge(service, runs(artifact), null, signal()))
    assert.equal(code, 'cluster_unable')
    assert.match(message, sentences[artifact])
  }
})
