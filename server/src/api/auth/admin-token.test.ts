import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { type Json, startApi, type TestApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { Secret } from '../../lib/secret.ts'
import { type AdminToken, ensureAdminToken } from './admin-token.ts'
import { newTokenText } from './auth.ts'

/** An installation before its first start. */
const newInstallation = async (): Promise<TestApi> => {
  const api = await startApi({ idle: true })
  await api.database.query('delete from api_token')
  return api
}

const newFolder = (): string => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-admin-'))
  after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** A start of the server of a data directory. */
const start = (api: TestApi, dataDir: string, given?: string): Promise<AdminToken> => {
  const settings = { ...api.parts.settings, dataDir, adminToken: given === undefined ? undefined : new Secret(given) }
  return ensureAdminToken({ ...api.parts, settings }, api.organizationId)
}

const fileIn = (dataDir: string): string => join(dataDir, 'admin-token')
const textIn = (dataDir: string): string => readFileSync(fileIn(dataDir), 'utf8').trim()

const works = async (api: TestApi, token: string): Promise<boolean> =>
  (await api.as(token)('GET', '/organization')).status === 200

const isRefused = (api: TestApi, token: string): Promise<boolean> =>
  until(async () => !(await works(api, token)), { what: 'the token to be refused', timeoutMs: 2000 })

/** Revokes a token by itself. */
const revoke = async (api: TestApi, token: string): Promise<void> => {
  const tokens = `/organization/${api.organizationId}/apiToken`
  const { results } = (await api.as(token)('GET', tokens)).body
  const own = results.find(({ prefix }: Json) => token.startsWith(prefix))
  assert.equal((await api.as(token)('DELETE', `${tokens}/${own.id}`)).status, 204)
  await isRefused(api, token)
}

interface AuditRow {
  event_type: string
  target_name: string
  triggered_by: string
  actor_type: string
}

const auditRowsOf = (api: TestApi): Promise<AuditRow[]> =>
  api.database.query<AuditRow & object>(
    `select event_type, target_name, triggered_by, actor_type from event where sub_target_type = 'API_TOKEN'
       and event_type <> 'POLICY_FAILED' order by created_at, id`,
  )

test('the first start makes a token that only its owner can read, and later starts take the same', async () => {
  const api = await newInstallation()
  const dataDir = newFolder()
  const first = await start(api, dataDir)
  assert.deepEqual([first.source, first.text], ['made', textIn(dataDir)])
  assert.equal(statSync(fileIn(dataDir)).mode & 0o777, 0o600)
  assert.ok(await works(api, first.text!))
  const again = await start(api, dataDir)
  assert.deepEqual([again.source, again.text], ['kept', first.text])
  assert.deepEqual(await auditRowsOf(api), [
    { event_type: 'CREATE', target_name: 'admin token', triggered_by: 'admin token', actor_type: 'OPERATOR' },
  ])
})

test('a revoked token of the first start stays revoked; the next start makes another one and prints it', async () => {
  const api = await newInstallation()
  const dataDir = newFolder()
  const { text: first } = await start(api, dataDir)
  await revoke(api, first!)
  const second = await start(api, dataDir)
  assert.deepEqual([second.source, second.text === first, textIn(dataDir)], ['renewed', false, second.text])
  assert.deepEqual([await works(api, first!), await works(api, second.text!)], [false, true])
  for (let n = 0; n < 2; n += 1) assert.equal((await start(api, dataDir)).source, 'kept')
  assert.equal(await works(api, first!), false)
  assert.deepEqual(
    (await auditRowsOf(api)).map(({ event_type, actor_type }) => [event_type, actor_type]),
    [
      ['CREATE', 'OPERATOR'],
      ['DELETE', 'API_TOKEN'],
      ['CREATE', 'OPERATOR'],
    ],
  )
})

test('a revoked SLIPWAY_ADMIN_TOKEN ends the start with a sentence, and makes nothing', async () => {
  const api = await newInstallation()
  const given = newTokenText()
  assert.equal((await start(api, newFolder(), given)).source, 'given')
  await revoke(api, given)
  const before = await auditRowsOf(api)
  for (const dataDir of [newFolder(), newFolder()])
    await assert.rejects(start(api, dataDir, given), /SLIPWAY_ADMIN_TOKEN was revoked/)
  assert.equal(await works(api, given), false)
  assert.deepEqual(await auditRowsOf(api), before)
})

test('SLIPWAY_ADMIN_TOKEN takes the place of the token of the first start, which opens nothing from then on', async () => {
  const api = await newInstallation()
  const dataDir = newFolder()
  const { text: first } = await start(api, dataDir)
  const tokens = `/organization/${api.organizationId}/apiToken`
  const ci = (await api.as(first)('POST', tokens, { name: 'ci' })).body.token
  const given = newTokenText()
  await start(api, dataDir, given)
  await isRefused(api, first!)
  assert.deepEqual([await works(api, given), existsSync(fileIn(dataDir))], [true, false])
  assert.deepEqual((await auditRowsOf(api)).slice(-2), [
    {
      event_type: 'CREATE',
      target_name: 'SLIPWAY_ADMIN_TOKEN',
      triggered_by: 'SLIPWAY_ADMIN_TOKEN',
      actor_type: 'OPERATOR',
    },
    { event_type: 'DELETE', target_name: 'admin token', triggered_by: 'SLIPWAY_ADMIN_TOKEN', actor_type: 'OPERATOR' },
  ])
  // Tokens that the first one had created are not revoked; they belong to its heir.
  assert.ok(await works(api, ci))
  assert.deepEqual(await start(api, dataDir).then(({ source, text }) => [source, text]), ['given', null])
  await revoke(api, given)
  await isRefused(api, ci)
})

test('servers of one database that start for the first time at once make one token', async () => {
  const api = await newInstallation()
  const folders = Array.from({ length: 6 }, newFolder)
  const found = await Promise.all(folders.map((dataDir) => start(api, dataDir)))
  const made = found.filter(({ source }) => source === 'made')
  assert.equal(made.length, 1)
  assert.deepEqual(
    found.filter(({ source, text }) => source === 'elsewhere' && text === null).length,
    folders.length - 1,
  )
  assert.equal(folders.filter((dataDir) => existsSync(fileIn(dataDir))).length, 1)
  assert.equal((await api.database.query('select 1 from api_token')).length, 1)
})

test('a second data directory makes and revokes nothing by starting, whatever has become of the token', async () => {
  const api = await newInstallation()
  const [owner, other] = [newFolder(), newFolder()]
  const { text } = await start(api, owner)
  const tokens = () => api.database.query('select id, revoked_at from api_token order by id')
  for (const change of [async () => {}, () => revoke(api, text!)]) {
    await change()
    const before = await tokens()
    const found = await start(api, other)
    assert.deepEqual([found.source, found.text], ['elsewhere', null])
    assert.ok(found.madeAt?.endsWith(fileIn(owner)), String(found.madeAt))
    assert.deepEqual(await tokens(), before)
    assert.ok(!existsSync(fileIn(other)))
  }
  const renewed = await start(api, owner)
  assert.equal(renewed.source, 'renewed')
  assert.equal((await start(api, other)).source, 'elsewhere')
  assert.ok(await works(api, renewed.text!))
})

test('the owner who loses the file gets another token, and the lost one opens nothing any more', async () => {
  const api = await newInstallation()
  const dataDir = newFolder()
  const { text: lost } = await start(api, dataDir)
  rmSync(fileIn(dataDir))
  const { text, source } = await start(api, dataDir)
  assert.equal(source, 'renewed')
  await isRefused(api, lost!)
  assert.ok(await works(api, text!))
})

test('a data directory of an earlier version keeps its token, and is not mistaken for a stranger', async () => {
  const api = await newInstallation()
  const dataDir = newFolder()
  const { text } = await start(api, dataDir)
  await api.database.query(`delete from installation where name = 'admin_token'`)
  assert.equal((await start(api, newFolder())).source, 'elsewhere')
  assert.deepEqual(await start(api, dataDir).then(({ source, text: kept }) => [source, kept]), ['kept', text])
  await revoke(api, text!)
  assert.equal((await start(api, dataDir)).source, 'renewed')
})

test('a start that was killed between the file and the database is repeated by the next one', async () => {
  const api = await newInstallation()
  const dataDir = newFolder()
  const { text: first } = await start(api, dataDir)
  await revoke(api, first!)
  const written = newTokenText()
  writeFileSync(fileIn(dataDir), `${written}\n`)
  const { source, text } = await start(api, dataDir)
  assert.deepEqual([source, text], ['renewed', written])
  assert.deepEqual([await works(api, written), await works(api, first!)], [true, false])
})
