/**
 * HTTPS of a whole control plane with a real ACME server: services of the operator's domain, a domain of a user,
 * renewal while clients keep sending requests, a CA that refuses, limits us or stops answering, and kill -9 during an
 * order. The services are simulated; router, database and CA are not.
 */
import assert from 'node:assert/strict'
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { type IncomingMessage, request as requestHttp } from 'node:http'
import { Agent, request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { type TestDatabase, testDatabase } from './support/database.ts'
import { onlyAtNight } from './support/nightly.ts'
import { startGitServer } from './support/peers/git-server.ts'
import { bundledServer, freePort, type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { refusals, startAcmeGate } from './support/tls/acme-gate.ts'
import { type Pebble, startPebble, withoutPebble } from './support/tls/pebble.ts'
import { createTestCa } from './support/tls/test-ca.ts'
import { until } from './support/until.ts'

const keys = mkdtempSync(join(tmpdir(), 'slipway-keys-'))
const domain = 'apps.slipway.localhost'
const apiHost = 'api.slipway.localhost'
const patience = { timeoutMs: 40_000 }

let database: TestDatabase
let git: Awaited<ReturnType<typeof startGitServer>>
let pebble: Pebble
let gate: Awaited<ReturnType<typeof startAcmeGate>>
let slipway: Slipway
let tlsPort: number
let httpPort: number
let root: string
let service: Json

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

interface Seen {
  status: number
  body: string
  headers: IncomingMessage['headers']
  serial: string
}

/** With a chain up to the CA's root; fails otherwise. */
const askTls = async (host: string, path = '/', agent?: Agent, ca = root): Promise<Seen> => {
  const place = { host: '127.0.0.1', port: tlsPort, servername: host, ca, path, headers: { host } }
  const out = request({ ...place, ...(agent === undefined ? { agent: false } : { agent }) })
  out.end()
  const [answer] = (await once(out, 'response')) as [IncomingMessage]
  const serial = (answer.socket as unknown as { getPeerCertificate(): { serialNumber: string } }).getPeerCertificate()
  let body = ''
  for await (const chunk of answer.setEncoding('utf8')) body += chunk
  return { status: answer.statusCode!, body, headers: answer.headers, serial: serial?.serialNumber ?? '' }
}

const rowOf = async (host: string): Promise<Json> =>
  (await database.query<Json>('select * from certificate where host = $1', [host]))[0]

const issued = (host: string): Promise<unknown> =>
  until(async () => (await rowOf(host))?.chain != null, { what: `a certificate for ${host}`, ...patience }).catch(
    async (error: Error) => assert.fail(`${error.message}: ${JSON.stringify((await rowOf(host))?.problem)}`),
  )

const dueNow = (host: string): Promise<unknown> =>
  database.query(`update certificate set next_at = '-infinity', problem = null where host = $1`, [host])

const wake = (): Promise<unknown> => database.query(`select pg_notify('slipway_hosts', '')`)

before(async () => {
  if (withoutPebble !== false) return
  database = await testDatabase()
  git = await startGitServer()
  tlsPort = await freePort()
  httpPort = await freePort()
  pebble = await startPebble({ httpPort, tlsPort })
  const caFile = join(keys, 'acme.pem')
  gate = await startAcmeGate(pebble, caFile)
  slipway = await prepareSlipway({
    fake: true,
    // The packages for certificates have to be complete in it.
    server: await bundledServer(),
    env: {
      DATABASE_URL: database.connectionString,
      SLIPWAY_MASTER_KEY_FILE: join(keys, 'master'),
      SLIPWAY_ROUTER_PORT: String(httpPort),
      SLIPWAY_ROUTER_TLS_PORT: String(tlsPort),
      SLIPWAY_DOMAIN: domain,
      SLIPWAY_API_HOST: apiHost,
      SLIPWAY_ACME_DIRECTORY: gate.directory,
      SLIPWAY_ACME_CA_FILE: caFile,
      SLIPWAY_ACME_EMAIL: 'ops@slipway.example',
    },
  })
  await slipway.start()
  root = await pebble.root()
})

after(async () => {
  await slipway?.kill('SIGKILL')
  await slipway?.remove()
  gate?.close()
  await pebble?.close()
  await git?.close()
  await database?.close()
  rmSync(keys, { recursive: true, force: true })
})

const deployService = async (): Promise<Json> => {
  await git.createRepository('web')
  await git.commit('web', { Dockerfile: 'FROM fake/serve\n' }, 'begin')
  const organization = (await send('GET', '/organization')).results[0]
  const project = await send('POST', `/organization/${organization.id}/project`, { name: 'tls' })
  const environment = await send('POST', `/project/${project.id}/environment`, { name: 'prod' })
  const made = await send('POST', `/environment/${environment.id}/application`, {
    ...{ name: 'web', healthchecks: {} },
    ports: [{ internal_port: 8080, publicly_accessible: true, is_default: true, protocol: 'HTTP' }],
    git_repository: { url: git.url('web'), branch: 'main', root_path: '/' },
  })
  await send('POST', `/environment/${environment.id}/deploy`)
  const stateOf = async () => (await send('GET', `/environment/${environment.id}/status`)).state
  await until(async () => (await stateOf()) === 'DEPLOYED', { what: 'the deployment', ...patience })
  return made
}

test('a deployed service and the API answer over HTTPS with a valid chain, and HTTP redirects there', {
  skip: withoutPebble,
}, async () => {
  service = await deployService()
  const host = `web-prod.${domain}`
  await Promise.all([issued(host), issued(apiHost)])
  const answer = await until(async () => askTls(host).catch(() => null), { what: 'HTTPS', ...patience })
  assert.equal(answer.status, 200)
  assert.equal(JSON.parse((await askTls(apiHost, '/readyz')).body || '{}') !== null, true)
  const { results } = await send('GET', `/application/${service.id}/link`)
  const link = results.find((each: Json) => each.url.includes(`//${host}`))
  assert.deepEqual([link.url, link.certificate.state], [`https://${host}:${tlsPort}`, 'ISSUED'])
  const out = requestHttp({ host: '127.0.0.1', port: httpPort, path: '/x', headers: { host }, agent: false }).end()
  const [moved] = (await once(out, 'response')) as [IncomingMessage]
  moved.resume()
  assert.deepEqual([moved.statusCode, moved.headers.location], [308, `https://${host}:${tlsPort}/x`])
  const taken = await slipway.api('POST', `/application/${service.id}/customDomain`, { domain: `mine.${domain}` })
  assert.equal(taken.status, 400)
})

test('a custom domain is checked, gets a certificate, and is renewed while 16 clients send requests without a failure', {
  skip: withoutPebble,
}, async () => {
  const host = 'www.shop.localhost'
  const path = `/application/${service.id}/customDomain`
  const made = await send('POST', path, { domain: host, generate_certificate: true })
  assert.equal(
    (await send('GET', `/application/${service.id}/checkCustomDomain`)).results[0].status,
    'MATCHES_LOAD_BALANCER_HOST',
  )
  await issued(host)
  assert.equal((await send('GET', `${path}/${made.id}/status`)).certificate.state, 'ISSUED')
  const first = await until(async () => askTls(host).catch(() => null), { what: 'HTTPS', ...patience })
  let isOver = false
  const failures: string[] = []
  const client = async (index: number): Promise<void> => {
    const agent = new Agent({ keepAlive: index % 2 === 0, maxSockets: 1 })
    while (!isOver) {
      const answer = await askTls(host, '/', agent).catch((error: Error) => ({ status: 0, body: error.message }))
      if (answer.status !== 200) failures.push(`${answer.status} ${answer.body}`)
    }
    agent.destroy()
  }
  const clients = Array.from({ length: 16 }, (_, index) => client(index))
  await dueNow(host)
  await wake()
  const renewed = async () => (await askTls(host)).serial !== first.serial
  await until(renewed, { what: 'the renewed certificate', ...patience }).finally(() => {
    isOver = true
  })
  await Promise.all(clients)
  assert.deepEqual(failures, [])
})

test('an uploaded certificate is served at once instead of the ordered one, which returns when it is removed', {
  skip: withoutPebble,
}, async () => {
  const host = 'www.shop.localhost'
  const { serial } = await askTls(host)
  const [own, ca] = [(await send('GET', `/application/${service.id}/customDomain`)).results[0], await createTestCa()]
  const pair = await ca.issue(host)
  const path = `/application/${service.id}/customDomain/${own.id}/certificate`
  const kept = new Agent({ keepAlive: true, maxSockets: 1 })
  assert.equal((await askTls(host, '/', kept)).status, 200)
  await send('PUT', path, { certificate: pair.certificate, private_key: pair.key })
  const shown = () => askTls(host, '/', undefined, root + ca.certificate)
  await until(async () => (await shown()).serial !== serial, { what: 'the certificate of the user', ...patience })
  assert.equal((await shown()).serial, new X509Certificate(pair.certificate).serialNumber)
  assert.equal((await askTls(host, '/', kept)).status, 200)
  kept.destroy()
  await send('DELETE', path)
  await until(async () => (await shown()).serial === serial, { what: 'the one that was ordered', ...patience })
})

/** The state of the first domain, once an attempt to renew it has failed. */
const afterFailure = async (host: string): Promise<Json> => {
  await dueNow(host)
  await wake()
  await until(async () => (await rowOf(host)).problem !== null, { what: 'the reason', timeoutMs: 50_000 })
  return (await send('GET', `/application/${service.id}/customDomain`)).results[0].certificate
}

const ordersFor = async (host: string): Promise<number> =>
  (await database.query('select 1 from certificate_order where host = $1', [host])).length

test('a CA that limits us, refuses, answers nonsense or cannot verify leaves the old certificate serving, and is reported', {
  skip: withoutPebble || onlyAtNight,
}, async () => {
  const host = 'www.shop.localhost'
  const { serial } = await askTls(host)
  const fails = async (reason: RegExp, leastPauseMs = 0): Promise<void> => {
    const begun = Date.now()
    const { state, reason: said, next_attempt_at } = await afterFailure(host)
    assert.equal(state, 'ISSUED')
    assert.match(said, reason)
    assert.ok(Date.parse(next_attempt_at) >= begun + leastPauseMs, `${said}: ${next_attempt_at}`)
    assert.equal((await askTls(host)).serial, serial)
  }
  gate.refuse(refusals.limited)
  await fails(/limits requests: too many certificates \(5\) already issued/, 7_200_000)
  assert.equal(gate.met(), 1, 'it was asked again at once')
  gate.refuse(refusals.nonces)
  await fails(/The certificate authority.*nonce/i)
  assert.ok(gate.met() < 10, `${gate.met()} nonces`)
  gate.refuse(refusals.nonsense)
  await fails(/The certificate authority/)
  gate.refuse(null)
  // No program listens there.
  await pebble.moveHost(host, '127.0.0.9')
  await fails(/could not verify the host: .*127\.0\.0\.9/)
  await pebble.moveHost(host, '127.0.0.1')
})

test('an order whose last response was lost is resumed, and no second one is made', {
  skip: withoutPebble || onlyAtNight,
}, async () => {
  const host = 'www.shop.localhost'
  const { serial } = await askTls(host)
  const before = await ordersFor(host)
  gate.refuse(refusals.lost)
  assert.match((await afterFailure(host)).reason, /did not answer/)
  assert.equal((await askTls(host)).serial, serial)
  gate.refuse(null)
  await dueNow(host)
  await wake()
  await until(async () => (await askTls(host)).serial !== serial, { what: 'the renewed certificate', ...patience })
  assert.equal(await ordersFor(host), before + 1)
})

test('a CA that does not answer leaves the old certificate serving, and the status says why', {
  skip: withoutPebble || onlyAtNight,
}, async () => {
  const host = 'www.shop.localhost'
  const { serial } = await askTls(host)
  pebble.pause()
  try {
    const { state, reason } = await afterFailure(host)
    assert.equal(state, 'ISSUED')
    assert.match(reason, /did not answer/)
    assert.equal((await askTls(host)).serial, serial)
  } finally {
    pebble.resume()
  }
})

test('a control plane that is killed in the middle of an order gets the certificate after its next start', {
  skip: withoutPebble || onlyAtNight,
}, async () => {
  const host = 'late.shop.localhost'
  await send('POST', `/application/${service.id}/customDomain`, { domain: host, generate_certificate: true })
  await until(async () => (await rowOf(host))?.order_url != null, { what: 'an order', ...patience })
  await slipway.kill('SIGKILL')
  // The simulated services have died with it; the router has not.
  assert.notEqual((await askTls(`web-prod.${domain}`)).serial, '')
  await slipway.start()
  await issued(host)
  await until(async () => (await askTls(host).catch(() => null))?.status === 200, { what: 'HTTPS', ...patience })
  const count = await ordersFor(host)
  assert.ok(count <= 2, `${count} orders`)
})

test('a CA that validates over TLS-ALPN-01 issues too', { skip: withoutPebble }, async () => {
  const host = 'alpn.shop.localhost'
  await slipway.kill('SIGKILL')
  writeFileSync(join(slipway.dataDir, 'slipway.env'), 'SLIPWAY_ACME_CHALLENGE=tls-alpn-01\n')
  await slipway.start()
  await send('POST', `/application/${service.id}/customDomain`, { domain: host, generate_certificate: true })
  const challenged = async () =>
    (await rowOf(host))?.challenge?.kind === 'tls-alpn-01' || (await rowOf(host))?.chain != null
  await until(challenged, { what: 'the challenge', ...patience })
  await issued(host)
  await until(async () => (await askTls(host).catch(() => null))?.status === 200, { what: 'HTTPS', ...patience })
})
