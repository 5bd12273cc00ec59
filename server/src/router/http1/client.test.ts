import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { test } from 'node:test'
import { openInside } from '../../../test/support/router/parts.ts'
import { standIn } from '../../../test/support/stand-in.ts'
import { defaultLimits } from '../http/front.ts'
import { Http1Client } from './client.ts'
import type { ClientOwner } from './owner.ts'

test('an error of ours ends the connection that it came on, and leaves nothing of it under way', async (t) => {
  const { traffic } = await openInside(t, [])
  const gone: Http1Client[] = []
  const owner: ClientOwner = {
    ...{ traffic, limits: defaultLimits },
    serve: () => {
      throw new Error('a fault')
    },
    onPreface: () => {},
    onUpgrade: () => {},
    onLeave: () => {},
    onGone: (client) => void gone.push(client),
  }
  const holding = traffic.shares.enter({ isIdle: true, giveUp: () => {} }, 2)
  const socket = new Duplex({ read() {}, write: (_bytes, _coding, done) => done() })
  const client = new Http1Client(owner, standIn<Socket>(socket), holding)
  const request = Buffer.from('GET / HTTP/1.1\r\nHost: a.localhost\r\n\r\n')
  assert.throws(() => socket.emit('data', request), /a fault/)
  assert.ok(socket.destroyed)
  await once(socket, 'close')
  assert.deepEqual(gone, [client])
  assert.equal(traffic.counts.inFlight, 0)
})
