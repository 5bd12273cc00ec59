/** The answer names exactly the values of a request that have no effect. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import Type from 'typebox'
import { type Answer, applicationBody, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { effectSentence } from './effects.ts'
import { notAppliedHeader } from './not-applied.ts'
import { operation, ownOrganization } from './operation.ts'
import {
  AllDiscarded,
  Flag,
  Maybe,
  OneOf,
  Recorded,
  RecordedValues,
  Refused,
  RefusedValues,
  Text,
  Whole,
} from './schema.ts'

const Pet = Type.Object({
  name: Text(),
  colour: Maybe(Recorded(Text(255, { default: 'brown' }), 'nobody looks at it.')),
  collar: Maybe(Recorded(Type.Object({ bell: Maybe(Flag({ default: false })), size: Maybe(Whole(0)) }))),
  kind: Maybe(RecordedValues(OneOf(['CAT', 'DOG']), ['DOG'])),
  sound: Maybe(RefusedValues(OneOf(['MEOW', 'ROAR']), ['ROAR'], 'only a lion can')),
  wings: Maybe(Refused(Whole(0, 10, { default: 0 }), 'pets cannot fly')),
  ...AllDiscarded({ chip: Maybe(Text()) }),
  toys: Maybe(Type.Array(Type.Object({ name: Text(), brand: Maybe(Recorded(Text())) }))),
})

const adopt = operation({
  id: 'adoptPet',
  method: 'POST',
  path: '/pet',
  tag: 'Pets',
  summary: 'Adopt a pet',
  scope: 'Write',
  area: 'projects',
  owner: ownOrganization,
  query: Type.Object({ now: Maybe(Flag()), softly: Maybe(Recorded(Flag({ default: false }))) }),
  body: Pet,
  status: 200,
  answer: Type.Object({ id: Text(), name: Text() }),
  run: async ({ body }) => ({ id: 'one', name: body.name }),
})

const api = await startApi()
const pets = await startApi({ operations: [adopt] })
const send = (body: object, query = ''): Promise<Answer> => pets.call('POST', `/pet${query}`, { name: 'Tom', ...body })
const named = async (body: object, query = ''): Promise<string | null> => {
  const { status, headers } = await send(body, query)
  assert.equal(status, 200)
  return headers.get(notAppliedHeader)
}

test('recorded and discarded fields, values and query words are named by where they were sent; defaults and what acts are not', async () => {
  assert.equal(await named({}), null)
  assert.equal(await named({ colour: 'brown', collar: { bell: false }, kind: 'CAT', wings: 0, toys: [] }), null)
  assert.equal(await named({ colour: 'red' }), '/colour')
  assert.equal(await named({ collar: { size: 3 } }), '/collar')
  assert.equal(await named({ kind: 'DOG' }), '/kind')
  assert.equal(await named({ chip: '42' }), '/chip')
  assert.equal(effectSentence(Pet.properties.chip), 'Accepted, but not stored; has no effect on this server.')
  assert.equal(await named({ toys: [{ name: 'ball' }, { name: 'mouse', brand: 'x' }] }), '/toys/1/brand')
  assert.equal(await named({}, '?softly=true&now=true'), '?softly')
  assert.equal(await named({}, '?softly=false'), null)
})

test('unknown fields and words are named, unless the answer shows that what they ask for is so', async () => {
  assert.equal(await named({ tail: 'long', toys: [{ name: 'a', 'a/b~c': 1 }] }), '/tail, /toys/0/a~1b~0c')
  assert.equal(await named({ id: 'one' }), null)
  assert.equal(await named({ id: 'two' }), '/id')
  assert.equal(await named({}, '?loud=1'), '?loud')
})

test('the header is bounded, plain ASCII and shows no value', async () => {
  const hostile = { 'a,b\r\nset-cookie: x=1': 'hunter2', ä: 'hunter2', ['x'.repeat(5000)]: 'hunter2' }
  const header = (await named(hostile))!
  assert.match(header, /^[\x21-\x7e ]+$/)
  assert.ok(
    !header.includes('hunter2') && header.startsWith('/a%2Cb%0D%0Aset-cookie%3A%20x%3D1, /%C3%A4, /xxx'),
    header,
  )
  const many = (await named(Object.fromEntries(Array.from({ length: 5000 }, (_, at) => [`field${at}`, at]))))!
  assert.ok(many.length <= 1000 && many.endsWith(', ...'), many)
})

test('what is marked refused is a 400 with its reason and no header, except its default', async () => {
  const refused = await send({ wings: 2, colour: 'red' })
  assert.equal(refused.status, 400)
  assert.deepEqual(refused.body.details, [{ field: '/wings', message: 'pets cannot fly' }])
  assert.equal(refused.headers.get(notAppliedHeader), null)
  assert.equal((await send({ sound: 'ROAR' })).body.details[0].message, 'only a lion can')
  assert.equal((await send({ sound: 'MEOW' })).status, 200)
})

test('a client that sends back the record that it read gets no header about fields that the answer shows unchanged', async () => {
  const { environmentId } = await newPlace(api)
  const made = await newApplication(api, environmentId, { auto_preview: true })
  const read = async () => (await api.call('GET', `/application/${made.id}`)).body
  // The head of the branch is looked up after the create.
  await until(async () => (await read()).git_repository.deployed_commit_id !== '', { what: 'the head of the branch' })
  const again = await api.call('PUT', `/application/${made.id}`, await read())
  assert.equal(again.status, 200, JSON.stringify(again.body))
  assert.equal(again.headers.get(notAppliedHeader), null)
  const older = await api.call('PUT', `/application/${made.id}`, { created_at: '2020-01-01T00:00:00Z' })
  assert.deepEqual([older.status, older.headers.get(notAppliedHeader)], [200, '/created_at'])
  const path = `/environment/${environmentId}`
  for (const [id, status] of [
    [api.clusterId, 200],
    [made.id, 400],
  ])
    assert.equal((await api.call('PUT', path, { cluster_id: id })).status, status)
})

test('what is refused now, but was kept before, can be sent back', async () => {
  const { environmentId } = await newPlace(api)
  const made = await newApplication(api, environmentId)
  const path = `/application/${made.id}`
  const settings = { 'security.service_account_name': 'robot' }
  assert.equal((await api.call('PUT', `${path}/advancedSettings`, settings)).status, 400)
  await api.database.query(
    `update node set spec = spec || '{"gpu": 1}' || jsonb_build_object('advanced_settings', $2::jsonb) where id = $1`,
    [made.id, JSON.stringify(settings)],
  )
  assert.equal((await api.call('PUT', `${path}/advancedSettings`, settings)).status, 201)
  assert.equal((await api.call('PUT', path, { gpu: 1 })).status, 200)
  assert.equal((await api.call('PUT', path, { gpu: 2 })).status, 400)
})

test('a plan names the recorded fields and settings of each service', async () => {
  const { environmentId } = await newPlace(api)
  const made = await newApplication(api, environmentId, { auto_deploy: true, auto_preview: false })
  const path = `/application/${made.id}`
  const settings = { 'hpa.memory.average_utilization_percent': 70, 'deployment.termination_grace_period_seconds': 9 }
  const put = await api.call('PUT', `${path}/advancedSettings`, settings)
  assert.equal(put.headers.get(notAppliedHeader), '/hpa.memory.average_utilization_percent')
  const { body, status } = await api.call('POST', `${path}/deploy?dry_run=true`)
  assert.equal(status, 200, JSON.stringify(body))
  assert.deepEqual(body.stages[0].services[0].not_applied, [
    '/advanced_settings/hpa.memory.average_utilization_percent',
  ])
})

test('a create names what it only records, also when it is repeated under its key', async () => {
  const { environmentId } = await newPlace(api)
  const body = applicationBody('twice', { auto_deploy: true, auto_preview: false, unheard_of: 1 })
  const create = () =>
    api.call('POST', `/environment/${environmentId}/application`, body, { 'idempotency-key': 'the-same' })
  const [first, second] = [await create(), await create()]
  assert.deepEqual([first.status, second.headers.get('idempotent-replayed')], [201, 'true'])
  for (const { headers } of [first, second]) assert.equal(headers.get(notAppliedHeader), '/unheard_of')
})
