/** Rules for every operation: who may call it, on whose records, and what it returns. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Compile } from 'typebox/schema'
import { describe } from '../src/api/operations/openapi.ts'
import { isTextType, type Operation, type Scope } from '../src/api/operations/operation.ts'
import { newId } from '../src/lib/ids.ts'
import { operations } from '../src/resources/index.ts'
import type { Case, Values } from './cases/case.ts'
import { type Answer, type Json, newPlace, startApi } from './support/api.ts'
import { judgeAnswer } from './support/client-types.ts'
import { addressOf, caseNames, caseOf, newScene, paramsOf, valuesFor } from './support/scene.ts'

const api = await startApi()
const other = await api.newOrganization()
const scopes: Scope[] = ['Read', 'Deploy', 'Write']
const tokens = new Map<Scope, string>()
for (const scope of scopes) tokens.set(scope, await api.newToken([scope]))

/** A read or action without a body needs no case; an operation with a body does. */
const planOf = (operation: Operation): Case => {
  const found = caseOf(operation)
  assert.ok(
    Object.keys(found).length > 0 || operation.body === undefined || operation.bodyOptional,
    `${operation.id} has no case in test/cases`,
  )
  return found
}

/** The scopes that are sufficient for an operation, derived from its path and not from its own declaration. */
const admitted = ({ method, path }: Operation): Scope[] => {
  if (path.includes('/apiToken') || (method === 'PUT' && path === '/organization/{organizationId}')) return []
  if (method === 'DELETE' || path.endsWith('/service/delete')) return []
  if (method === 'GET')
    return /environmentVariable|\/secret|\/variable|gitToken|\/webhook/.test(path) ? ['Read', 'Write'] : scopes
  const isAction = /\/(deploy|redeploy|stop|restart-service|cancelDeployment|run)$/.test(path)
  return isAction ? ['Deploy'] : ['Write']
}

const address = (path: string, values: Values, query: Record<string, string>): string => {
  for (const param of paramsOf(path)) assert.ok(values[param] !== undefined, `no value for {${param}}`)
  return addressOf(path, values, query)
}

const isErrorBody = (answer: Answer, status: number): void => {
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8')
  for (const field of ['error', 'message', 'detail', 'code', 'request_id'])
    assert.equal(typeof answer.body[field], 'string', field)
  assert.equal(answer.body.status, status)
  assert.ok(status !== 400 || !/exist/i.test(answer.body.message), answer.body.message)
}

const description = describe(operations) as Json

const resolved = (schema: Json): Json => {
  if (Array.isArray(schema)) return schema.map(resolved)
  if (schema === undefined || schema === null || typeof schema !== 'object') return schema
  if (typeof schema.$ref === 'string') return resolved(description.components.schemas[schema.$ref.split('/').at(-1)])
  return Object.fromEntries(Object.entries(schema).map(([name, inner]) => [name, resolved(inner)]))
}

const publishedSchema = ({ path, method, status }: Operation): Json =>
  resolved(description.paths[path][method.toLowerCase()].responses[status].content?.['application/json']?.schema)

const checkSuccess = (operation: Operation, answer: Answer): void => {
  assert.equal(answer.status, operation.status, `${operation.id}: ${JSON.stringify(answer.body)}`)
  if (operation.produces === 'application/octet-stream') {
    assert.equal(answer.headers.get('content-type'), operation.produces)
    return
  }
  if (isTextType(operation.produces)) {
    assert.equal(answer.headers.get('content-type'), `${operation.produces}; charset=utf-8`)
    assert.notEqual(answer.body, '')
    return
  }
  if (operation.answer === undefined) {
    assert.equal(answer.body, '')
    return
  }
  const schema = publishedSchema(operation)
  assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8')
  const validator = Compile(schema)
  const [, errors] = validator.Errors(answer.body) as unknown as [boolean, Json[]]
  assert.ok(
    validator.Check(answer.body),
    `${operation.id}: ${JSON.stringify(errors)} in ${JSON.stringify(answer.body)}`,
  )
}

/** Typed clients of the public API get the exact state; callers of the specification the running vocabulary. */
const asTypedClient = { 'x-state-vocabulary': 'deployment' }

const checkForClients = ({ id }: Operation, answer: Answer): void =>
  assert.deepEqual(judgeAnswer(id, answer.body) ?? [], [], 'what an existing client has against it')

const place = await newPlace(api)

const wrongIds = ({ owner: { kind, param } }: Operation): [string, string][] => {
  if (param === null) return []
  return [
    ['an unknown id', newId()],
    // An id of another record of ours: of an environment, or of a project where an environment is expected.
    ['an id of another kind', kind === 'environment' ? place.projectId : place.environmentId],
    ['a malformed id', 'not-an-id'],
    ['hostile text', "' or 1=1 --%00/../.."],
  ]
}

/** 404 for a row that exists, but not where the path says: under another parent, or in another organization. */
const refusesStrangers = async (operation: Operation, values: Values, body: unknown, query: Record<string, string>) => {
  const [first, ...rest] = paramsOf(operation.path)
  const last = rest.at(-1)
  // Words of a fixed list are not ids of rows.
  if (operation.owner.param === null || first === undefined || last === undefined || values[last] === undefined) return
  const elsewhere = async (): Promise<Answer> => {
    if (first === 'organizationId') {
      const theirs = address(operation.path, { ...values, organizationId: other.id }, query)
      return api.as(other.token)(operation.method, theirs, body)
    }
    const stranger = newScene(api)
    const strange = await valuesFor(operation, stranger)
    const mixed = { ...values, [first]: strange[first]! }
    const answer = await api.call(operation.method, address(operation.path, mixed, query), body)
    await caseOf(operation).after?.(strange, stranger)
    return answer
  }
  const answer = await elsewhere()
  assert.equal(answer.status, 404, `${operation.id} under another parent: ${JSON.stringify(answer.body)}`)
}

const streams = new Set(['text/event-stream'])

for (const operation of operations) {
  test(`${operation.id}: 401 without a token, 403 without its scope, 404 if it does not exist or is not ours, then its answer`, async () => {
    const plan = planOf(operation)
    const scene = newScene(api)
    const values = await valuesFor(operation, scene)
    const query = plan.query?.(values) ?? {}
    const body = plan.body?.(values, scene)
    const path = address(operation.path, values, query)
    const { method, owner } = operation

    isErrorBody(await api.as(null)(method, path, body), 401)
    isErrorBody(await api.as(`slip_${'0'.repeat(49)}`)(method, path, body), 401)

    const allowed = plan.scopes ?? admitted(operation)
    for (const scope of scopes)
      if (!allowed.includes(scope)) isErrorBody(await api.as(tokens.get(scope)!)(method, path, body), 403)

    if (owner.param !== null) isErrorBody(await api.as(other.token)(method, path, body), 404)
    for (const [what, id] of wrongIds(operation)) {
      const param = owner.param!
      const wrong = address(
        operation.path,
        { ...values, [param]: encodeURIComponent(id) },
        owner.inQuery === true ? { ...query, [param]: id } : query,
      )
      const answer = await api.call(method, wrong, body)
      assert.equal(answer.status, 404, `${operation.id} with ${what}: ${JSON.stringify(answer.body)}`)
    }

    await refusesStrangers(operation, values, body, query)

    if (streams.has(operation.produces ?? '')) return
    const caller = allowed[0] === undefined ? api.call : api.as(tokens.get(allowed[0])!)
    const answer = await caller(method, path, body)
    if (plan.refused !== undefined) isErrorBody(answer, plan.refused)
    else {
      checkSuccess(operation, answer)
      const speaksBoth = operation.id === 'getApplicationStatus'
      checkForClients(operation, speaksBoth ? await caller(method, path, body, asTypedClient) : answer)
    }
    await plan.after?.(values, scene)
  })
}

test('every case belongs to an operation', () => {
  const known = new Set(operations.map(({ id }) => id))
  assert.deepEqual(
    caseNames.filter((id) => !known.has(id)),
    [],
  )
})
