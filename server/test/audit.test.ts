/**
 * The audit log misses nothing: every operation that changes something, or shows a secret, leaves exactly one event of
 * its caller, and the following actions of the server have their own events.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Operation } from '../src/api/operations/operation.ts'
import { stateWords } from '../src/deployments/status/audit.ts'
import { newId } from '../src/lib/ids.ts'
import { operations } from '../src/resources/index.ts'
import { containerBody, newRegistry } from './cases/container.ts'
import { type Json, newApplication, newPlace, startApi } from './support/api.ts'
import { addressOf, caseOf, newScene, valuesFor } from './support/scene.ts'
import { until } from './support/until.ts'

const api = await startApi()

/** Reads that show a secret. */
const revealing = [
  'getDatabaseMasterCredentials',
  'getClusterKubeconfig',
  'exportEnvironmentConfigurationIntoTerraform',
]

/** Operations with more or fewer events than one, and why. */
const exceptions: Record<string, { events: number; why: string }> = {
  createOrganization: { events: 2, why: 'the organization, and the cluster that it gets' },
  autoDeployContainerEnvironments: { events: 2, why: 'the new tag of each service, and the deployment' },
  autoDeployJobEnvironments: { events: 2, why: 'the new tag of each service, and the deployment' },
  checkArgoCdConnection: { events: 0, why: 'asks another server and changes nothing' },
  checkBackupStorage: { events: 0, why: 'tries a storage and changes nothing' },
  checkContainerImage: { events: 0, why: 'asks a registry and changes nothing' },
  listTfVarsFilesFromGitRepo: { events: 0, why: 'reads, with a body that says what' },
  parseTerraformVariablesFromGitRepo: { events: 0, why: 'reads, with a body that says what' },
  inspectRepository: { events: 0, why: 'reads, with a body that says what' },
  listDirectoriesFromGitRepository: { events: 0, why: 'reads, with a body that says what' },
  createUserSignUp: { events: 0, why: 'stores nothing' },
  editOrganizationBillingInfo: { events: 0, why: 'stores nothing' },
  deployCluster: { events: 0, why: 'there is nothing to do on the local cluster' },
  upgradeCluster: { events: 0, why: 'there is nothing to do on the local cluster' },
}

const isWatched = ({ id, method }: Operation): boolean => method !== 'GET' || revealing.includes(id)

for (const operation of operations.filter(isWatched)) {
  const plan = caseOf(operation)
  if (plan.refused !== undefined) continue
  const { events = 1, why = '' } = exceptions[operation.id] ?? {}
  test(`${operation.id} leaves ${events} events${why === '' ? '' : `: ${why}`}`, async () => {
    const scene = newScene(api)
    const values = await valuesFor(operation, scene)
    const path = addressOf(operation.path, values, plan.query?.(values))
    const requestId = newId()
    const sent = { 'x-request-id': requestId }
    try {
      const answer = await api.call(operation.method, path, plan.body?.(values, scene), sent)
      assert.ok(answer.status < 300, JSON.stringify(answer.body))
      const rows = await api.database.query(
        `select event_type, target_type, sub_target_type, actor_type, actor_id, target_id from event
         where request_id = $1 and not (actor_type = 'SYSTEM' and event_type = any($2))`,
        [requestId, stateWords],
      )
      assert.equal(rows.length, events, JSON.stringify(rows))
      for (const row of rows) assert.deepEqual([row.actor_type, typeof row.actor_id], ['API_TOKEN', 'string'])
    } finally {
      await plan.after?.(values, scene)
    }
  })
}

const eventsOf = async (query: string): Promise<Json[]> => {
  const answer = await api.call('GET', `/organization/${api.organizationId}/events?pageSize=100&${query}`)
  assert.equal(answer.status, 200, JSON.stringify(answer.body))
  return answer.body.events
}

const wordsIn = (events: readonly Json[]): string[] =>
  events.map(({ event_type: type, target_type: target }) => `${type} ${target}`)

test('a request for an environment is recorded when it is queued and when it ends, for each of its services', async () => {
  const { environmentId } = await newPlace(api)
  const service = await newApplication(api, environmentId, { name: 'told' })
  const path = `/environment/${environmentId}`
  const told = async () => wordsIn(await eventsOf(`serviceEnvironmentId=${environmentId}`))
  const known = (await told()).length
  const act = async (method: string, at: string, words: string[]) => {
    const before = (await told()).length
    const answer = await api.call(method, at)
    assert.ok(answer.status < 300, JSON.stringify(answer.body))
    await until(async () => (await told()).length === before + words.length, { what: words.join(', ') })
    assert.deepEqual((await told()).slice(0, words.length).toReversed(), words)
  }
  const whole = (asked: string, queued: string, done: string) => [
    ...[`${asked} ENVIRONMENT`, `${queued} ENVIRONMENT`, `${queued} APPLICATION`],
    ...[`${done} APPLICATION`, `${done} ENVIRONMENT`],
  ]
  const single = (asked: string, queued: string, done: string) =>
    [asked, queued, done].map((word) => `${word} APPLICATION`)
  await act('POST', `${path}/deploy`, whole('TRIGGER_DEPLOY', 'DEPLOY_QUEUED', 'DEPLOYED'))
  await act('POST', `/application/${service.id}/redeploy`, single('TRIGGER_REDEPLOY', 'DEPLOY_QUEUED', 'DEPLOYED'))
  await act(
    'POST',
    `/application/${service.id}/restart-service`,
    single('TRIGGER_RESTART', 'RESTART_QUEUED', 'RESTARTED'),
  )
  await act('POST', `${path}/stop`, whole('TRIGGER_STOP', 'STOP_QUEUED', 'STOPPED'))
  await act('DELETE', `/application/${service.id}`, single('TRIGGER_DELETE', 'DELETE_QUEUED', 'DELETED'))
  await newApplication(api, environmentId, { name: 'never deployed' })
  const [fresh] = await eventsOf(`serviceEnvironmentId=${environmentId}`)
  await act(
    'DELETE',
    `/application/${fresh!.target_id}`,
    ['DELETED APPLICATION', 'TRIGGER_DELETE APPLICATION'].toReversed(),
  )
  assert.ok(known > 0)
  const [stopped] = await eventsOf(`targetId=${environmentId}&eventType=STOPPED`)
  const [asked] = await eventsOf(`targetId=${environmentId}&eventType=TRIGGER_STOP`)
  assert.deepEqual([stopped!.actor_type, asked!.actor_type], ['SYSTEM', 'API_TOKEN'])
  for (const field of ['change', 'triggered_by', 'origin', 'project_id', 'environment_id', 'target_name'])
    assert.deepEqual(stopped![field], asked![field], field)
})

test('a failed deployment is recorded with its reason', async () => {
  const { environmentId } = await newPlace(api)
  const body = containerBody(await newRegistry(api), { name: 'crashes', image_name: 'fake/crash' })
  const { id } = (await api.call('POST', `/environment/${environmentId}/container`, body)).body
  await api.call('POST', `/container/${id}/deploy`)
  const failures = () => eventsOf(`targetId=${id}&eventType=DEPLOY_FAILED`)
  await until(async () => (await failures()).length > 0, { what: 'the failure', timeoutMs: 20_000 })
  const [failed] = await failures()
  assert.match(JSON.parse(failed!.change).error.message, /./)
})

test('an edit is recorded with the old values, a delete with the old record; neither has secrets', async () => {
  const { environmentId } = await newPlace(api)
  const { id, name } = await newApplication(api, environmentId)
  await api.call('PUT', `/application/${id}`, { cpu: 333 })
  await api.call('PUT', `/application/${id}/advancedSettings`, { 'build.timeout_max_sec': 77 })
  const [settings, edit] = await eventsOf(`targetId=${id}&eventType=UPDATE`)
  assert.deepEqual([JSON.parse(edit!.change), JSON.parse(edit!.original_change)], [{ cpu: 333 }, { cpu: 500 }])
  assert.equal(JSON.parse(settings!.original_change).advanced_settings['build.timeout_max_sec'], undefined)
  const hook = { kind: 'STANDARD', target_url: 'http://127.0.0.1:9/', events: ['DEPLOYMENT_STARTED'] }
  const sent = { ...hook, target_secret: 'first-secret-of-a-hook' }
  const webhook = (await api.call('POST', `/organization/${api.organizationId}/webhook`, sent)).body
  const at = `/organization/${api.organizationId}/webhook/${webhook.id}`
  await api.call('PUT', at, { ...sent, target_secret: 'second-secret-of-a-hook', description: 'new' })
  await api.call('DELETE', at)
  const events = await eventsOf(`targetId=${webhook.id}`)
  assert.deepEqual(wordsIn(events), ['DELETE WEBHOOK', 'UPDATE WEBHOOK', 'CREATE WEBHOOK'])
  assert.equal(JSON.parse(events[0]!.original_change).description, 'new')
  assert.equal(events[2]!.original_change, null)
  assert.equal(JSON.stringify(events).includes('secret-of-a-hook'), false)
  const services = await eventsOf(`targetId=${id}&eventType=CREATE`)
  assert.deepEqual([services[0]!.target_name, services[0]!.original_change], [name, null])
})
