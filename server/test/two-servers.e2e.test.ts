/**
 * Two whole control planes on one PostgreSQL: one admin token, and revoked means revoked, whichever server starts when.
 */
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { caller, type Json } from './support/api.ts'
import { testDatabase } from './support/database.ts'
import { prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { until } from './support/until.ts'

const keys = mkdtempSync(join(tmpdir(), 'slipway-keys-'))
const database = await testDatabase()
const plane = (more: Record<string, string> = {}): Promise<Slipway> =>
  prepareSlipway({
    fake: true,
    env: {
      DATABASE_URL: database.connectionString,
      SLIPWAY_MASTER_KEY_FILE: join(keys, 'master'),
      SLIPWAY_ADMIN_TOKEN: '',
      ...more,
    },
  })

const fileOf = ({ dataDir }: Slipway): string => join(dataDir, 'admin-token')
const statusOn = async ({ url }: Slipway, token: string): Promise<number> =>
  (await caller(url, token)('GET', '/organization')).status

const isRefusedOn = (server: Slipway, token: string): Promise<boolean> =>
  until(async () => (await statusOn(server, token)) === 401, { what: 'the token to be refused', timeoutMs: 2000 })

const tokensInSight = (text: string): string[] => text.match(/slip_[0-9A-Za-z]{49}/g) ?? []

const tokenRows = (): Promise<{ revoked: boolean }[]> =>
  database.query('select revoked_at is not null as revoked from api_token where is_operator order by created_at')

/** Revokes a token by itself, on one server. */
const revokeOn = async (server: Slipway, token: string): Promise<void> => {
  const call = caller(server.url, token)
  const { id } = (await call('GET', '/organization')).body
  const { results } = (await call('GET', `/organization/${id}/apiToken`)).body
  const own = results.find(({ prefix }: Json) => token.startsWith(prefix))
  assert.equal((await call('DELETE', `/organization/${id}/apiToken/${own.id}`)).status, 204)
}

const planes: Slipway[] = [await plane(), await plane()]
const [first, second] = planes as [Slipway, Slipway]

after(async () => {
  for (const server of planes) {
    await server.kill('SIGKILL')
    await server.remove().catch((error: Error) => assert.fail(error.message))
  }
  rmSync(keys, { recursive: true, force: true })
})

test('two servers on one database share one admin token; revoked on one it is invalid on both, in whatever order they restart', async () => {
  // Both for the first time, at once: one of them makes the token.
  await Promise.all([first.start(), second.start()])
  const [owner, other] = existsSync(fileOf(first)) ? [first, second] : [second, first]
  const token = readFileSync(fileOf(owner), 'utf8').trim()
  assert.ok(!existsSync(fileOf(other)))
  await until(() => /Admin token/.test(owner.output()) && /Admin token/.test(other.output()), { what: 'both to greet' })
  assert.deepEqual([tokensInSight(owner.output()), tokensInSight(other.output())], [[token], []])
  assert.match(other.output(), new RegExp(`made by \\S*${fileOf(owner)}`))
  for (const server of planes) assert.equal(await statusOn(server, token), 200)
  assert.deepEqual(await tokenRows(), [{ revoked: false }])

  // A revocation at one server counts at the other, also for tokens that the token had made.
  const { id } = (await caller(other.url, token)('GET', '/organization')).body
  const made = (await caller(other.url, token)('POST', `/organization/${id}/apiToken`, { name: 'ci' })).body.token
  for (const server of planes) assert.equal(await statusOn(server, made), 200)
  await revokeOn(other, token)
  for (const server of planes) for (const text of [token, made]) await isRefusedOn(server, text)

  // The one that did not make it, killed and started alone, brings nothing back and makes nothing.
  await Promise.all([owner.kill('SIGKILL'), other.kill('SIGKILL')])
  await other.start()
  for (const text of [token, made]) assert.equal(await statusOn(other, text), 401)
  assert.deepEqual(await tokenRows(), [{ revoked: true }])

  // Its maker makes a new one, and prints its location but not its text.
  await owner.start()
  await until(() => /new: the previous one was revoked/.test(owner.output()), { what: 'the owner to greet' })
  const renewed = readFileSync(fileOf(owner), 'utf8').trim()
  assert.ok(!owner.output().includes(renewed))
  for (const server of planes) {
    assert.deepEqual([await statusOn(server, token), await statusOn(server, made)], [401, 401])
    assert.equal(await statusOn(server, renewed), 200)
  }

  // In either order, by either signal: nothing changes any more.
  const before = await tokenRows()
  for (const order of [
    [owner, other],
    [other, owner],
  ] as [Slipway, Slipway][]) {
    await order[0].kill('SIGKILL')
    await order[1].kill('SIGTERM')
    for (const server of order) await server.start()
    for (const server of order)
      assert.deepEqual(await Promise.all([token, made, renewed].map((text) => statusOn(server, text))), [401, 401, 200])
  }
  assert.deepEqual(await tokenRows(), before)
  assert.deepEqual([...new Set(tokensInSight(owner.output() + other.output()))], [token])
})

test('a server with a revoked SLIPWAY_ADMIN_TOKEN does not start, and says why', async () => {
  const owner = existsSync(fileOf(first)) ? first : second
  const revoked = tokensInSight(owner.output())[0]!
  const third = await plane({ SLIPWAY_ADMIN_TOKEN: revoked })
  await assert.rejects(third.start(), /SLIPWAY_ADMIN_TOKEN was revoked/)
  assert.equal(await statusOn(owner, revoked), 401)
  planes.push(third)
})
