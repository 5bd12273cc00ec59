import assert from 'node:assert/strict'
import { test } from 'node:test'
import { closedValues } from '../../test/support/closed-values.ts'
import {
  createOwner,
  createWebhook,
  database,
  event,
  happen,
  outboxOf,
  receive,
  settledAs,
  start,
} from '../../test/support/peers/webhooks.ts'
import { until } from '../../test/support/until.ts'
import { newId } from '../lib/ids.ts'
import { enqueueBackupEvent, enqueueDeploymentEvent } from './outbox.ts'
import { backupEventKinds } from './webhooks.ts'

const newBackup = async ({ organization: organizationId }: { organization: string }) => {
  const backupId = newId()
  await database.query(
    `insert into backup (id, organization_id, database_id, environment_id, database_name, type, version, name, message,
       origin) values ($1, $2, $3, $3, 'store', 'POSTGRESQL', '16', 'a backup', '', 'REQUEST')`,
    [backupId, organizationId, newId()],
  )
  return { organizationId, backupId }
}

test('each receiver hears only what it asked for, in its own spelling', async (t) => {
  const { seen, url } = await receive(t)
  const owner = await createOwner()
  const foreign = await createWebhook(await createOwner(), url)
  const both = ['DEPLOYMENT_SUCCEEDED', 'DEPLOYMENT_SUCCESSFUL']
  const ours = await createWebhook(owner, url, { events: both })
  const theirs = await createWebhook(owner, url, { events: ['DEPLOYMENT_SUCCESSFUL', 'DEPLOYMENT_CANCELLED'] })
  const silent = [
    { enabled: false, events: both },
    { events: ['DEPLOYMENT_FAILED', 'DEPLOYMENT_STARTED'] },
    { events: both, environment_types_filter: ['PRODUCTION'] },
    { events: both, project_names_filter: ['shop', 'Shop1', 'SHOPx1', 'sho%'] },
  ]
  const quiet = await Promise.all(silent.map((spec) => createWebhook(owner, url, spec)))
  const matching = { events: both, environment_types_filter: ['STAGING'], project_names_filter: ['nope', 'sHoP*'] }
  const filtered = await createWebhook(owner, url, matching)
  const nulls = await createWebhook(owner, url, {
    events: both,
    environment_types_filter: null,
    project_names_filter: null,
  })
  await happen(event(owner, { kind: 'DEPLOYMENT_SUCCESSFUL', serviceType: 'DATABASE' }))
  const words = async (id: string) => (await outboxOf(id)).map((row) => JSON.parse(row.body).event_type)
  assert.deepEqual(await words(ours.id), ['DEPLOYMENT_SUCCEEDED'])
  assert.deepEqual(await words(theirs.id), ['DEPLOYMENT_SUCCESSFUL'])
  for (const { id } of [filtered, nulls]) assert.equal((await words(id)).length, 1)
  for (const { id } of [foreign, ...quiet]) assert.deepEqual(await words(id), [])
  await start(t)
  await settledAs(theirs.id, 'DELIVERED')
  await until(() => seen.length === 4, { what: 'four deliveries' })
  assert.equal(seen[0]!.body.payload.application_id, undefined)
})

test('each word for an event and each mode of a filter is heard, and nothing else by it', async () => {
  const url = 'http://127.0.0.1:9/'
  const [first, second] = [await createOwner(), await createOwner()]
  const modes = closedValues('createOrganizationWebhook', '/environment_types_filter')
  const byWord = new Map<string, string>()
  for (const word of closedValues('createOrganizationWebhook', '/events'))
    byWord.set(word, (await createWebhook(first, url, { events: [word] })).id)
  const byMode = new Map<string, string>()
  for (const mode of modes)
    byMode.set(mode, (await createWebhook(second, url, { environment_types_filter: [mode] })).id)
  const kinds = ['DEPLOYMENT_STARTED', 'DEPLOYMENT_SUCCESSFUL', 'DEPLOYMENT_FAILURE', 'DEPLOYMENT_CANCELLED'] as const
  for (const kind of kinds) await happen(event(first, { kind }))
  const { organizationId, backupId } = await newBackup(first)
  for (const kind of backupEventKinds)
    await database.transaction((tx) =>
      enqueueBackupEvent(tx, { kind, organizationId, databaseId: newId(), backupId, restoreId: null, reason: null }),
    )
  for (const environmentMode of modes)
    await happen(event(second, { environmentMode: environmentMode as 'STAGING', serviceName: environmentMode }))
  for (const [word, id] of byWord)
    assert.deepEqual(
      (await outboxOf(id)).map((row) => JSON.parse(row.body).event_type),
      [word],
    )
  for (const [mode, id] of byMode)
    assert.deepEqual(
      (await outboxOf(id)).map((row) => JSON.parse(row.body).payload.service_name),
      [mode],
    )
})

test('an event of a transaction that is rolled back is never sent', async () => {
  const owner = await createOwner()
  const { id } = await createWebhook(owner, 'http://127.0.0.1:1/')
  const failing = database.transaction(async (tx) => {
    await enqueueDeploymentEvent(tx, event(owner))
    throw new Error('rolled back')
  })
  await assert.rejects(failing, /rolled back/)
  assert.deepEqual(await outboxOf(id), [])
})
