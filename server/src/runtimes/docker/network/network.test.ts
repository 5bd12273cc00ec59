import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { createEngine, type Engine } from '../../../lib/docker/docker-engine.ts'
import { newId } from '../../../lib/ids.ts'
import { createNetworks } from './network.ts'
import { freeSubnets, rangeOf } from './subnets.ts'

const ownerId = `network-test-${newId()}`
let engine: Engine
before(() => {
  engine = createEngine()
})
after(() => engine.close())

test('free subnets overlap nothing that is taken', () => {
  const taken = ['10.200.0.0/16', '10.192.1.0/26', '172.17.0.0/16', 'fd00::/64', '']
  const found = freeSubnets('some environment', taken, 20_000)
  const ranges = [...found, ...taken].flatMap((subnet) => rangeOf(subnet) ?? [])
  ranges.sort((a, b) => a.first - b.first)
  assert.equal(found.length, 2 ** 12 - 64 - 1)
  for (const [index, range] of ranges.slice(1).entries()) assert.ok(range.first > ranges[index]!.last)
  assert.deepEqual(freeSubnets('some environment', ['10.0.0.0/8'], 1), [])
})

test('35 environments at once get a network each, though the engine has addresses for fewer; racing creators end with one', async () => {
  const [one, two] = [createNetworks(engine, ownerId), createNetworks(engine, ownerId)]
  const environments = Array.from({ length: 35 }, () => newId())
  try {
    const racing = environments.slice(0, 5).map((id) => two.ensure(id))
    await Promise.all([...environments.map((id) => one.ensure(id)), ...racing])
    const made = await one.list()
    assert.deepEqual(made.map(({ Name }) => Name).sort(), environments.map((id) => `slipway-${id}`).sort())
  } finally {
    await Promise.all(environments.map((id) => one.remove(id, AbortSignal.timeout(60_000))))
  }
  assert.deepEqual(await one.list(), [])
})
