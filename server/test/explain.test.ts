/**
 * No request reads a whole table that grows: the statements of real requests are explained, with their values, over
 * some ten thousand rows in every such table. A table that is read completely is a bug, or listed below with the
 * reason.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import type { Operation } from '../src/api/operations/operation.ts'
import { operations } from '../src/resources/index.ts'
import { claim } from '../src/work/queue.ts'
import type { Values } from './cases/case.ts'
import { newApplication, newPlace, startApi } from './support/api.ts'
import { fillTables } from './support/crowd.ts'
import { openExplainer, type Statement, tapDatabase } from './support/plans.ts'
import { addressOf, caseOf, newScene, valuesFor } from './support/scene.ts'
import { hearEvents, hearSocket } from './support/streams.ts'
import { until } from './support/until.ts'

const api = await startApi()
const { database } = api
const explainer = await openExplainer(database.connectionString)
after(() => explainer.close())

/** Statements that may read a table completely, identified by a part of them, with the reason. */
const exceptions: readonly (readonly [words: string, reason: string])[] = [
  ['s.current_release_id as "releaseId", coalesce(r.workload', 'reconciling compares everything, once a minute'],
  ['custom_domain_id is not null as "isMain"', 'reconciling compares everything, once a minute'],
]

const { projectId, environmentId } = await newPlace(api)
const applicationId: string = (await newApplication(api, environmentId)).id
const deployed = await api.call('POST', `/application/${applicationId}/deploy`)
const deploymentId: string = deployed.body.deployment_request_id
await until(async () => /DEPLOYED/.test((await api.call('GET', `/environment/${environmentId}/status`)).body.state), {
  what: 'the deployment',
  timeoutMs: 20_000,
})
await fillTables(database, {
  organizationId: api.organizationId,
  projectId,
  environmentId,
  applicationId,
  deploymentId,
})

const large = new Set(
  (
    await database.query<{ name: string }>(
      `select relname as name from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace and reltuples >= 1000`,
    )
  ).map(({ name }) => name),
)
const take = tapDatabase(database)

/** The parts of these statements that read a large table completely, in words. */
const readWhole = async (statements: readonly Statement[]): Promise<string[]> => {
  const found: string[] = []
  for (const statement of statements.filter(({ text }) => !exceptions.some(([words]) => text.includes(words))))
    for (const table of await explainer.scanned(statement))
      if (large.has(table)) found.push(`${table}: ${statement.text.replaceAll(/\s+/g, ' ').slice(0, 400)}`)
  return [...new Set(found)]
}

test('there are rows by the thousand in every table that grows', () => {
  const growing = [
    'node',
    'variable',
    'service_state',
    'service_size',
    'deployment',
    'deployment_service',
    'deployment_step',
    'release',
  ]
  const more = ['deployment_log', 'event', 'api_token', 'outbox', 'delivery', 'idempotency_key', 'route', 'image']
  for (const table of [...growing, ...more]) assert.ok(large.has(table), table)
})

test('a statement that reads a table completely is noticed', async () => {
  const whole = { text: `select count(*) from event where origin = $1`, values: ['API'] }
  assert.equal((await readWhole([whole])).length, 1)
})

const reads = operations.filter(({ method, produces }) => method === 'GET' && produces === undefined)

/** The record that the path names, in a place with many siblings where the maker allows it. */
const answerOf = async (operation: Operation): Promise<{ statements: Statement[]; status: number }> => {
  const scene = newScene(api)
  const values: Values = await valuesFor(operation, scene)
  const query = caseOf(operation).query?.(values) ?? {}
  // A first request caches the token; its statements belong to every request.
  take()
  const { status } = await api.call('GET', addressOf(operation.path, values, query))
  const statements = take()
  await caseOf(operation).after?.(values, scene)
  return { statements, status }
}

const inCrowd: readonly (readonly [string, string])[] = [
  ['list environments', `/project/${projectId}/environment`],
  ['list projects', `/organization/${api.organizationId}/project`],
  ['list applications', `/environment/${environmentId}/application`],
  ['list services', `/environment/${environmentId}/services`],
  ['list variables of an application', `/application/${applicationId}/environmentVariable`],
  ['list variables of a project', `/project/${projectId}/environmentVariable`],
  ['environment statuses', `/environment/${environmentId}/statuses`],
  ['statuses with stages', `/environment/${environmentId}/statusesWithStages`],
  ['status of an environment', `/environment/${environmentId}/status`],
  ['status of all applications', `/environment/${environmentId}/application/status`],
  ['status of a service', `/application/${applicationId}/status`],
  ['history of a service', `/application/${applicationId}/deploymentHistoryV2`],
  ['history of an environment', `/environment/${environmentId}/deploymentHistoryV2`],
  ['queue of a service', `/service/${applicationId}/deploymentQueue`],
  ['queue of an environment', `/environment/${environmentId}/deploymentQueue`],
  ['an application', `/application/${applicationId}`],
  ['an environment', `/environment/${environmentId}`],
  ['a project', `/project/${projectId}`],
]

for (const [what, path] of inCrowd)
  test(`${what}: no table is read completely, not even for the token`, async () => {
    const stranger = api.as(await api.newToken(['Read']))
    take()
    const answer = await stranger('GET', path)
    assert.equal(answer.status, 200, JSON.stringify(answer.body).slice(0, 300))
    const statements = take()
    assert.ok(
      statements.some(({ text }) => text.includes('from api_token')),
      'the token was not looked up',
    )
    assert.ok(statements.length >= 2)
    assert.deepEqual(await readWhole(statements), [])
  })

test('no read of any operation reads a table completely', async () => {
  const found: string[] = []
  for (const operation of reads) {
    const { statements } = await answerOf(operation)
    for (const problem of await readWhole(statements)) found.push(`${operation.id}: ${problem}`)
  }
  assert.deepEqual(found, [])
})

test('no stream reads a table completely: statuses, running services, and logs of deployments', async () => {
  const [events, socket] = ['events', 'socket']
  const places: [string, string][] = [
    [events, `/environment/${environmentId}/statuses/stream`],
    [events, `/application/${applicationId}/status/stream`],
    [events, `/environment/${environmentId}/logs/stream`],
    [socket, `/deployment/status?project=${projectId}&environment=${environmentId}`],
    [socket, `/deployment/status?project=${projectId}`],
    [socket, `/service/status?project=${projectId}&environment=${environmentId}`],
    [socket, `/service/pods?service=${applicationId}`],
    [socket, `/deployment/logs?environment=${environmentId}`],
  ]
  for (const [form, path] of places) {
    take()
    const stream = await (form === events ? hearEvents : hearSocket)(api.url + path, api.token)
    await until(() => stream.all.length > 0, { what: `${path} to begin`, timeoutMs: 20_000 })
    const problems = await readWhole(take())
    stream.close()
    assert.deepEqual(problems, [], path)
  }
})

test('no change reads a table completely: a deployment from its request to its end, a variable, an edit', async () => {
  take()
  const begun = await api.call('POST', `/application/${applicationId}/deploy`)
  assert.equal(begun.status, 202)
  await api.call('POST', `/application/${applicationId}/environmentVariable`, { key: 'A', value: '1' })
  await api.call('PUT', `/application/${applicationId}`, { cpu: 600 })
  const rest = async () =>
    /DEPLOYED/.test((await api.call('GET', `/application/${applicationId}/status`)).body.deployment_state)
  await until(rest, { what: 'the deployment', timeoutMs: 20_000 })
  const statements = take()
  assert.ok(statements.some(({ text }) => text.includes('for update skip locked')))
  assert.deepEqual(await readWhole(statements), [])
})

test('the claim on the queue reads no table completely, whether the queue is long or empty', async () => {
  await api.engine.stop()
  take()
  await claim(database, 'explained')
  assert.deepEqual(await readWhole(take()), [])
  await database.query(
    `update deployment set state = 'QUEUED', finished_at = null where id in (select id from deployment
     where execution_number = 1003)`,
  )
  await database.query('analyze deployment')
  take()
  assert.notEqual(await claim(database, 'explained'), null)
  assert.deepEqual(await readWhole(take()), [])
})
