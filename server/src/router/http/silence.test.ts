import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openClient, openStream, readStream, serveGrpc } from '../../../test/support/router/grpc.ts'
import { ask, openInside, route, serve, until } from '../../../test/support/router/parts.ts'
import type { Policy } from '../policy.ts'

const timeout = 30_000

test('the time for a whole request ends its retries too', { timeout }, async (t) => {
  let asked = 0
  const { target } = await serve(t, (req, res) => {
    asked++
    if (req.url === '/fails') res.writeHead(503).end()
  })
  const retry = { times: 1000, on: ['5xx'], statuses: [] }
  const { port, traffic } = await openInside(t, [
    route([target], { policy: { requestMs: 700, retry } }),
    // The settings of a service whose program answers within each attempt's time, and never in all.
    route([target], {
      host: 'b.localhost',
      serviceId: 'b',
      policy: { requestMs: 700, retry: { ...retry, perTryMs: 10_000 } },
    }),
  ])
  for (const [host, path] of [
    ['a', '/hangs'],
    ['b', '/hangs'],
    ['a', '/fails'],
  ] as const) {
    asked = 0
    assert.equal((await ask(port, { host: `${host}.localhost`, path })).status, 504, host + path)
    await until(() => traffic.counts.inFlight === 0)
    if (path === '/hangs') assert.equal(asked, 1)
  }
})

test('a silence that the settings allow is not cut by the limit for clients', {
  timeout,
}, async (t) => {
  const limits = { silenceMs: 500 }
  const late = 1500
  const { target } = await serve(t, (_, res) => void setTimeout(() => res.end('late'), late))
  const grpc = await serveGrpc(t, (stream) => {
    setTimeout(() => {
      if (stream.destroyed) return
      stream.respond({ ':status': 200 })
      stream.end('late')
    }, late)
  })
  const on = (host: string, policy: Policy) => route([target], { host: `${host}.localhost`, serviceId: host, policy })
  const grpcOn = (host: string, policy: Policy) =>
    route([grpc.target], { host: `${host}.localhost`, serviceId: host, policy, protocol: 'GRPC' })
  const { port } = await openInside(
    t,
    [
      on('long', { readMs: 90_000 }),
      on('endless', { readMs: 0 }),
      on('usual', {}),
      grpcOn('grpc-long', { grpcReadMs: 90_000 }),
      grpcOn('grpc-endless', { grpcReadMs: 0 }),
      grpcOn('grpc-usual', {}),
    ],
    { limits },
  )
  const [long, endless] = await Promise.all([
    ask(port, { host: 'long.localhost' }),
    ask(port, { host: 'endless.localhost' }),
    assert.rejects(ask(port, { host: 'usual.localhost' }), { code: 'ECONNRESET' }),
  ])
  assert.deepEqual([long.body, endless.body], ['late', 'late'])
  const call = async (host: string) => {
    const stream = openStream(openClient(t, port), '/x', { ':authority': `${host}.localhost` })
    stream.end()
    return (await readStream(stream)).body
  }
  assert.deepEqual(await Promise.all([call('grpc-long'), call('grpc-endless')]), ['late', 'late'])
  assert.equal(await call('grpc-usual'), '')
})
