/** Requests made from the published document and known ids: valid ones, slightly wrong ones and hostile ones. */
import fc from 'fast-check'
import type { Json } from './api.ts'

export interface FuzzRequest {
  method: string
  path: string
  body: unknown
  headers: Record<string, string>
}

/** Ids of real rows, by the path parameter that they are for. */
export type KnownIds = ReadonlyMap<string, readonly string[]>

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

const hostile: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(...hostileTexts, null, true, 0, -1, 1e308, 2 ** 53, 2 ** 31, 0.5),
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.jsonValue({ maxDepth: 3 }),
  fc.constant(Array.from({ length: 200 }, () => 'x')),
  fc.constantFrom({ constructor: 1 }, { ['__proto__']: { admin: true } }, [[[[]]]]),
)

/** A body of which up to two fields, or the whole, are hostile. */
const mutated = (body: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.tuple(body, fc.array(fc.tuple(fc.nat(), hostile), { minLength: 1, maxLength: 2 })).map(([value, changes]) => {
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

const oddHeaders: Record<string, string>[] = [
  { 'content-type': 'text/plain' },
  { 'content-encoding': 'gzip' },
  { 'idempotency-key': 'one-key' },
  { 'idempotency-key': 'a b' },
  { accept: 'application/problem+json, application/json' },
  { accept: 'text/html' },
  { 'if-none-match': '*' },
  { 'user-agent': 'x'.repeat(2000) },
]

const headers: fc.Arbitrary<Record<string, string>> = fc.oneof(
  { weight: 12, arbitrary: fc.constant<Record<string, string>>({}) },
  { weight: 1, arbitrary: fc.constantFrom(...oddHeaders) },
)

const words = ['main', '/', '/data', 'Dockerfile', 'A_KEY', 'https://git.invalid/a/b.git', 'http://127.0.0.1:9/x']

/** Values that the schemas of a document allow, nearly always: patterns are left to chance. */
const fittingIn = (document: Json, everyId: readonly string[]) => {
  const made = new Map<string, fc.Arbitrary<unknown>>()

  const textOf = (schema: Json): fc.Arbitrary<string> => {
    if (schema.format === 'uuid') return fc.oneof(fc.constantFrom(...everyId), fc.uuid())
    if (schema.format === 'date-time') return fc.constantFrom('2030-01-01T00:00:00Z', '2020-01-01T00:00:00Z')
    if (schema.format === 'date') return fc.constant('2030-01-01')
    const longest = Math.min(schema.maxLength ?? 40, 40)
    const usual = words.filter((word) => word.length <= longest)
    const free = fc.string({ minLength: Math.min(schema.minLength ?? 0, longest), maxLength: longest })
    return usual.length === 0 ? free : fc.oneof(free, fc.constantFrom(...usual))
  }

  const fitting = (schema: Json): fc.Arbitrary<unknown> => {
    if (schema.$ref !== undefined) {
      const known = made.get(schema.$ref) ?? fitting(document.components.schemas[schema.$ref.split('/').at(-1)])
      made.set(schema.$ref, known)
      return known
    }
    if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
    if (schema.const !== undefined) return fc.constant(schema.const)
    if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map(fitting))
    switch (Array.isArray(schema.type) ? schema.type[0] : schema.type) {
      case 'string':
        return textOf(schema)
      case 'integer':
      case 'number': {
        const min = schema.minimum ?? 0
        return fc.integer({ min, max: Math.max(min, Math.min(schema.maximum ?? 1000, min + 500)) })
      }
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
  return fitting
}

const strangeIds: fc.Arbitrary<string> = fc.oneof(
  fc.uuid(),
  fc.constantFrom('x', '%00', '%2e%2e', 'a'.repeat(300), '%ff', '%'),
)

/** A generator of requests per operation of the document. */
export const fuzzRequests = (document: Json, ids: KnownIds) => {
  const everyId = [...new Set([...ids.values()].flat())]
  const fitting = fittingIn(document, everyId)

  /** Mostly ids that belong together: those that were made at the same time. */
  const idFor = (name: string, place: number): fc.Arbitrary<string> => {
    const known = ids.get(name) ?? everyId
    return fc.oneof(
      { weight: 24, arbitrary: fc.constant(known[place % known.length]!) },
      { weight: 1, arbitrary: fc.constantFrom(...known) },
      { weight: 1, arbitrary: fc.constantFrom(...everyId) },
      { weight: 1, arbitrary: strangeIds },
    )
  }

  const pathOf = (path: string): fc.Arbitrary<string> => {
    const names = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]!)
    const filled = (place: number) => fc.tuple(...names.map((name) => idFor(name, place)))
    return fc
      .nat(50)
      .chain(filled)
      .map((chosen) => {
        let next = 0
        return path.replaceAll(/\{\w+\}/g, () => chosen[next++]!)
      })
  }

  const queryOf = (parameters: Json[]): fc.Arbitrary<string> => {
    const values = parameters
      .filter((each) => each.in === 'query')
      .map(({ name, schema, required }) => {
        const known = ids.get(name)
        const usual = known === undefined ? fitting(schema) : fc.oneof(fc.constantFrom(...known), fitting(schema))
        return fc
          .oneof({ weight: 5, arbitrary: usual }, { weight: 1, arbitrary: fc.constantFrom(...hostileTexts) })
          .map((value) => `${name}=${encodeURIComponent(String(value).toWellFormed())}`)
          .chain((text) => (required === true ? fc.constant(text) : fc.constantFrom(text, '')))
      })
    return fc.tuple(...values).map((texts) => texts.filter((text) => text !== '').join('&'))
  }

  return (path: string, method: string, operation: Json): fc.Arbitrary<FuzzRequest> => {
    const schema = operation.requestBody?.content?.['application/json']?.schema
    const right = schema === undefined ? fc.constant({}) : fitting(schema)
    const body: fc.Arbitrary<unknown> =
      schema === undefined
        ? fc.constantFrom<unknown>(undefined, {}, undefined, ...rawBodies)
        : fc.oneof(
            { weight: 4, arbitrary: right },
            { weight: 3, arbitrary: mutated(right) },
            { weight: 1, arbitrary: fc.constantFrom(...rawBodies) },
            { weight: 1, arbitrary: hostile },
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
}
