/**
 * Requests made from the published document, with a fixed seed: valid ones, slightly wrong ones and hostile ones. Whatever
 * is sent, the answer is quick, its status is in the contract, and an error has the one error body.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { describe } from '../src/api/openapi.ts'
import { operations } from '../src/resources/index.ts'
import { type Answer, type Json, newApplication, newPlace, startApi } from './api.ts'

const api = await startApi()
const other = await api.newOrganization()
const document = describe(operations) as Json

/** Ids that exist, so that requests get past the gate; some of them will be deleted on the way. */
const known: string[] = [api.organizationId, api.clusterId, other.id]
const idsByName: Record<string, string[]> = { organizationId: [api.organizationId], clusterId: [api.clusterId] }
const note = (name: string, id: string): void => {
  known.push(id)
  idsByName[name] = [...(idsByName[name] ?? []), id]
}

const prepare = async (): Promise<void> => {
  for (let place = 0; place < 12; place += 1) {
    const { projectId, environmentId } = await newPlace(api)
    const application = await newApplication(api, environmentId)
    note('projectId', projectId)
    note('environmentId', environmentId)
    note('applicationId', application.id)
    note('serviceId', application.id)
    for (const family of ['environmentVariable', 'secret']) {
      const { body } = await api.call('POST', `/project/${projectId}/${family}`, { key: `KEY_${family}`, value: 'v' })
      note(`${family}Id`, body.id)
      note('variableId', body.id)
    }
  }
  const webhook = { target_url: 'http://127.0.0.1:9/hook', events: ['DEPLOYMENT_STARTED'] }
  const made = await api.call('POST', `/organization/${api.organizationId}/webhook`, webhook)
  note('webhookId', made.body.id)
}

const hostileTexts = [
  '',
  ' ',
  '\u0000',
  '\ud800',
  '__proto__',
  '../../etc/passwd',
  "';drop table node;--",
  '${jndi}',
  '{{x}}',
  '%00',
  '\u202e',
  'İ',
  '9'.repeat(400),
  '-1',
  'null',
]

const hostile = (): fc.Arbitrary<unknown> =>
  fc.oneof(
    fc.constantFrom<unknown>(...hostileTexts, null, true, 0, -1, 1e308, 2 ** 53, 2 ** 31, 0.5),
    fc.string({ unit: 'binary', maxLength: 60 }),
    fc.jsonValue({ maxDepth: 3 }),
    fc.constant(Array.from({ length: 200 }, () => 'x')),
    fc.constantFrom({ constructor: 1 }, { ['__proto__']: { admin: true } }, [[[[]]]]),
  )

const textOf = (schema: Json): fc.Arbitrary<string> => {
  if (schema.format === 'uuid') return fc.oneof(fc.constantFrom(...known), fc.uuid())
  if (schema.format === 'date-time') return fc.constantFrom('2030-01-01T00:00:00Z', '2020-01-01T00:00:00Z')
  if (schema.format === 'date') return fc.constant('2030-01-01')
  const longest = Math.min(schema.maxLength ?? 40, 40)
  const names = ['main', '/', '/data', 'Dockerfile', 'A_KEY', 'https://git.invalid/a/b.git', 'http://127.0.0.1:9/x']
  const fitting = names.filter((name) => name.length <= longest)
  const free = fc.string({ minLength: Math.min(schema.minLength ?? 0, longest), maxLength: longest })
  return fitting.length === 0 ? free : fc.oneof(free, fc.constantFrom(...fitting))
}

/** Values that a schema allows, nearly always: patterns are left to chance. */
const fitting = (schema: Json): fc.Arbitrary<unknown> => {
  if (schema.$ref !== undefined) return fitting(document.components.schemas[schema.$ref.split('/').at(-1)])
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
  if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map(fitting))
  switch (Array.isArray(schema.type) ? schema.type[0] : schema.type) {
    case 'string':
      return textOf(schema)
    case 'integer':
    case 'number':
      return fc.integer({
        min: schema.minimum ?? 0,
        max: Math.min(schema.maximum ?? 1000, (schema.minimum ?? 0) + 500),
      })
    case 'boolean':
      return fc.boolean()
    case 'null':
      return fc.constant(null)
    case 'array':
      return fc.array(fitting(schema.items ?? {}), { minLength: schema.minItems ?? 0, maxLength: 3 })
    case 'object': {
      const fields = Object.entries<Json>(schema.properties ?? {}).map(([name, inner]) => [name, fitting(inner)])
      return fc.record(Object.fromEntries(fields), { requiredKeys: schema.required ?? [], noNullPrototype: true })
    }
    default:
      return fc.jsonValue({ maxDepth: 2 })
  }
}

/** A body of which up to two fields, or the whole, are hostile. */
const mutated = (body: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.tuple(body, fc.array(fc.tuple(fc.nat(), hostile()), { minLength: 1, maxLength: 2 })).map(([value, changes]) => {
    if (value === null || typeof value !== 'object' || Array.isArray(value)) return changes[0]![1]
    const names = Object.keys(value)
    const changed = changes.map(([at, wrong]) => [names[at % Math.max(names.length, 1)] ?? 'name', wrong])
    return { ...value, ...Object.fromEntries(changed) }
  })

const rawBodies = [
  '',
  '{',
  '[]',
  'null',
  '"x"',
  '{"name":"\\u0000"}',
  '{"a":'.repeat(3000),
  '{"name":1e999}',
  '\ufeff{}',
]

interface Request {
  method: string
  path: string
  body: unknown
  headers: Record<string, string>
}

const idFor = (name: string): fc.Arbitrary<string> =>
  fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom(...(idsByName[name] ?? known)) },
    { weight: 2, arbitrary: fc.constantFrom(...known) },
    { weight: 1, arbitrary: fc.oneof(fc.uuid(), fc.constantFrom('x', '%00', '%2e%2e', 'a'.repeat(300), '%ff')) },
  )

const pathOf = (path: string): fc.Arbitrary<string> => {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]!)
  return fc.tuple(...names.map(idFor)).map((ids) => {
    let next = 0
    return path.replaceAll(/\{\w+\}/g, () => ids[next++]!)
  })
}

const queryOf = (parameters: Json[]): fc.Arbitrary<string> => {
  const fields = parameters.filter((each) => each.in === 'query')
  const values = fields.map(({ name, schema, required }) =>
    fc
      .oneof({ weight: 4, arbitrary: fitting(schema) }, { weight: 1, arbitrary: fc.constantFrom(...hostileTexts) })
      .map((value) => `${name}=${encodeURIComponent(String(value).toWellFormed())}`)
      .chain((text) => (required === true ? fc.constant(text) : fc.constantFrom(text, ''))),
  )
  return fc.tuple(...values).map((texts) => texts.filter((text) => text !== '').join('&'))
}

const headers: fc.Arbitrary<Record<string, string>> = fc.oneof(
  { weight: 8, arbitrary: fc.constant<Record<string, string>>({}) },
  {
    weight: 1,
    arbitrary: fc.constantFrom<Record<string, string>>(
      { 'content-type': 'text/plain' },
      { 'idempotency-key': 'one-key' },
      { 'idempotency-key': 'a b' },
      { accept: 'application/problem+json, application/json' },
      { 'if-none-match': '*' },
      { 'user-agent': 'x'.repeat(2000) },
    ),
  },
)

const requestOf = (path: string, method: string, operation: Json): fc.Arbitrary<Request> => {
  const schema = operation.requestBody?.content?.['application/json']?.schema
  const body: fc.Arbitrary<unknown> =
    schema === undefined
      ? fc.constantFrom(undefined, {}, undefined)
      : fc.oneof(
          { weight: 3, arbitrary: fitting(schema) },
          { weight: 3, arbitrary: mutated(fitting(schema)) },
          { weight: 1, arbitrary: fc.constantFrom(...rawBodies) },
          { weight: 1, arbitrary: hostile() },
        )
  return fc
    .tuple(pathOf(path), queryOf(operation.parameters ?? []), body, headers)
    .map(([filled, query, sent, more]) => ({
      method: method.toUpperCase(),
      path: query === '' ? filled : `${filled}?${query}`,
      body: method === 'get' ? undefined : sent,
      headers: more,
    }))
}

const isEndless = ({ responses }: Json): boolean =>
  responses['101'] !== undefined || responses['200']?.content?.['text/event-stream'] !== undefined

/** Statuses that any request may get, whatever the operation. */
const always = new Set([400, 401, 403, 404, 405, 406, 409, 413, 414, 415, 429])

const checkError = ({ status, body, headers: got }: Answer, what: string): void => {
  for (const field of ['error', 'message', 'detail', 'code', 'request_id'])
    assert.equal(typeof body[field], 'string', `${what}: ${field}`)
  assert.equal(body.status, status, what)
  assert.equal(body.request_id, got.get('x-request-id'), what)
  if (status === 400) assert.doesNotMatch(body.message, /\bexists?\b/, what)
}

test('3,000 requests made from the document, right and wrong, get answers of the contract and none takes 5 s', async () => {
  await prepare()
  const all = Object.entries<Json>(document.paths).flatMap(([path, methods]) =>
    Object.entries<Json>(methods)
      .filter(([, operation]) => !isEndless(operation))
      .map(([method, operation]) => ({ documented: operation.responses, request: requestOf(path, method, operation) })),
  )
  const perOperation = Math.ceil(3000 / all.length)
  let accepted = 0
  for (const { documented, request } of all)
    for (const { method, path, body, headers: more } of fc.sample(request, {
      seed: 20_261_121,
      numRuns: perOperation,
    })) {
      const started = performance.now()
      const answer = await api.call(method, path, body, more)
      const what = `${method} ${path} ${JSON.stringify(body)?.slice(0, 500)} → ${answer.status}`
      assert.ok(performance.now() - started < 5000, `${what} took too long`)
      assert.ok(answer.status in documented || always.has(answer.status) || answer.status === 304, what)
      assert.ok(answer.status < 500, `${what} ${JSON.stringify(answer.body)}`)
      if (answer.status >= 400) checkError(answer, what)
      else accepted += 1
    }
  assert.ok(accepted > 300, `only ${accepted} requests were accepted: the others tell little`)
})
