/**
 * Validates bodies and queries against their schemas; a failure is a single 400 that names the fields but no values.
 */

import type { TObject, TSchema } from 'typebox'
import { Compile } from 'typebox/compile'
import { type ApiError, badRequest, type FieldError } from '../../lib/errors.ts'
import { isObject } from '../../lib/foreign-text/fields.ts'
import { ForeignTextError, readJson } from '../../lib/foreign-text/read-json.ts'
import { lenient } from './lenient.ts'
import { type Defaults, findLongList, fits, type Json, pick } from './schema.ts'

const maxDetails = 20
const maxDepth = 40
/** For a body whose schema allows fewer. */
const usualMostValues = 10_000

interface Failure {
  keyword: string
  instancePath: string
  params: Record<string, unknown>
}

type Check = { Check(value: unknown): boolean; Errors(value: unknown): unknown[] }

const compiled = new WeakMap<TSchema, Check>()

/** Compiles on first use: most of the operations of a process are never called. */
const checkOf = (schema: TSchema): Check => {
  const check = compiled.get(schema) ?? (Compile(schema) as Check)
  compiled.set(schema, check)
  return check
}

const words: Record<string, (params: Record<string, unknown>) => string> = {
  type: ({ type }) => `must be ${type === 'null' ? 'null' : `of type ${type}`}`,
  enum: ({ allowedValues }) => `must be one of ${(allowedValues as string[]).join(', ')}`,
  const: ({ allowedValue }) => `must be ${String(allowedValue)}`,
  minimum: ({ limit }) => `must be at least ${limit}`,
  maximum: ({ limit }) => `must be at most ${limit}`,
  minLength: ({ limit }) => `must have at least ${limit} character${limit === 1 ? '' : 's'}`,
  maxLength: ({ limit }) => `must have at most ${limit} characters`,
  minItems: ({ limit }) => `must have at least ${limit} item${limit === 1 ? '' : 's'}`,
  maxItems: ({ limit }) => `must have at most ${limit} items`,
  maxProperties: ({ limit }) => `must have at most ${limit} fields`,
  uniqueItems: () => 'must not contain duplicates',
  pattern: ({ pattern }) =>
    String(pattern).includes('{40}|')
      ? 'must be a whole commit id, 40 hex digits'
      : 'does not have the required format',
  format: ({ format }) => `must be a ${format}`,
}

const explain = ({ keyword, params }: Pick<Failure, 'keyword' | 'params'>): string =>
  words[keyword]?.(params) ?? 'is not valid'

/** The fields in which a field is wrong that was sent or is missing. */
const holdersOf = (failures: readonly Failure[]): ReadonlySet<string> => {
  const holders = new Set<string>()
  for (const { keyword, instancePath } of failures) {
    if (keyword === 'required') holders.add(instancePath)
    for (let end = instancePath.lastIndexOf('/'); end > 0; end = instancePath.lastIndexOf('/', end - 1))
      holders.add(instancePath.slice(0, end))
  }
  return holders
}

const toFieldErrors = (failures: readonly Failure[]): FieldError[] => {
  const found = new Map<string, string>()
  const holders = holdersOf(failures)
  const note = (field: string, message: string): void => {
    if (!found.has(field) && found.size < maxDetails) found.set(field, message)
  }
  for (const failure of failures) {
    // An object that may be null need not be: what is wrong in it says all.
    const isOther = failure.keyword === 'anyOf' || failure.params.type === 'null'
    if (isOther && holders.has(failure.instancePath)) continue
    if (failure.keyword === 'required')
      for (const name of failure.params.requiredProperties as string[])
        note(`${failure.instancePath}/${name}`, 'is required')
    else note(failure.instancePath, explain(failure))
  }
  return [...found].map(([field, message]) => ({ field, message }))
}

const sentence = ({ field, message }: FieldError): string =>
  field === '' ? `The body ${message}.` : `${field.slice(1).replaceAll('/', '.')}: ${message}`

/** Longer lists are searched only for the first invalid item: the validator would continue to their end. */
const shortList = 50

/**
 * The errors of the first invalid item of the first long list that has one; null without one. Collecting all failures
 * takes far longer than finding the first.
 */
const findWrongItem = (schema: TSchema, value: unknown, field = ''): Failure[] | null => {
  const json = schema as Json
  const variant = json.anyOf?.find((each) => fits(each, value))
  if (variant !== undefined) return findWrongItem(variant as unknown as TSchema, value, field)
  if (json.items !== undefined && Array.isArray(value) && value.length > shortList) {
    const item = checkOf(json.items as unknown as TSchema)
    const index = value.findIndex((each) => !item.Check(each))
    if (index === -1) return null
    const failures = item.Errors(value[index]) as Failure[]
    return failures.map((each) => ({ ...each, instancePath: `${field}/${index}${each.instancePath}` }))
  }
  if (!isObject(value)) return null
  for (const [name, inner] of Object.entries(json.properties ?? {})) {
    const held = Object.hasOwn(value, name) ? value[name] : undefined
    const found = findWrongItem(inner as unknown as TSchema, held, `${field}/${name}`)
    if (found !== null) return found
  }
  return null
}

const refused = (details: FieldError[]): ApiError =>
  badRequest(`Validation error: ${details.map(sentence).slice(0, 5).join('; ')}`, details)

/** Throws a 400 for a value that its schema refuses. */
export const check = (schema: TSchema, value: unknown): void => {
  const validator = checkOf(schema)
  if (validator.Check(value)) return
  // A list with too many items is not checked further: each of them could have many errors.
  const long = findLongList(schema, value)
  if (long !== null) throw refused([{ field: long.field, message: explain({ keyword: 'maxItems', ...long }) }])
  const wrong = findWrongItem(schema, value)
  throw refused(toFieldErrors(wrong ?? (validator.Errors(value) as Failure[])))
}

/** The declared fields of a body, with their defaults for a create; throws a 400. */
export const readBody = (schema: TObject, body: unknown, defaults: Defaults): Record<string, unknown> => {
  const value = pick(schema, lenient(schema, body ?? {}), defaults)
  check(schema, value)
  return value as Record<string, unknown>
}

const fromText = (schema: TSchema, text: string): unknown => {
  const { type } = schema as { type?: string }
  if ((type === 'integer' || type === 'number') && /^-?\d{1,15}$/.test(text)) return Number(text)
  if (type === 'boolean' && (text === 'true' || text === 'false')) return text === 'true'
  return text
}

/** Query parameters by their schema: text becomes numbers and booleans; empty and unknown ones are ignored. */
export const readQuery = (schema: TObject, query: Record<string, unknown>): Record<string, unknown> => {
  const value: Record<string, unknown> = {}
  for (const [name, inner] of Object.entries(schema.properties)) {
    const text = Array.isArray(query[name]) ? query[name].at(-1) : query[name]
    if (typeof text === 'string' && text !== '' && text !== 'null') value[name] = fromText(inner as TSchema, text)
    else if ((inner as { default?: unknown }).default !== undefined)
      value[name] = (inner as { default?: unknown }).default
  }
  check(schema, value)
  return value as Record<string, unknown>
}

const refuseUnstorable = (value: unknown, depth: number): void => {
  if (depth > maxDepth) throw badRequest('The body is nested too deeply.')
  if (typeof value === 'string') {
    if (value.includes('\0')) throw badRequest('The body contains a NUL character, which cannot be stored.')
    if (!value.isWellFormed()) throw badRequest('The body contains text that is not valid Unicode.')
  } else if (Array.isArray(value)) {
    for (const item of value) refuseUnstorable(item, depth + 1)
  } else if (value !== null && typeof value === 'object') {
    for (const name of Object.keys(value)) {
      refuseUnstorable(name, depth + 1)
      refuseUnstorable((value as Record<string, unknown>)[name], depth + 1)
    }
  }
}

/** The most values that a schema allows; open parts count as none. */
const roomOf = (schema: TSchema | Json): number => {
  const { anyOf, items, maxItems = 0, properties } = schema as Json
  if (anyOf !== undefined) return Math.max(...anyOf.map(roomOf))
  if (items !== undefined) return 1 + maxItems * roomOf(items)
  return Object.values(properties ?? {}).reduce((sum, inner) => sum + roomOf(inner), 1)
}

const rooms = new WeakMap<TSchema, number>()

/** How many values a body of this schema may have: as many as it allows, and never fewer than the default. */
export const mostValuesOf = (schema: TSchema | undefined): number => {
  if (schema === undefined) return usualMostValues
  const known = rooms.get(schema) ?? Math.max(usualMostValues, roomOf(schema))
  rooms.set(schema, known)
  return known
}

const unreadable = (error: unknown, mostValues: number): unknown => {
  if (!(error instanceof ForeignTextError)) return error
  if (error.code === 'too_many_values')
    return refused([{ field: '', message: `must have at most ${mostValues} values` }])
  return badRequest('The body is not valid JSON.', undefined, 'malformed_json')
}

/**
 * Parses JSON; throws a 400 if it is malformed, contains what a database cannot store, or has too many values, which are
 * counted before it is parsed.
 */
export const parseJson = (text: string, mostValues = usualMostValues): unknown => {
  if (text.trim() === '') return undefined
  let value: unknown
  try {
    value = readJson(text, { mostBytes: Number.POSITIVE_INFINITY, mostValues, mostDepth: Number.POSITIVE_INFINITY })
  } catch (error) {
    throw unreadable(error, mostValues)
  }
  // Only escapes can produce such characters, and only long runs of brackets such depth.
  if (text.includes('\\u') || text.includes('[[[[') || text.length > 2 * maxDepth) refuseUnstorable(value, 0)
  return value
}
