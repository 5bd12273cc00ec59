import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createWorkload } from '../../../test/support/runtimes/conformance.ts'
import { standIn } from '../../../test/support/stand-in.ts'
import { type Engine, EngineError, engineUnavailable } from '../../lib/docker/docker-engine.ts'
import { newId } from '../../lib/ids.ts'
import { type ContainerBody, describeInstance, type Mount, volumeName } from './describe.ts'
import { createVolumes, type VolumeRow } from './volumes.ts'

/** As engines answer: Docker with and without quotas, and an older one. */
const refusals = {
  limits: null,
  plain: 'create x: quota size requested but no quota support',
  old: 'create x: invalid option: "size"',
  forbidden: 'a proxy before the engine allows no volumes to be made',
}

const createStub = () => {
  const volumes = new Map<string, VolumeRow>()
  const stub = { says: 'limits' as keyof typeof refusals, asked: 0, volumes }
  const refuseSize = (size: string | undefined): void => {
    const refusal = refusals[stub.says]
    if (size !== undefined && refusal !== null) throw new EngineError(stub.says === 'plain' ? 400 : 500, refusal)
  }
  const call = async (method: string, path: string, { body }: { body?: { Name: string; DriverOpts: object } } = {}) => {
    const name = path.split('/').at(-1)!
    if (method === 'POST') {
      stub.asked += 1
      refuseSize('1M')
      volumes.set(body!.Name, { Name: body!.Name, Labels: null })
    } else if (!volumes.has(name)) throw new EngineError(404, 'no such volume')
    else if (method === 'DELETE') volumes.delete(name)
    return volumes.get(name)
  }
  const make = async (body: ContainerBody): Promise<string[]> => {
    for (const { Source, VolumeOptions } of body.HostConfig.Mounts as Mount[]) {
      const options = VolumeOptions.DriverConfig?.Options
      if (volumes.has(Source)) continue
      refuseSize(options?.size)
      volumes.set(Source, { Name: Source, Labels: VolumeOptions.Labels, Options: options ?? null })
    }
    return [...volumes.keys()]
  }
  return { stub, make, engine: standIn<Engine>({ call }) }
}

const described = (...sizes: number[]) => {
  const volumes = sizes.map((sizeGb) => ({ id: newId(), mountPath: `/data-${sizeGb}`, sizeGb }))
  const workload = { ...createWorkload({ image: 'x', entrypoint: null, arguments: null }), volumes }
  return { ids: volumes.map(({ id }) => id), body: describeInstance(workload, 0, { hostPorts: {} }, 'owner') }
}

test('new volumes have their sizes where the engine limits them, and none elsewhere; it is asked once', async () => {
  for (const says of ['limits', 'plain', 'old'] as const) {
    const { stub, make, engine } = createStub()
    stub.says = says
    const volumes = createVolumes(engine, 'owner')
    const [first, second] = [described(4, 9), described(1)]
    await volumes.sized(described().body, make)
    assert.equal(stub.asked, 0)
    for (const { body } of [first, second]) await volumes.sized(body, make)
    const sizes = await volumes.sizesOf([...first.ids, newId(), ...second.ids])
    assert.deepEqual([...sizes.values()], says === 'limits' ? [4, 9, 1] : [null, null, null], says)
    assert.deepEqual([stub.asked, stub.volumes.size], [1, 3], 'the probe is gone')
    assert.equal(stub.volumes.get(volumeName(first.ids[0]!))!.Labels!['slipway.volume'], first.ids[0])
  }
})

test('an engine whose disk is mounted in another way is asked again, and services start all the same', async () => {
  const { stub, make, engine } = createStub()
  const volumes = createVolumes(engine, 'owner')
  assert.equal(await volumes.askAgain(), true)
  stub.says = 'plain'
  const { ids, body } = described(4)
  await volumes.sized(body, make)
  assert.deepEqual([...(await volumes.sizesOf(ids))], [[ids[0], null]])
  stub.says = 'limits'
  assert.equal(await volumes.askAgain(), true)
  const later = described(5)
  await volumes.sized(later.body, make)
  assert.deepEqual([...(await volumes.sizesOf([...ids, ...later.ids])).values()], [null, 5], 'what was made stays')
})

test('a killed attempt leaves nothing that counts, and an engine that is away gives no answer', async () => {
  const { stub, make, engine } = createStub()
  const [volumes, next] = [createVolumes(engine, 'owner'), createVolumes(engine, 'owner')]
  const call = engine.call
  let isCut = false
  engine.call = (async (method, path, options) => {
    if (method === 'DELETE' && stub.volumes.size > 0 && !isCut) {
      isCut = true
      throw new EngineError(500, 'cut')
    }
    return call(method, path, options)
  }) as Engine['call']
  assert.deepEqual([await volumes.askAgain(), isCut, stub.volumes.size], [true, true, 1])
  stub.says = 'plain'
  assert.deepEqual([await next.askAgain(), stub.volumes.size], [false, 0])
  engine.call = () => Promise.reject(engineUnavailable('away'))
  await assert.rejects(volumes.askAgain(), { code: 'engine_unavailable' })
  engine.call = call
  stub.says = 'forbidden'
  const { ids, body } = described(4)
  await volumes.sized(body, make)
  assert.deepEqual([...(await volumes.sizesOf(ids)).values()], [null])
})

test('a volume that the engine has not let go of yet is removed a moment later, one that is used is reported', async () => {
  let refusals = 3
  const call = async (method: string) => {
    if (method === 'GET') return { Volumes: [{ Name: 'data', Labels: null }] }
    refusals -= 1
    if (refusals >= 0) throw new EngineError(409, 'remove data: volume is in use - [0123]')
    return undefined
  }
  const slept: number[] = []
  const clock = { sleep: async (ms: number) => void slept.push(ms) }
  const volumes = createVolumes(standIn<Engine>({ call: call as Engine['call'] }), 'owner', clock)
  await volumes.removeOf('service', AbortSignal.timeout(60_000))
  assert.equal(slept.length, 3)
  refusals = Number.POSITIVE_INFINITY
  await assert.rejects(volumes.removeOf('service', AbortSignal.timeout(60_000)), { status: 409 })
  assert.ok(slept.reduce((sum, ms) => sum + ms) < 10_000)
})
