/** What clients see of backups; programs are simulated here, and real ones are in test/database-backups.e2e.test.ts. */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'

const api = await startApi()
const { call, organizationId } = api

const newDatabase = async (more: object = {}): Promise<{ id: string; environmentId: string }> => {
  const { environmentId } = await newPlace(api)
  const body = { name: 'shop', type: 'POSTGRESQL', version: '16', mode: 'CONTAINER', ...more }
  const made = await call('POST', `/environment/${environmentId}/database`, body)
  assert.equal(made.status, 201, JSON.stringify(made.body))
  return { id: made.body.id, environmentId }
}

const deploy = async (id: string): Promise<void> => {
  assert.equal((await call('POST', `/database/${id}/deploy`, {})).status, 202)
  await until(async () => (await call('GET', `/database/${id}/status`)).body.state === 'DEPLOYED', {
    what: 'the deploy',
  })
}

const ended = (path: string): Promise<Json> =>
  until(
    async () => {
      const { body } = await call('GET', path)
      return ['QUEUED', 'RUNNING', 'VERIFYING'].includes(body.state) ? null : body
    },
    { what: path },
  )

const backUp = async (id: string, body: object = {}): Promise<Json> => {
  const made = await call('POST', `/database/${id}/backup`, body)
  assert.equal(made.status, 201, JSON.stringify(made.body))
  return ended(`/database/${id}/backup/${made.body.id}`)
}

const restore = (id: string, body: object) => call('POST', `/database/${id}/restore`, body)

test('a backup has the name and message of its request, and is listed in pages, newest first', async () => {
  const { id } = await newDatabase()
  const path = `/database/${id}/backup`
  assert.equal((await call('POST', path, {})).body.code, 'not_deployed')
  await deploy(id)
  const first = await backUp(id, { name: 'before the sale', message: 'asked for by Ann' })
  assert.deepEqual(
    [first.name, first.message, first.state, first.origin, first.row_count, first.database_exists],
    ['before the sale', 'asked for by Ann', 'VERIFIED', 'REQUEST', 1, true],
  )
  const second = await backUp(id)
  assert.match(second.name, /^\d{4}-/)
  const page = await call('GET', `${path}?pageSize=1`)
  assert.deepEqual(page.body.results, [second])
  assert.deepEqual((await call('GET', `${path}?pageSize=1&startId=${second.id}`)).body.results, [first])
})

test('only databases in the mode CONTAINER whose type has tools are backed up', async () => {
  const { id } = await newDatabase({ type: 'MONGODB', version: '7' })
  await deploy(id)
  const answer = await call('POST', `/database/${id}/backup`, {})
  assert.deepEqual([answer.status, /MONGODB/.test(answer.body.message)], [400, true])
})

test('the backups of a deleted database stay until they are deleted, with their files', async () => {
  const { id, environmentId } = await newDatabase()
  await deploy(id)
  const backup = await backUp(id)
  await call('DELETE', `/database/${id}`)
  await until(async () => (await call('GET', `/database/${id}`)).status === 404, { what: 'the deletion' })
  await call('DELETE', `/environment/${environmentId}`)
  const path = `/organization/${organizationId}/databaseBackup`
  const listed = (await call('GET', path)).body.results.find((each: Json) => each.id === backup.id)
  assert.equal(listed.database_exists, false)
  const folder = join(api.parts.settings.dataDir, 'backups', organizationId, 'backups', 'databases', id)
  assert.equal(readdirSync(folder).length, 1)

  const other = await newDatabase()
  await deploy(other.id)
  const asked = await restore(other.id, { backup_id: backup.id })
  assert.equal((await ended(`/database/${other.id}/restore/${asked.body.id}`)).state, 'SUCCEEDED')

  assert.equal((await call('DELETE', `${path}/${backup.id}`)).status, 204)
  assert.equal((await call('DELETE', `${path}/${backup.id}`)).status, 404)
  await until(async () => !existsSync(folder), { what: 'the removal of the files' })
})

test('a restored copy that makes a backup anew leaves the file that the first server made of it', async () => {
  const { id } = await newDatabase()
  await deploy(id)
  const backup = await backUp(id)
  const folder = join(api.parts.settings.dataDir, 'backups', organizationId, 'backups', 'databases', id)
  const [theirs, ours] = [`${backup.id}.0123abcd.7`, `${backup.id}.test.0`]
  for (const name of [theirs, ours]) writeFileSync(join(folder, name), 'x')
  await api.database.query(`update backup set state = 'QUEUED', due_at = clock_timestamp() where id = $1`, [backup.id])
  await api.database.query(`select pg_notify('slipway_backup', '')`)
  assert.equal((await ended(`/database/${id}/backup/${backup.id}`)).state, 'VERIFIED')
  const names = readdirSync(folder)
  assert.deepEqual([names.length, names.includes(theirs), names.includes(ours)], [2, true, false])
})

test('a backup is kept in the storage that its request names, which is not deleted meanwhile', async () => {
  const storages = `/organization/${organizationId}/backupStorage`
  const { id: storageId } = (await call('POST', storages, { name: 'disk', kind: 'FOLDER', folder: 'disk' })).body
  const { id } = await newDatabase()
  await deploy(id)
  const path = `/database/${id}/backup`
  for (const [where, body] of [
    [path, {}],
    [`/database/${id}/backupSchedule`, { scheduled_at: '0 3 * * *' }],
  ] as const)
    assert.equal(
      (await call(where === path ? 'POST' : 'PUT', where, { ...body, storage_id: id })).body.details[0].field,
      '/storage_id',
    )
  const backup = await backUp(id, { storage_id: storageId })
  assert.deepEqual([backup.state, backup.storage_id], ['VERIFIED', storageId])
  const folder = join(api.parts.settings.dataDir, 'backups', organizationId, 'disk', 'databases', id)
  assert.equal(readdirSync(folder).length, 1)
  assert.equal((await call('DELETE', `${storages}/${storageId}`)).status, 409)
  const restored = await restore(id, { backup_id: backup.id, confirm: true })
  assert.equal((await ended(`/database/${id}/restore/${restored.body.id}`)).state, 'SUCCEEDED')
  await call('DELETE', `${path}/${backup.id}`)
  await until(async () => (await call('DELETE', `${storages}/${storageId}`)).status === 204, {
    what: 'the last use to end',
  })
})

test('a backup is restored only within its organization and into its type, one restore at a time', async () => {
  const [source, target] = [await newDatabase(), await newDatabase({ type: 'REDIS', version: '7' })]
  await deploy(source.id)
  const backup = await backUp(source.id)
  assert.equal((await restore(target.id, { backup_id: backup.id })).body.details[0].field, '/backup_id')
  assert.equal((await restore(source.id, { backup_id: newId() })).body.details[0].field, '/backup_id')
  const stranger = await api.newOrganization()
  const as = api.as(stranger.token)
  for (const path of [`/database/${source.id}/backup`, `/database/${source.id}/backup/${backup.id}/download`])
    assert.equal((await as('GET', path)).status, 404)
  assert.deepEqual((await as('GET', `/organization/${stranger.id}/databaseBackup`)).body.results, [])
  assert.equal((await as('DELETE', `/organization/${stranger.id}/databaseBackup/${backup.id}`)).status, 404)

  const waiting = await newDatabase()
  const first = await restore(waiting.id, { backup_id: backup.id })
  assert.deepEqual([first.status, first.body.state], [202, 'QUEUED'])
  assert.equal((await restore(waiting.id, { backup_id: backup.id })).body.code, 'restore_in_progress')
  await deploy(waiting.id)
  assert.equal((await ended(`/database/${waiting.id}/restore/${first.body.id}`)).state, 'SUCCEEDED')
  assert.equal((await call('GET', `/database/${waiting.id}/restore`)).body.results.length, 1)
})

test('what a database has is replaced only with a confirmation', async () => {
  const { id } = await newDatabase()
  await deploy(id)
  const backup = await backUp(id)
  const path = `/database/${id}/restore`
  const refused = await ended(`${path}/${(await restore(id, { backup_id: backup.id })).body.id}`)
  assert.deepEqual([refused.state, /confirm/.test(refused.reason)], ['FAILED', true])
  const done = await ended(`${path}/${(await restore(id, { backup_id: backup.id, confirm: true })).body.id}`)
  assert.deepEqual([done.state, done.reason], ['SUCCEEDED', null])
})

test('a schedule makes backups at its times, a missed one once, and keeps those that it says', async () => {
  const { id } = await newDatabase()
  await deploy(id)
  const path = `/database/${id}/backupSchedule`
  assert.deepEqual([(await call('GET', path)).body.enabled, (await call('GET', path)).body.next_at], [false, null])
  for (const [body, field] of [
    [{ scheduled_at: 'at noon' }, '/scheduled_at'],
    [{ scheduled_at: '0 3 * * *', timezone: 'Mars/Base' }, '/timezone'],
  ] as const)
    assert.equal((await call('PUT', path, body)).body.details[0].field, field)
  const keep = { keep_last: 2, keep_daily: 0, keep_weekly: 0, keep_monthly: 0 }
  const set = await call('PUT', path, { scheduled_at: '0 0 1 1 *', timezone: 'Europe/Paris', ...keep })
  assert.match(set.body.next_at, /-12-31T23:00:00/)
  const hand = await backUp(id)
  const listed = async () => (await call('GET', `/database/${id}/backup`)).body.results as Json[]
  const scheduled = async () => (await listed()).filter(({ origin }) => origin === 'SCHEDULE')
  const seen: string[] = []
  for (let index = 0; index < 3; index++) {
    // No server ran for three of its times.
    await api.database.query(`update backup_schedule set next_at = now() - interval '3 years' where database_id = $1`, [
      id,
    ])
    await call('PUT', path, { scheduled_at: '0 0 1 1 *', timezone: 'Europe/Paris', ...keep })
    const [fresh] = await until(
      async () => {
        const news = (await scheduled()).filter((each) => !seen.includes(each.id) && each.state === 'VERIFIED')
        return news.length > 0 ? news : null
      },
      { what: 'the backup of the schedule' },
    )
    seen.push(fresh!.id)
  }
  await call('PUT', path, { scheduled_at: '0 0 1 1 *', timezone: 'Europe/Paris', ...keep })
  await until(async () => (await scheduled()).length === 2, { what: 'the oldest one to go' })
  assert.deepEqual((await listed()).map((each) => each.id).sort(), [hand.id, ...seen.slice(1)].sort())
  const metrics = (await call('GET', '/metrics')).body as string
  assert.match(metrics, /slipway_backups\{state="VERIFIED"\} \d/)
  assert.match(metrics, /slipway_backup_schedules_failing 0/)
  await api.database.query(`update backup set state = 'FAILED' where id = $1`, [seen.at(-1)])
  await until(async () => /slipway_backup_schedules_failing 1/.test((await call('GET', '/metrics')).body), {
    what: 'the metric of the failing schedule',
  })
  await call('PUT', path, { enabled: false, scheduled_at: '0 0 1 1 *' })
  assert.equal((await call('GET', path)).body.next_at, null)
})
