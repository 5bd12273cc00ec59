import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService, ask, createTestEngine, partsOf } from '../../../test/support/engine.ts'
import { newWorld, settled } from '../../../test/support/engine-story.ts'
import { standIn } from '../../../test/support/stand-in.ts'
import { type Ability, abilities, type WorkloadPort } from '../../runtimes/runtime.ts'
import type { Place } from '../artifacts/driver.ts'
import type { Source, WorkloadSpec } from '../deployments.ts'
import { abilityRefusal, deployRefusal } from './refusals.ts'

const volumes = [{ id: 'v', mountPath: '/v', sizeGb: 1 }]
const needs = { volumes: [], ports: [], scaling: undefined, ingress: undefined }
const port = (protocol: WorkloadPort['protocol'], publiclyAccessible = true) => ({
  internalPort: 1,
  protocol,
  publiclyAccessible,
})

test('a service is refused for what its cluster lacks and it needs, and for nothing else', () => {
  const none = new Set<Ability>()
  const cases: [object, RegExp | null][] = [
    [{}, null],
    [{ ports: [port('HTTP'), port('GRPC', false), port('TCP', false)], from: 'image' }, null],
    [{ volumes }, /does not support volumes/],
    [{ ports: [port('TCP')] }, /does not publish TCP ports/],
    [{ ports: [port('HTTP'), port('UDP')] }, /does not publish UDP ports/],
    [{ ports: [port('GRPC')] }, /does not publish gRPC ports/],
    [{ ports: [{ ...port('HTTP'), publicPath: '/a', publicPathRewrite: '/' }] }, /does not rewrite paths/],
    [{ ports: [{ ...port('HTTP'), publicPath: '/a', publicPathRewrite: '/a' }] }, null],
    [{ ports: [port('HTTP')], ingress: { 'network.ingress.enable_cors': true } }, /advanced network settings/],
    [{ ingress: { 'network.ingress.enable_cors': true } }, null],
    [{ scaling: { min: 0, max: 2, cpuPercent: 60, sleeps: true } }, /does not let services sleep/],
    [{ scaling: { min: 1, max: 2, cpuPercent: 60, sleeps: false } }, null],
  ]
  for (const [needs, told] of cases) {
    const refusal = abilityRefusal(none, { volumes: [], ports: [], ...needs })
    if (told === null) assert.equal(refusal, null)
    else assert.match(refusal ?? '', told)
    assert.equal(abilityRefusal(new Set(abilities), { volumes: [], ports: [], ...needs }), null)
  }
})

test('what is to be built is refused where nothing can be built, and what has its image is not', async () => {
  const git = { url: 'https://git.test/a', branch: 'main', gitTokenId: null }
  const sources: Source[] = [
    { from: 'git', git, rootPath: '/', dockerfilePath: 'Dockerfile', targetStage: null },
    { from: 'image', registryId: null, name: 'a', tag: '1' },
  ]
  const refusal = (from: Source['from'], builds: string | null) =>
    deployRefusal(
      { source: () => sources.find((each) => each.from === from)!, workload: () => standIn<WorkloadSpec>(needs) },
      standIn<Place>({ abilities: new Set(abilities), limits: null, sizes: 'auto', builds }),
      {},
      {},
    )
  assert.equal(await refusal('git', 'no registry'), 'no registry')
  assert.equal(await refusal('image', 'no registry'), null)
  assert.equal(await refusal('git', null), null)
})

test('a cluster without volumes takes no service with storage: a deploy is refused, and its plan says why', async () => {
  const world = await newWorld()
  const power = { off: false, callsLeft: null, lateCut: false }
  const { clusters } = partsOf(world, power)
  const local = await clusters.of(world.clusterId)
  const few = new Set<Ability>(['tcp-ports'])
  const poor = { ...local, runtime: { ...world.runtime, abilities: few } }
  const engine = createTestEngine(world, {}, { clusters: { ...clusters, of: async () => poor, all: () => [poor] } })
  await engine.engine.start()
  const [stored, plain] = [await addService(world, { volume: true }), await addService(world)]
  await assert.rejects(ask(engine, world, 'DEPLOY', [{ id: stored }]), {
    code: 'not_deployable',
    message: /does not support volumes/,
  })
  const asked = { ...world.ids, action: 'DEPLOY' as const, wholeEnvironment: false, services: [{ id: stored }] }
  const plan = await engine.engine.plan(world.database, asked)
  const [planned] = plan.stages.flatMap(({ services }) => services)
  assert.equal(planned!.effect, 'REFUSED')
  assert.match(planned!.reason, /does not support volumes/)
  await ask(engine, world, 'DEPLOY', [{ id: plain }])
  assert.equal(await settled(engine, world, plain), 'DEPLOYED')
  await engine.engine.stop()
})
