/** Events that an engine on another machine can send. */
import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { longestParsed } from '../../../test/support/longest-parsed.ts'
import { standIn } from '../../../test/support/stand-in.ts'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { systemClock } from '../../lib/time/clock.ts'
import { labels } from './describe.ts'
import { type ContainerEvent, createEvents } from './events.ts'

/** The events of a stream of these pieces until it ends, and how it ends. */
const toldOf = async (pieces: Iterable<Buffer>): Promise<{ events: ContainerEvent[]; error: Error }> => {
  const engine = standIn<Engine>({ stream: async () => Readable.from(pieces) })
  const events: ContainerEvent[] = []
  const { promise, resolve } = Promise.withResolvers<Error>()
  await createEvents(engine, 'owner', systemClock).listen((event) => events.push(event), resolve)
  return { events, error: await promise }
}

test('of a large event only what is kept is parsed here, and one with too many values ends the stream', async (t) => {
  const longest = longestParsed(t)
  const eventWith = (values: number): Buffer => {
    const actor = {
      ID: 'a',
      Attributes: { name: 'slipway-x', [labels.service]: 's', [labels.revision]: 'r', other: 'o' },
    }
    const text = JSON.stringify({ Action: 'start', timeNano: 1e18, Actor: actor })
    return Buffer.from(`{"more":[${'{},'.repeat(values)}{}],${text.slice(1)}\n`)
  }
  const { events, error } = await toldOf([eventWith(0), eventWith(500_000), eventWith(2_000_000), eventWith(0)])
  assert.deepEqual(
    events.map(({ kind, instanceId, serviceId, revision }) => [kind, instanceId, serviceId, revision]),
    [
      ['started', 'a', 's', 'r'],
      ['started', 'a', 's', 'r'],
    ],
  )
  assert.match(String(error), /engine/i)
  assert.ok(longest() < 1000, `${longest()} characters`)
})

test('an event without an end is not read for ever', async () => {
  let sent = 0
  const endless = function* (): Generator<Buffer> {
    for (; sent < 64; sent += 1) yield Buffer.alloc(1 << 20, 'x')
  }
  const { events } = await toldOf(endless())
  assert.deepEqual(events, [])
  assert.ok(sent < 32, `${sent} MB were read`)
})
