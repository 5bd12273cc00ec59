// Runs each night: docs/guides/develop.md says what every run has instead.
/**
 * One certificate for all names below the operator's domain: a whole control plane, a real ACME server, and a real name
 * server whose zone a key may change. It is killed while it waits, and its key is revoked.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { connect, type TLSSocket } from 'node:tls'
import { type TestDatabase, testDatabase } from './support/database.ts'
import { bundledServer, freePort, type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { type Bind, startBind, withoutBind } from './support/tls/bind.ts'
import { type Pebble, startPebble, withoutPebble } from './support/tls/pebble.ts'
import { until } from './support/until.ts'

const skip = withoutPebble || withoutBind
const keys = mkdtempSync(join(tmpdir(), 'slipway-keys-'))
const zone = 'wild.test'
const domain = `apps.${zone}`
const record = `_acme-challenge.${domain}`
const patience = { timeoutMs: 60_000 }

let database: TestDatabase
let bind: Bind
let pebble: Pebble
let slipway: Slipway
let tlsPort: number

before(async () => {
  if (skip !== false) return
  database = await testDatabase()
  bind = await startBind(zone)
  tlsPort = await freePort()
  const httpPort = await freePort()
  pebble = await startPebble({ httpPort, tlsPort, dnsPort: bind.port })
  slipway = await prepareSlipway({
    fake: true,
    server: await bundledServer(),
    env: {
      DATABASE_URL: database.connectionString,
      SLIPWAY_MASTER_KEY_FILE: join(keys, 'master'),
      SLIPWAY_ROUTER_PORT: String(httpPort),
      SLIPWAY_ROUTER_TLS_PORT: String(tlsPort),
      SLIPWAY_DOMAIN: domain,
      SLIPWAY_API_HOST: `api.${domain}`,
      SLIPWAY_ACME_DIRECTORY: pebble.directory,
      SLIPWAY_ACME_CA_FILE: pebble.caFile,
      SLIPWAY_ACME_DNS_PROVIDER: 'rfc2136',
      SLIPWAY_ACME_DNS_SERVER: `127.0.0.1:${bind.port}`,
      SLIPWAY_ACME_DNS_TSIG_NAME: bind.key.name,
      SLIPWAY_ACME_DNS_RESOLVERS: `127.0.0.1:${bind.port}`,
    },
  })
  writeFileSync(join(slipway.dataDir, 'slipway.env'), `SLIPWAY_ACME_DNS_TSIG_SECRET=${bind.key.secret}\n`, {
    mode: 0o600,
  })
  await slipway.start()
})

after(async () => {
  await slipway?.kill('SIGKILL')
  await slipway?.remove()
  await pebble?.close()
  await bind?.close()
  await database?.close()
  rmSync(keys, { recursive: true, force: true })
})

const rowOf = async (): Promise<Json> =>
  (await database.query<Json>('select * from certificate where host = $1', [`*.${domain}`]))[0]

/** The names in the certificate of a host, with a chain up to the CA's root. */
const namesOf = async (host: string): Promise<{ names: string; serial: string }> => {
  const socket: TLSSocket = connect({ host: '127.0.0.1', port: tlsPort, servername: host, ca: await pebble.root() })
  await once(socket, 'secureConnect')
  const { subjectaltname: names = '', serialNumber: serial } = socket.getPeerCertificate()
  socket.destroy()
  return { names, serial }
}

const served = (host: string) => until(() => namesOf(host).catch(() => null), { what: `HTTPS of ${host}`, ...patience })

const renew = async (): Promise<void> => {
  await database.query(`update certificate set next_at = '-infinity'`)
  await database.query(`select pg_notify('slipway_hosts', '')`)
}

const swept = () => until(async () => (await bind.texts(record)).length === 0, { what: 'no record', ...patience })

test('all names of a level have one certificate, ordered once, and leave no record', { skip }, async () => {
  const api = await served(`api.${domain}`)
  const any = await served(`some-service.${domain}`)
  assert.deepEqual([api, api.names], [any, `DNS:*.${domain}`])
  await swept()
  const orders = await database.query<Json>('select host from certificate_order')
  assert.deepEqual(
    orders.map(({ host }) => host),
    [`*.${domain}`],
  )
})

test('a control plane that is killed with its record set renews after its next start, and leaves none', {
  skip,
}, async () => {
  const before = await served(`api.${domain}`)
  await renew()
  await until(async () => (await bind.texts(record)).length > 0, { what: 'the record', ...patience })
  await slipway.kill('SIGKILL')
  assert.equal((await namesOf(`api.${domain}`)).serial, before.serial)
  await slipway.start()
  const renewed = async () => (await namesOf(`api.${domain}`)).serial !== before.serial
  await until(renewed, { what: 'the renewed certificate', ...patience })
  await swept()
})

test('a name server that refuses our key leaves the old certificate serving, and the reason is recorded', {
  skip,
}, async () => {
  const before = await served(`api.${domain}`)
  await slipway.kill('SIGKILL')
  const other = Buffer.from('a key that nobody knows there').toString('base64')
  writeFileSync(join(slipway.dataDir, 'slipway.env'), `SLIPWAY_ACME_DNS_TSIG_SECRET=${other}\n`, { mode: 0o600 })
  await slipway.start()
  await renew()
  await until(async () => (await rowOf()).problem !== null, { what: 'the reason', ...patience })
  assert.match((await rowOf()).problem.message, /refuses the credentials/)
  assert.equal((await namesOf(`api.${domain}`)).serial, before.serial)
})
