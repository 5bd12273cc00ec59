/** Data of an untrusted engine is accepted only as far as it is plausible, and costs no more than we allow. */
import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { after, test } from 'node:test'
import { standIn } from '../../../test/support/stand-in.ts'
import { until } from '../../../test/support/until.ts'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { newId } from '../../lib/ids.ts'
import { systemClock } from '../../lib/time/clock.ts'
import { type ContainersParts, createContainers } from './containers.ts'
import { containerName, labels } from './describe.ts'
import { type ContainerEvent, createEvents } from './events.ts'

const event = (id: string, name: string, more: object = {}): string =>
  `${JSON.stringify({ Action: 'start', Actor: { ID: id, Attributes: { name, [labels.service]: 's' } }, timeNano: 1, ...more })}\n`

test('events that no container of ours could have are skipped, and the stream continues', async () => {
  const stream = new PassThrough()
  const events = createEvents(standIn<Engine>({ stream: async () => stream }), 'o', systemClock)
  after(() => events.close())
  const heard: ContainerEvent[] = []
  await events.listen((each) => heard.push(each))
  const name = containerName(newId(), newId(), 0)
  stream.write('{}\n{"Action":"start"}\n{"Action":"constructor","Actor":{"ID":"x"}}\n')
  stream.write(event('x'.repeat(100_000), name))
  stream.write(event('a', `slipway-${'x'.repeat(100_000)}`))
  stream.write(event('b', 'brave_curie') + event('c', 'slipway-build-1') + event('d', name, { timeNano: 'x' }))
  stream.write(event('good', name, { timeNano: 1e300 }))
  await until(() => heard.length > 0, { what: 'the good one' })
  assert.deepEqual(
    heard.map(({ instanceId }) => instanceId),
    ['good'],
  )
})

test('of an engine that names ever new containers, so many are remembered', async () => {
  const stream = new PassThrough()
  const events = createEvents(standIn<Engine>({ stream: async () => stream }), 'o', systemClock)
  after(() => events.close())
  const count = 21_000
  let heard = 0
  await events.listen(() => {
    heard += 1
  })
  const name = containerName(newId(), newId(), 0)
  for (let n = 0; n < count; n += 1) stream.write(event(`c${n}`, name))
  await until(() => heard === count, { timeoutMs: 20_000, what: 'all of them' })
  assert.equal(events.seen('c0'), undefined)
  assert.equal(events.seen('c999'), undefined)
  assert.ok(events.seen('c1000'))
  assert.ok(events.seen(`c${count - 1}`))
})

test('a list with more containers than an engine can run is refused, and what the engine names is not among them', async () => {
  const row = (name: string) => ({ Id: name, Names: [`/${name}`], State: 'running', Created: 0, Labels: {} })
  const rows = Array.from({ length: 5000 }, () => row(containerName(newId(), newId(), 0)))
  const containersOf = (elsewhere: string | undefined) =>
    createContainers(standIn<ContainersParts>({ engine: { call: async () => rows }, ownerId: 'o', elsewhere }))
  assert.equal((await containersOf('192.0.2.1').list()).length, 5000)
  rows[0] = row('brave_curie')
  assert.equal((await containersOf('192.0.2.1').list()).length, 4999)
  rows.push(row(containerName(newId(), newId(), 0)))
  await assert.rejects(containersOf('192.0.2.1').list(), /lists more than 5000 containers/)
  assert.equal((await containersOf(undefined).list()).length, 5000)
})
