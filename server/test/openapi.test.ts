/** The committed description of the API is a valid OpenAPI 3.1 document that generators can rely on. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Validator } from '@seriousme/openapi-schema-validator'
import type { Json } from './support/api.ts'

const document = JSON.parse(readFileSync(new URL('../../openapi.json', import.meta.url), 'utf8')) as Json

const errorsIn = async (candidate: Json): Promise<unknown> => {
  const result = await new Validator().validate(structuredClone(candidate))
  return result.valid ? null : result.errors
}

test('openapi.json is valid OpenAPI 3.1, and a broken one is not', async () => {
  assert.equal(document.openapi, '3.1.0')
  assert.equal(await errorsIn(document), null)
  assert.notEqual(await errorsIn({ ...document, paths: { '/x': { get: { responses: 'none' } } } }), null)
})

const operations = Object.entries<Json>(document.paths).flatMap(([path, methods]) =>
  Object.values<Json>(methods).map((operation) => ({ path, operation })),
)

test('every operation has a unique name, a summary, and every parameter of its path', () => {
  const ids = operations.map(({ operation }) => operation.operationId)
  assert.equal(new Set(ids).size, ids.length)
  for (const { path, operation } of operations) {
    assert.ok(operation.summary, operation.operationId)
    const declared = operation.parameters.filter((one: Json) => one.in === 'path').map(({ name }: Json) => name)
    const wanted = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name)
    assert.deepEqual(declared.sort(), wanted.sort(), operation.operationId)
  }
})

test('every reference can be resolved', () => {
  const references = [...JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]+)"/g)].map(([, pointer]) => pointer!)
  assert.ok(references.length > 1000)
  for (const pointer of new Set(references)) {
    const found = pointer.split('/').reduce((value: Json, part) => value?.[part], document)
    assert.ok(found !== undefined, pointer)
  }
})
