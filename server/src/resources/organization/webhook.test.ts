import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { Webhook } from 'standardwebhooks'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { startReceiver } from '../../../test/support/peers/receiver.ts'
import { until } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'
import { createDelivery } from '../../webhooks/deliver.ts'
import { enqueueDeploymentEvent } from '../../webhooks/outbox.ts'
import type { DeploymentEventKind } from '../../webhooks/webhooks.ts'

const api = await startApi({ idle: true })
const { call, parts, organizationId, database } = api
const delivery = createDelivery({ ...parts, scheduleSeconds: [0] })
parts.delivery = delivery
await delivery.start()
after(() => delivery.stop())

const base = `/organization/${organizationId}/webhook`
const seed = {
  target_url: 'https://hook.test/in',
  events: ['DEPLOYMENT_STARTED', 'DEPLOYMENT_SUCCEEDED'],
  enabled: true,
}

const create = async (body: object): Promise<Json> => {
  const answer = await call('POST', base, body)
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body
}

const happen = async (kind: DeploymentEventKind): Promise<void> => {
  const { projectId, environmentId } = await newPlace(api)
  const ids = { organizationId, projectId, environmentId, serviceId: newId(), deploymentId: newId() }
  const words = {
    serviceType: 'APPLICATION' as const,
    serviceName: 'api',
    executionId: 'e-1',
    state: 'DEPLOYED',
    reason: null,
  }
  await database.transaction((tx) => enqueueDeploymentEvent(tx, { kind, environmentMode: 'STAGING', ...ids, ...words }))
}

test('a webhook is created as the specification shows, read, changed and deleted', async () => {
  const { signing_secret, ...made } = await create(seed)
  assert.match(signing_secret, /^whsec_/)
  assert.deepEqual(
    [made.kind, made.enabled, made.target_secret_set, made.events],
    ['STANDARD', true, false, seed.events],
  )
  const read = await call('GET', `${base}/${made.id}`)
  assert.deepEqual([read.status, read.body], [200, made])
  assert.ok((await call('GET', base)).body.results.some(({ id }: Json) => id === made.id))

  const edited = await call('PUT', `${base}/${made.id}`, { ...made, enabled: false, target_secret: 'canary-4711' })
  assert.equal(edited.status, 200, JSON.stringify(edited.body))
  assert.deepEqual([edited.body.enabled, edited.body.target_secret_set, edited.body.events], [false, true, seed.events])
  assert.ok(!JSON.stringify([edited.body, (await call('GET', base)).body]).match(/canary|whsec_/))
  const [row] = await database.query<{ text: string }>('select n::text as text from node n where id = $1', [made.id])
  assert.ok(!row!.text.match(/canary|whsec_/))

  assert.equal((await call('DELETE', `${base}/${made.id}`)).status, 204)
  assert.equal((await call('GET', `${base}/${made.id}`)).status, 404)
})

test('many webhooks may be alike, and each takes the words of either vocabulary', async () => {
  const words = ['DEPLOYMENT_FAILED', 'DEPLOYMENT_FAILURE', 'DEPLOYMENT_SUCCESSFUL', 'DEPLOYMENT_CANCELLED']
  const body = { ...seed, kind: 'SLACK', events: words }
  for (const made of [await create(body), await create(body)]) assert.deepEqual(made.events, words)
})

test('a typed client that sends back what it read leaves each event the name it was registered with', async () => {
  const events = ['DEPLOYMENT_FAILED', 'DEPLOYMENT_FAILURE', 'DEPLOYMENT_SUCCEEDED']
  const { id } = await create({ ...seed, events })
  const agent = { 'user-agent': 'Terraform provider 0.50' }
  const { body: read } = await call('GET', `${base}/${id}`, undefined, agent)
  assert.deepEqual(read.events, ['DEPLOYMENT_FAILURE', 'DEPLOYMENT_SUCCESSFUL'])
  const edited = await call('PUT', `${base}/${id}`, { ...read, events: [...read.events, 'DEPLOYMENT_STARTED'] }, agent)
  assert.deepEqual([edited.status, edited.body.events], [200, [...read.events, 'DEPLOYMENT_STARTED']])
  assert.deepEqual((await call('GET', `${base}/${id}`)).body.events, [...events, 'DEPLOYMENT_STARTED'])
})

test('addresses that must not be called are refused when they are set, with the setting that would allow them', async () => {
  const refused: [string, RegExp][] = [
    ['http://10.0.0.1/', /SLIPWAY_OUTBOUND_ALLOW/],
    ['http://169.254.169.254/latest', /SLIPWAY_OUTBOUND_ALLOW/],
    ['http://user:word@hook.test/', /user name/],
    ['ftp://hook.test/', /http:\/\//],
    ['nonsense', /absolute/],
  ]
  const { id } = await create(seed)
  for (const [target_url, why] of refused)
    for (const answer of [
      await call('POST', base, { ...seed, target_url }),
      await call('PUT', `${base}/${id}`, { target_url }),
    ]) {
      assert.equal(answer.status, 400, target_url)
      assert.match(answer.body.message, why)
      assert.doesNotMatch(answer.body.message, /exist|10\.0|169\.254/)
      assert.equal(answer.body.details[0].field, '/target_url')
    }
})

test('bad bodies are 400; Read and Deploy write none, Write deletes none, others see none', async () => {
  for (const body of [
    {},
    { ...seed, events: ['NOPE'] },
    { ...seed, events: [] },
    { ...seed, kind: 'MAIL' },
    { ...seed, enabled: 'yes' },
  ])
    assert.equal((await call('POST', base, body)).status, 400, JSON.stringify(body))
  const { id } = await create(seed)
  const [reader, deployer, writer] = await Promise.all(
    (['Read', 'Deploy', 'Write'] as const).map(async (scope) => api.as(await api.newToken([scope]))),
  )
  assert.deepEqual([(await reader!('POST', base, seed)).status, (await deployer!('GET', base)).status], [403, 403])
  assert.deepEqual(
    [(await writer!('POST', base, seed)).status, (await writer!('DELETE', `${base}/${id}`)).status],
    [201, 403],
  )
  const stranger = await api.newOrganization()
  const other = api.as(stranger.token)
  assert.equal((await other('GET', `${base}/${id}`)).status, 404)
  assert.equal((await other('GET', `/organization/${stranger.id}/webhook/${id}`)).status, 404)
})

test('a delivery verifies with the secret of the creation, is logged, and can be sent again', async (t) => {
  const receiver = await startReceiver()
  t.after(() => receiver.close())
  const made = await create({ ...seed, target_url: receiver.url, events: ['DEPLOYMENT_SUCCEEDED'] })
  receiver.secret = made.signing_secret
  await happen('DEPLOYMENT_SUCCESSFUL')
  await happen('DEPLOYMENT_FAILURE')
  const log = () => call('GET', `${base}/${made.id}/event`).then(({ body }) => body.results as Json[])
  await until(async () => (await log()).length === 1, { what: 'the delivery in the log' })
  assert.equal(receiver.deliveries[0]!.event, 'DEPLOYMENT_SUCCEEDED')
  const [logged] = await log()
  assert.deepEqual(
    [
      logged.kind,
      logged.matched_event,
      logged.target_url_used,
      logged.target_response_status_code,
      logged.target_response_body,
    ],
    ['STANDARD', 'DEPLOYMENT_SUCCEEDED', receiver.url, 200, ''],
  )
  assert.equal(logged.request.body.event_type, 'DEPLOYMENT_SUCCEEDED')
  const writer = api.as(await api.newToken(['Write']))
  assert.equal((await writer('GET', `${base}/${made.id}/event`)).body.results[0].target_response_body, null)

  const again = await call('POST', `${base}/${made.id}/event/${logged.id}/resend`)
  assert.equal(again.status, 202, JSON.stringify(again.body))
  await until(() => receiver.deliveries.length === 2, { what: 'the second delivery' })
  assert.equal(receiver.deliveries[0]!.id, receiver.deliveries[1]!.id)
  assert.equal((await call('POST', `${base}/${made.id}/event/${newId()}/resend`)).status, 404)
  assert.deepEqual(receiver.refused, [])
})

test("the user's own secret signs too", async (t) => {
  const receiver = await startReceiver()
  t.after(() => receiver.close())
  receiver.secret = `whsec_${Buffer.from('a key of the user').toString('base64')}`
  assert.ok(new Webhook(receiver.secret))
  await create({ ...seed, target_url: receiver.url, target_secret: receiver.secret, events: ['DEPLOYMENT_CANCELLED'] })
  await happen('DEPLOYMENT_CANCELLED')
  await until(() => receiver.deliveries.length === 1, { what: 'the delivery' })
})
