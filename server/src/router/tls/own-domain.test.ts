import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { request } from 'node:https'
import { type TestContext, test } from 'node:test'
import { connect as connectTls } from 'node:tls'
import { ask, readAnswer, route, serve, startProcess } from '../../../test/support/router/parts.ts'
import { createTestCa } from '../../../test/support/tls/test-ca.ts'

const ca = await createTestCa()
const path = '/.well-known/acme-challenge/tok-en_1'

const askTls = async (port: number, host: string, path: string) => {
  const place = { host: '127.0.0.1', port, servername: host, ca: ca.certificate, agent: false }
  const out = request({ ...place, path, headers: { host } }).end()
  const [answer] = (await once(out, 'response')) as [Parameters<typeof readAnswer>[0]]
  return readAnswer(answer)
}

const statusOverHttp2 = async (t: TestContext, port: number, servername: string, path: string): Promise<unknown> => {
  const place = { host: '127.0.0.1', port, servername, ca: ca.certificate, ALPNProtocols: ['h2'] }
  const session = connectHttp2(`https://${servername}:${port}`, { createConnection: () => connectTls(place) })
  t.after(() => session.destroy())
  const [headers] = await once(session.request({ ':path': path }), 'response')
  return headers[':status']
}

test('no service answers a CA about a name of the platform, over HTTP, HTTPS or HTTP/2; about its own domain it may', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('the service'))
  const { router, port } = await startProcess(t, { tlsPort: 0, ownDomain: 'apps.localhost' })
  const tlsPort = (await router.health())!.tlsPort!
  const [theirs, bare, ours] = ['www.shop.localhost', 'new.apps.localhost', 'web.apps.localhost']
  for (const host of [theirs, bare, ours]) await router.setService(host, [route([target], { host, serviceId: host })])
  for (const host of [theirs, ours]) await router.setTls(host, await ca.issue(host))
  for (const host of [bare, ours]) assert.equal((await ask(port, { path, host })).status, 404)
  // A CA follows redirects.
  assert.equal((await askTls(tlsPort, ours, path)).status, 404)
  assert.equal(await statusOverHttp2(t, tlsPort, ours, path), 404)
  assert.equal((await askTls(tlsPort, theirs, path)).body, 'the service')
  assert.equal((await askTls(tlsPort, ours, '/.well-known/security.txt')).body, 'the service')
  await router.setTls(bare, { challenge: { token: 'tok-en_1', answer: 'tok-en_1.print' } })
  assert.equal((await ask(port, { path, host: bare })).body, 'tok-en_1.print')
  assert.equal((await ask(port, { path: `${path}/x`, host: bare })).status, 404)
})
