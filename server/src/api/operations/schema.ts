/**
 * The vocabulary of our schemas. Every string has a maximum length, every number a range, every array a maximum. Marks:
 * `Ref` (an id of the same organization), `Secret` (sealed, never answered), `Computed`, and what a value does, if it does
 * not act: `Recorded`, `Discarded`, `Refused`, `RecordedValues`, `RefusedValues` (effects.ts).
 */

import Type, { type TObject, type TProperties, type TSchema, type TSchemaOptions } from 'typebox'
import { isObject } from '../../lib/foreign-text/fields.ts'

const uuidPattern = '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$'
const maxInteger = 2_147_483_647

export const Uuid = (options: TSchemaOptions = {}) =>
  Type.String({ format: 'uuid', pattern: uuidPattern, maxLength: 36, ...options })
export const Text = (maxLength = 255, options: TSchemaOptions = {}) => Type.String({ maxLength, ...options })
/** A resource's name: no control characters, not only spaces. */
export const Name = () =>
  Type.String({ minLength: 1, maxLength: 255, pattern: '^(?=.*\\S)[^\\u0000-\\u001f\\u007f]+$' })
export const Whole = (minimum: number, maximum = maxInteger, options: TSchemaOptions = {}) =>
  Type.Integer({ minimum, maximum, ...options })
export const Flag = (options: TSchemaOptions = {}) => Type.Boolean(options)
export const Timestamp = () => Type.String({ format: 'date-time', maxLength: 40 })
export const OneOf = (values: readonly string[], options: TSchemaOptions = {}) =>
  Type.Unsafe<string>({ type: 'string', enum: [...values], ...options })
export const List = <T extends TSchema>(items: T, maxItems = 100, options: TSchemaOptions = {}) =>
  Type.Array(items, { maxItems, ...options })
export const Maybe = <T extends TSchema>(schema: T) => Type.Optional(schema)
export const Nullable = <T extends TSchema>(schema: T, options: TSchemaOptions = {}) =>
  Type.Union([schema, Type.Null()], options)
/** Any JSON value, stored as it was sent. */
export const Anything = () => Type.Unsafe<unknown>({ 'x-anything': true })
export const Open = () =>
  Type.Unsafe<Record<string, unknown>>({ type: 'object', additionalProperties: true, 'x-anything': true })

/** The id of a row of this kind in the same organization. */
export const Ref = (kind: string) => Uuid({ 'x-ref': kind })
/** Sealed at rest and never answered. */
export const Secret = (maxLength: number) => Type.String({ maxLength, writeOnly: true, 'x-secret': true })
/** A secret in the response of the request that made it: replayed to the same credential only. */
export const ShownOnce = (maxLength: number, options: TSchemaOptions = {}) =>
  Type.String({ maxLength, 'x-shown-once': true, ...options })
/** Only in responses. */
export const Computed = <T extends TSchema>(schema: T) => Type.Unsafe<Type.Static<T>>({ ...schema, readOnly: true })

/** The effect of a value in a request that does not act, or which of an enum's values do not. */
export interface EffectMark {
  effect: 'recorded' | 'discarded' | 'refused'
  /** For `refused`, the reason; else an additional sentence. */
  reason?: string
  /** Only these values. */
  values?: readonly string[]
  /** It acts where a module of the operator reads it, or on Kubernetes clusters; `reason` says so, and the operation names it elsewhere. */
  where?: 'module' | 'kubernetes'
}

const marked = <T extends TSchema>(schema: T, mark: EffectMark): T =>
  // Whether a schema is optional is in a property that a spread leaves out.
  Object.defineProperties(
    {},
    {
      ...Object.getOwnPropertyDescriptors(schema),
      'x-effect': { value: mark, enumerable: true, configurable: true, writable: true },
    },
  ) as T

/** Kept for clients and without effect. Nothing that protects may be only recorded. */
export const Recorded = <T extends TSchema>(schema: T, reason?: string): T =>
  marked(schema, { effect: 'recorded', ...(reason === undefined ? {} : { reason }) })
/** Kept, and given to the module that makes a cluster at its provider, where there is one (clusters/modules.ts). */
export const ForModule = <T extends TSchema>(
  schema: T,
  reason = 'the [module](cloud-clusters.md) of a MANAGED cluster can read it; elsewhere it is stored and returned, without effect.',
): T => marked(schema, { effect: 'recorded', where: 'module', reason })
/** Kept, and carried out by clusters that have several machines and controllers of their own. */
export const ForKubernetes = <T extends TSchema>(schema: T, what: string): T =>
  marked(schema, {
    effect: 'recorded',
    where: 'kubernetes',
    reason: `${what} On a Docker engine it is stored and returned, without effect.`,
  })
/** The same for each of these fields. */
export const AllRecorded = <T extends TProperties>(fields: T, reason?: string): T =>
  Object.fromEntries(Object.entries(fields).map(([name, schema]) => [name, Recorded(schema, reason)])) as T
/** Accepted, but neither stored nor of any effect, as query parameters without effect always are. */
export const Discarded = <T extends TSchema>(schema: T, reason?: string): T =>
  marked(schema, { effect: 'discarded', ...(reason === undefined ? {} : { reason }) })
/** The same for each of these fields. */
export const AllDiscarded = <T extends TProperties>(fields: T): T =>
  Object.fromEntries(Object.entries(fields).map(([name, schema]) => [name, Discarded(schema)])) as T
/** 400 with the reason, unless it is the default or the stored value. */
export const Refused = <T extends TSchema>(schema: T, reason: string): T =>
  marked(schema, { effect: 'refused', reason })
/** An enum of which these values are only kept. */
export const RecordedValues = <T extends TSchema>(schema: T, values: readonly string[], reason?: string): T =>
  marked(schema, { effect: 'recorded', values, ...(reason === undefined ? {} : { reason }) })
/** An enum of which these values are refused. */
export const RefusedValues = <T extends TSchema>(schema: T, values: readonly string[], reason: string): T =>
  marked(schema, { effect: 'refused', values, reason })

export const Reference = () => Type.Object({ id: Uuid() })
export const Results = <T extends TSchema>(item: T) => Type.Object({ results: Type.Array(item) })

export type Json = Record<string, unknown> & {
  properties?: Record<string, Json>
  required?: string[]
  items?: Json
  maxItems?: number
  anyOf?: Json[]
  default?: unknown
  'x-as-read'?: Record<string, string[]>
}

/** Whether a value is of the type that a schema asks for. */
export const fits = (schema: Json, value: unknown): boolean => {
  if (schema.type === 'array') return Array.isArray(value)
  if (schema.type === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value)
  if (schema.type === 'null') return value === null
  if (schema.type === 'integer') return typeof value === 'number'
  return schema.type === undefined || typeof value === schema.type
}

/** Where defaults are filled in: everywhere, only in nested objects (an edit keeps what it leaves out), or nowhere. */
export type Defaults = boolean | 'nested'

/** Whether a list is longer than its schema allows: then its items are not looked at. */
export const isTooLong = ({ maxItems }: Json, value: readonly unknown[]): boolean =>
  maxItems !== undefined && value.length > maxItems

interface LongList {
  field: string
  params: { limit: number }
}

/** The path is made on the way back: usually there is no such list. */
const within = (name: string | number, found: LongList | null): LongList | null =>
  found === null ? null : { ...found, field: `/${name}${found.field}` }

/** The first list that is longer than its schema allows, as a JSON pointer; null if there is none. */
export const findLongList = (schema: TSchema | Json, value: unknown): LongList | null => {
  const json = schema as Json
  if (typeof value !== 'object' || value === null) return null
  const variant = json.anyOf?.find((each) => fits(each, value))
  if (variant !== undefined) return findLongList(variant, value)
  if (Array.isArray(value)) {
    if (json.items === undefined) return null
    if (isTooLong(json, value)) return { field: '', params: { limit: json.maxItems! } }
    for (let index = 0; index < value.length; index += 1) {
      const found = within(index, findLongList(json.items, value[index]))
      if (found !== null) return found
    }
    return null
  }
  for (const name in json.properties) {
    const found = Object.hasOwn(value, name)
      ? within(name, findLongList(json.properties[name]!, (value as Record<string, unknown>)[name]))
      : null
    if (found !== null) return found
  }
  return null
}

/** A copy of `value` with only the fields that `schema` declares, and its defaults as `defaults` says. */
export const pick = (schema: TSchema, value: unknown, defaults: Defaults): unknown => {
  const json = schema as Json
  if (json.anyOf !== undefined) {
    const variant = json.anyOf.find((each) => fits(each, value))
    return variant === undefined ? value : pick(variant, value, defaults)
  }
  if (json['x-anything'] === true) return value
  if (json.properties !== undefined && isObject(value)) return pickFields(json.properties, value, defaults)
  if (json.items !== undefined && Array.isArray(value))
    return isTooLong(json, value) ? value : value.map((item) => pick(json.items!, item, defaults))
  return value
}

const pickFields = (properties: Record<string, Json>, value: Record<string, unknown>, defaults: Defaults) => {
  const picked: Record<string, unknown> = {}
  for (const [name, schema] of Object.entries(properties)) {
    if (Object.hasOwn(value, name)) picked[name] = pick(schema, value[name], defaults !== false)
    else if (defaults === true && schema.default !== undefined) picked[name] = structuredClone(schema.default)
  }
  return picked
}

/** Every `Ref` in a value, with its field as a JSON pointer. */
export const refsIn = (schema: TSchema, value: unknown, field = ''): { kind: string; id: string; field: string }[] => {
  const json = schema as Json
  if (json.anyOf !== undefined) {
    const variant = json.anyOf.find((each) => fits(each, value))
    return variant === undefined ? [] : refsIn(variant, value, field)
  }
  if (typeof json['x-ref'] === 'string')
    return typeof value === 'string' ? [{ kind: json['x-ref'], id: value.toLowerCase(), field }] : []
  if (json.properties !== undefined && isObject(value))
    return Object.entries(json.properties).flatMap(([name, inner]) => refsIn(inner, value[name], `${field}/${name}`))
  if (json.items !== undefined && Array.isArray(value))
    return value.flatMap((item, index) => refsIn(json.items!, item, `${field}/${index}`))
  return []
}

const isSecret = (schema: unknown): boolean => (schema as Json)['x-secret'] === true

/** The paths of the fields marked `Secret`: `token`, `config.password`. */
export const secretPaths = (schema: TObject): string[] =>
  Object.entries(schema.properties).flatMap(([name, inner]) => {
    if (isSecret(inner)) return [name]
    const nested = (inner as Json).properties !== undefined
    return nested ? secretPaths(inner as TObject).map((path) => `${name}.${path}`) : []
  })

/** Whether a schema has a field marked `ShownOnce`, at any depth. */
export const showsSecret = (schema: unknown): boolean => {
  if (!isObject(schema)) return false
  return schema['x-shown-once'] === true || Object.values(schema).some(showsSecret)
}

/** The same object without the fields marked `Secret`. */
export const withoutSecrets = (schema: TObject): TObject => {
  const open = Object.entries(schema.properties).filter(([, inner]) => !isSecret(inner))
  const fields = open.map(([name, inner]) => {
    if (!secretPaths(schema).some((path) => path.startsWith(`${name}.`))) return [name, inner]
    const kept = withoutSecrets(inner as TObject)
    return [name, Type.IsOptional(inner) ? Type.Optional(kept) : kept]
  })
  return Type.Object<TProperties>(Object.fromEntries(fields))
}

export const partial = (schema: TObject): TObject => Type.Partial(schema) as TObject

/** An object schema with the fields of both; `more` takes precedence. */
export const merge = (base: TObject, more: Record<string, TSchema>, without: readonly string[] = []): TObject => {
  const kept = Object.entries(base.properties).filter(([name]) => !without.includes(name))
  return Type.Object<TProperties>({ ...Object.fromEntries(kept), ...more })
}
