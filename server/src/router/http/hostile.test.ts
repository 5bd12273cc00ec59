/** Requests by which clients try to impersonate another client, or to break the router. */
import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { test } from 'node:test'
import { callGrpc, echo, openClient, serveGrpc } from '../../../test/support/router/grpc.ts'
import { ask, openInside, route, serve, startProcess } from '../../../test/support/router/parts.ts'
import { isSaidByUs } from '../exchange/headers.ts'

const forged = {
  X_Forwarded_For: '6.6.6.6',
  'x-forwarded_host': 'evil.example',
  X_FORWARDED_PROTO: 'https',
  X_Real_IP: '6.6.6.6',
  'x.forwarded.for': '6.6.6.6',
  Forwarded: 'for=6.6.6.6',
}
const honest = { x_request_id: 'kept', 'x-real-ips': 'kept' }
const grpc = { protocol: 'GRPC' } as const

test('names that become the same variable as ours are ours', () => {
  for (const name of [...Object.keys(forged), 'x_forwarded_', 'x-forwarded-anything', 'http2_settings', 'te'])
    assert.ok(isSaidByUs(name.toLowerCase()), name)
  for (const name of ['x-forward', 'x_request_id', 'forwarded-by', 'real_ip', 'cookie'])
    assert.ok(!isSaidByUs(name), name)
})

test('a client cannot say what we say of it, in any spelling that a program folds into one, over HTTP/1 and 2', async (t) => {
  const program = await serve(t, (req, res) => res.end(JSON.stringify(req.headers)))
  const far = await serveGrpc(t, echo('v1'))
  const hosts = [route([program.target]), route([far.target], { ...grpc, host: 'b.localhost', serviceId: 'b' })]
  const { port } = await openInside(t, hosts)
  const { body } = await ask(port, { headers: { ...forged, ...honest } })
  const lower = Object.fromEntries(Object.entries(forged).map(([name, value]) => [name.toLowerCase(), value]))
  await callGrpc(openClient(t, port), '/unary', 'x', { ':authority': 'b.localhost', ...lower, ...honest })
  for (const headers of [JSON.parse(body) as Record<string, string>, far.streams[0]!.headers]) {
    const names = Object.keys(headers).filter((name) => /forwarded|real/.test(name))
    assert.deepEqual(names.sort(), ['x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'x-real-ips'])
    assert.equal(headers['x-forwarded-for'], '127.0.0.1')
    assert.equal(headers.x_request_id, 'kept')
  }
})

const frame = (type: number, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer => {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head.set([type, flags], 3)
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}
const word = (number: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(number)
  return bytes
}
const field = (name: string, value: string): Buffer =>
  Buffer.concat([Buffer.from([0, name.length]), Buffer.from(name), Buffer.from([value.length]), Buffer.from(value)])
const fields = (more: Buffer[] = []): Buffer => {
  const [method, scheme, path] = [field(':method', 'POST'), field(':scheme', 'http'), field(':path', '/')]
  return Buffer.concat([method, scheme, path, field(':authority', 'a.localhost'), ...more])
}
const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const settings = frame(4, 0, 0)
const open = frame(1, 4, 1, fields())
const times = (count: number, each: (index: number) => Buffer): Buffer[] =>
  Array.from({ length: count }, (_, i) => each(i))

/** After the first frame of settings. */
const badFrames: Record<string, Buffer[]> = {
  'a header block that cannot be read, after a good one': [
    open,
    frame(1, 5, 3, Buffer.from([255, 255, 255, 255, 255])),
  ],
  'a window of nothing': [open, frame(8, 0, 1, word(0))],
  'a window too large': [open, frame(8, 0, 1, word(2 ** 31 - 1))],
  'a reset of the wrong length': [open, frame(3, 0, 1, Buffer.alloc(3))],
  'more padding than data': [open, frame(0, 8, 1, Buffer.from([200, 1, 2]))],
  'headers twice': [open, open],
  'headers after the end': [frame(1, 5, 1, fields()), frame(1, 5, 1, fields())],
  'data after the end': [frame(1, 5, 1, fields()), frame(0, 1, 1, Buffer.from('x'))],
  'another length than said': [
    frame(1, 4, 1, fields([field('content-length', '5')])),
    frame(0, 1, 1, Buffer.from('x')),
  ],
  'a goodbye in anger': [open, frame(7, 0, 0, Buffer.concat([word(0), word(2)]))],
  'many resets': times(600, (i) => Buffer.concat([frame(1, 4, 2 * i + 1, fields()), frame(3, 0, 2 * i + 1, word(8))])),
  'many empty frames': [open, ...times(2000, () => frame(0, 0, 1))],
  'data for no stream': [frame(0, 0, 0, Buffer.from('x'))],
  'settings of the wrong length': [frame(4, 0, 0, Buffer.alloc(5))],
}

test('bad frames end their connection, and do not count as errors of ours', async (t) => {
  const far = await serveGrpc(t, echo('v1'))
  const { router, port } = await startProcess(t)
  await router.setService('a', [route([far.target], grpc)])
  for (const frames of Object.values(badFrames))
    for (const leaves of [false, true]) {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => {}).resume()
      const closed = new Promise((resolve) => socket.once('close', resolve))
      socket.write(Buffer.concat([preface, settings, ...frames]))
      // Some are an error of one stream, which its connection outlives.
      const answered = (await callGrpc(openClient(t, port), '/unary', 'x')).body
      assert.equal(answered, 'x')
      if (leaves) socket.resetAndDestroy()
      else socket.destroySoon()
      await closed
    }
  assert.equal((await callGrpc(openClient(t, port), '/unary', 'x')).body, 'x')
  const { internalErrors } = await router.counts()
  assert.equal(internalErrors, 0)
})
