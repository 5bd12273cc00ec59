import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startApi } from '../../test/support/api.ts'
import { standIn } from '../../test/support/stand-in.ts'
import { createDoctor, type DoctorParts } from '../doctor/doctor.ts'
import type { Finding } from '../lib/finding.ts'
import { noteDate } from '../lib/net/seen-clocks.ts'
import { operations } from '../resources/index.ts'
import { createApi } from './server.ts'

const api = await startApi()
const { database, parts } = api

const fullDisk: DoctorParts['diskReader'] = {
  roomOf: async () => ({ bavail: 1, bsize: 4096, files: 100, ffree: 90 }),
  diskOf: async () => 1,
}

const settings = {
  ...{ dataDir: parts.settings.dataDir, databaseUrl: undefined, diskReserveMb: 2048, memoryOvercommit: 0 },
  ...{ host: '127.0.0.1', port: Number(new URL(api.url).port), routerHost: '127.0.0.1', routerPort: 1 },
  ...{ routerTlsPort: undefined, portRange: { first: 30_000, last: 32_767 }, domain: undefined, apiHost: undefined },
  ownBackups: { to: undefined },
}

let looks = 0
const doctorParts: DoctorParts = {
  ...parts,
  settings,
  router: api.router,
  engine: async () => {
    looks += 1
    throw new Error('the engine is a secret')
  },
  engineRoot: async () => undefined,
  diskReader: fullDisk,
}

const app = await createApi({ ...parts, doctor: createDoctor(doctorParts) }, operations)

const get = async (url: string, headers: Record<string, string> = {}) => {
  const answer = await app.inject({ url, headers })
  return { status: answer.statusCode, body: answer.json() }
}

test('the operator gets the findings, others the plain answer or a refusal without any detail', async (t) => {
  t.after(() => app.close())
  const plain = { status: 'ready', database: true }
  const operator = { authorization: `Token ${api.token}` }
  assert.deepEqual(await get('/readyz', operator), { status: 200, body: plain })
  assert.deepEqual(await get('/readyz?verbose'), { status: 200, body: plain })
  assert.equal(looks, 0)
  const other = await api.newOrganization()
  for (const [token, status] of [
    [other.token, 403],
    [await api.newToken(['Read']), 403],
    [await api.newToken(['Admin']), 403],
    ['slip_unknown', 401],
  ] as const) {
    const refused = await get('/readyz?verbose', { authorization: `Token ${token}` })
    assert.equal(refused.status, status)
    assert.equal(refused.body.findings, undefined)
  }
  assert.equal(looks, 0)
  const { status, body } = await get('/readyz?verbose', operator)
  assert.deepEqual([status, body.status, body.database], [200, 'ready', true])
  const findings = body.findings as Finding[]
  const byId = Object.fromEntries(findings.map((each) => [each.id, each]))
  assert.equal(byId.disks!.state, 'FAILED')
  assert.match(byId.disks!.message, /The disk of the data directory .* is full/)
  assert.equal(byId.database!.state, 'OK', byId.database!.message)
  assert.equal(byId.router!.state, 'FAILED')
  assert.match(byId.ports!.message, /127\.0\.0\.1:1, where the router should listen/)
  // A check that fails is reported without its error, and delays no other.
  assert.equal(byId.engine!.message, 'This could not be checked.')
  assert.equal(findings.length, 14)
  await get('/readyz?verbose', operator)
  assert.equal(looks, 1)
})

test('a check that hangs is reported after its deadline', async () => {
  const clock = standIn<DoctorParts['clock']>({ ...parts.clock, sleep: async () => {} })
  const doctor = createDoctor({ ...doctorParts, clock, engine: () => new Promise(() => {}) })
  const engine = (await doctor.look()).find(({ id }) => id === 'engine')!
  assert.deepEqual([engine.state, engine.message], ['WARNING', 'This could not be checked within 10 s.'])
})

test('domains of all organizations, servers and certificates are read from the database', async () => {
  const host = 'missing.example'
  await database.query(
    `insert into certificate (host, problem) values ($1, '{"code": "dns", "message": "It has no address."}')`,
    [host],
  )
  await database.query(`insert into server (id, lease_until) values ('lost', now() - interval '1 minute')`)
  noteDate('registry.test', new Date(Date.now() - 900_000).toUTCString())
  const doctor = createDoctor({
    ...doctorParts,
    settings: { ...settings, databaseUrl: 'postgresql://somewhere', routerTlsPort: 2, domain: 'apps.example' },
    engine: async () => ({ kind: 'fake', info: null, address: '' }),
    outbound: { addressesOf: async () => ['192.0.2.1'] },
  })
  const byId = Object.fromEntries((await doctor.look()).map((each) => [each.id, each]))
  assert.match(byId.certificates!.message, /for missing\.example\. The reason for the first: It has no address\./)
  assert.match(byId.servers!.message, /A server stopped answering/)
  assert.match(byId.names!.message, /Another machine has the address of slipway-doctor\.apps\.example/)
  assert.match(byId.clock!.message, /900 s ahead of that of a registry|90\d s ahead of that of a registry/)
  assert.equal(byId.engine!.state, 'SKIPPED')
})
