import assert from 'node:assert/strict'
import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2'
import { createServer } from 'node:net'
import { test } from 'node:test'
import { serveGrpc } from '../../../../test/support/router/grpc.ts'
import { askGrpc } from './grpc.ts'

const frame = (...message: number[]): Buffer => Buffer.from([0, 0, 0, 0, message.length, ...message])
const soon = (): AbortSignal => AbortSignal.timeout(10_000)

test('a program is ready when its health service says SERVING for the service that is asked for, and at no other answer', async (t) => {
  const asked: string[] = []
  let answer = (stream: ServerHttp2Stream): void => stream.close()
  const program = await serveGrpc(t, (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
    const chunks: Buffer[] = []
    stream.on('data', (chunk: Buffer) => chunks.push(chunk))
    stream.on('end', () => {
      asked.push(`${headers[':path']} ${Buffer.concat(chunks).toString('hex')}`)
      answer(stream)
    })
  })
  const says =
    (body: Buffer, status: string | null = '0') =>
    (stream: ServerHttp2Stream): void => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true })
      stream.on('wantTrailers', () => stream.sendTrailers(status === null ? {} : { 'grpc-status': status }))
      stream.end(body)
    }
  const { port } = program.server.address() as { port: number }
  const address = { host: '127.0.0.1', port }
  const cases: [typeof answer, RegExp | null][] = [
    [says(frame(8, 1)), null],
    [says(frame(8, 2)), /answered NOT_SERVING/],
    [says(frame()), /answered UNKNOWN/],
    [says(frame(8, 3)), /SERVICE_UNKNOWN/],
    [says(frame(8, 1, 8, 1)), /not a state/],
    [says(Buffer.from('SERVING')), /not a state/],
    [says(Buffer.alloc(0), '12'), /no health service/],
    [says(Buffer.alloc(0), '14'), /gRPC status 14/],
    [says(frame(8, 1), null), /gRPC status none/],
  ]
  for (const [each, finding] of cases) {
    answer = each
    const found = await askGrpc(address, 'shop.Orders', soon())
    if (finding === null) assert.equal(found, null)
    else assert.match(String(found), finding)
  }
  const name = Buffer.from('shop.Orders').toString('hex')
  assert.equal(asked[0], `/grpc.health.v1.Health/Check 000000000d0a0b${name}`)
  answer = says(frame(8, 1))
  await askGrpc(address, '', soon())
  assert.equal(asked.at(-1), '/grpc.health.v1.Health/Check 0000000000')
  answer = says(Buffer.alloc(4096))
  await assert.rejects(askGrpc(address, '', soon()), /too long/)
  answer = () => {}
  await assert.rejects(askGrpc(address, '', AbortSignal.abort(new Error('late'))), /late/)
  program.close()
  await assert.rejects(askGrpc(address, '', soon()))
})

test('a program without gRPC, and a silent one, is not ready', async (t) => {
  const server = createServer((socket) => socket.end('SSH-2.0\r\n'))
  t.after(() => server.close())
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  await assert.rejects(askGrpc({ host: '127.0.0.1', port }, '', soon()))
})
