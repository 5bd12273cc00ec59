/** Fields that are only stored (`plain` in cases/effects.ts) are returned as they were sent. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import { resourceOf } from '../src/api/operations/field-table.ts'
import { fieldsOf } from '../src/api/operations/fields.ts'
import type { Operation } from '../src/api/operations/operation.ts'
import { operations } from '../src/resources/index.ts'
import { plain } from './cases/effects.ts'
import { type Json, startApi } from './support/api.ts'
import { addressOf, caseOf, newScene, valuesFor } from './support/scene.ts'

const api = await startApi()

const isPlain = ({ operation, field }: ReturnType<typeof fieldsOf>[number]): boolean =>
  plain[resourceOf(operation)]?.includes(field) === true

const sampleOf = (schema: Json): unknown => {
  const one = schema.anyOf?.find(({ type }: Json) => type !== 'null') ?? schema
  if (one.type === 'boolean') return true
  if (one.type === 'integer') return one.minimum ?? 1
  if (one.type === 'array') return [sampleOf(one.items)]
  return 'sample.example'
}

/** The body with the value at a pointer; the first item stands for `*`. */
const withSample = (body: Json, [name, ...rest]: string[], value: unknown): Json => {
  if (name === undefined) return value
  if (name === '*') return [withSample(body?.[0] ?? { internal_port: 80, size: 4, mount_point: '/data' }, rest, value)]
  return { ...body, [name]: withSample(body?.[name], rest, value) }
}

const at = (value: Json, [name, ...rest]: string[]): unknown =>
  name === undefined ? value : at(value?.[name === '*' ? 0 : name], rest)

const roundTrip = async (operation: Operation, field: string, sample: unknown): Promise<string | null> => {
  const plan = caseOf(operation)
  const scene = newScene(api)
  const values = await valuesFor(operation, scene)
  const path = field.slice(1).split('/')
  const body = withSample(plan.body?.(values, scene) ?? {}, path, sample)
  const answer = await api.call(operation.method, addressOf(operation.path, values, plan.query?.(values)), body)
  if (answer.status < 300 && isDeepStrictEqual(at(answer.body, path), sample)) return null
  return `${operation.id} ${field}: ${answer.status} ${JSON.stringify(answer.body)}`
}

test('plain fields are returned as they were sent, by every operation that accepts them', async () => {
  const rows = operations.flatMap(fieldsOf).filter(isPlain)
  assert.ok(rows.length >= 30, String(rows.length))
  const lost: string[] = []
  for (const { operation, field, schema, values } of rows)
    for (const sample of values.length > 0 ? values : [sampleOf(schema)]) {
      const found = await roundTrip(operation, field, sample)
      if (found !== null) lost.push(found)
    }
  assert.deepEqual(lost, [])
})
