/**
 * The effects of the values of a request. Every declared field acts unless its schema is marked (schema.ts):
 * `recorded` is kept for clients and has no effect, `discarded` is not even kept, `refused` is a 400 with the reason.
 * Undeclared fields have no effect either. A field at its default, or with its stored value, requests nothing and is
 * neither named nor refused.
 */

import { isDeepStrictEqual } from 'node:util'
import type { TSchema } from 'typebox'
import { invalidField } from '../../lib/errors.ts'
import { isObject } from '../../lib/foreign-text/fields.ts'
import { type EffectMark, fits, type Json } from './schema.ts'

export type { EffectMark, Json } from './schema.ts'
export type Path = readonly string[]
export type Effect = 'acts' | EffectMark['effect']

interface Found {
  path: Path
  value: unknown
  mark: EffectMark
}

export const markOf = (schema: unknown): EffectMark | undefined =>
  (schema as Json)['x-effect'] as EffectMark | undefined

const isEmpty = (value: unknown): boolean =>
  value === null || value === '' || value === false || (Array.isArray(value) && value.length === 0)

/** Whether a value is what a field has when it is left out. */
const asksNothing = (schema: Json, value: unknown): boolean => {
  if (value === undefined || isDeepStrictEqual(value, schema.default)) return true
  if (schema.default === undefined && isEmpty(value)) return true
  const inner = schema.anyOf?.find((each) => fits(each, value)) ?? schema
  if (!isObject(value)) return inner !== schema && asksNothing(inner, value)
  return Object.entries(value).every(([name, each]) => {
    const declared = inner.properties?.[name]
    return declared !== undefined && asksNothing(declared, each)
  })
}

const isMarkedValue = ({ values }: EffectMark, value: unknown): boolean =>
  values === undefined || (typeof value === 'string' && values.includes(value))

function* markedIn(schema: TSchema | Json, value: unknown, path: Path = []): Generator<Found> {
  const json = schema as Json
  const mark = markOf(json)
  if (mark !== undefined) {
    if (isMarkedValue(mark, value) && !asksNothing(json, value)) yield { path, value, mark }
    if (mark.values === undefined) return
  }
  const variant = json.anyOf?.find((each) => fits(each, value))
  if (variant !== undefined) yield* markedIn(variant, value, path)
  if (json.properties !== undefined && isObject(value))
    for (const [name, inner] of Object.entries(json.properties))
      if (Object.hasOwn(value, name)) yield* markedIn(inner, value[name], [...path, name])
  if (json.items !== undefined && Array.isArray(value))
    for (const [index, item] of value.entries()) yield* markedIn(json.items, item, [...path, String(index)])
}

export function* unknownIn(schema: TSchema | Json, value: unknown, path: Path = []): Generator<Path> {
  const json = schema as Json
  const variant = json.anyOf?.find((each) => fits(each, value))
  if (variant !== undefined) yield* unknownIn(variant, value, path)
  if (json['x-anything'] === true) return
  if (json.properties !== undefined && isObject(value))
    for (const name of Object.keys(value)) {
      const declared = Object.hasOwn(json.properties, name) ? json.properties[name]! : undefined
      if (declared === undefined) yield [...path, name]
      else yield* unknownIn(declared, value[name], [...path, name])
    }
  if (json.items !== undefined && Array.isArray(value))
    for (const [index, item] of value.entries()) yield* unknownIn(json.items, item, [...path, String(index)])
}

/** The fields of a value that are only recorded or discarded, and request something. */
export function* withoutEffectIn(schema: TSchema, value: unknown): Generator<Path> {
  for (const { path, mark } of markedIn(schema, value))
    if (mark.effect !== 'refused' && mark.where === undefined) yield path
}

/** The fields of a value that act where a module reads them, or on Kubernetes clusters, and request something. */
export function* actingIn(
  where: NonNullable<EffectMark['where']>,
  schema: TSchema,
  value: unknown,
): Generator<{ path: Path; value: unknown }> {
  for (const { path, value: wanted, mark } of markedIn(schema, value))
    if (mark.where === where) yield { path, value: wanted }
}

export const valueAt = (value: unknown, path: Path): unknown => {
  const [name, ...rest] = path
  if (name === undefined) return value
  const isInside = typeof value === 'object' && value !== null && Object.hasOwn(value, name)
  return isInside ? valueAt((value as Record<string, unknown>)[name], rest) : undefined
}

export const pointerTo = (path: Path): string =>
  path.map((name) => `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')

/** Throws a 400 for a field that is marked `refused`, unless it has its default or its stored value. */
export const refuseMarked = (schema: TSchema, value: unknown, kept: unknown = undefined): void => {
  for (const { path, value: wanted, mark } of markedIn(schema, value)) {
    if (mark.effect !== 'refused' || isDeepStrictEqual(valueAt(kept, path), wanted)) continue
    throw invalidField(pointerTo(path), mark.reason!)
  }
}

const idle = {
  recorded: 'Stored and returned; has no effect on this server.',
  discarded: 'Accepted, but not stored; has no effect on this server.',
}

/** The sentence about a marked field in its description; null for one that acts. */
export const effectSentence = (schema: unknown): string | null => {
  const mark = markOf(schema)
  if (mark === undefined) return null
  const { effect, reason, values } = mark
  if (mark.where !== undefined)
    return `${reason![0]!.toUpperCase()}${reason!.slice(1).replace(/\[(\w+)\]\([^)]*\)/, '$1')}`
  const more = reason === undefined ? '' : ` ${reason[0]!.toUpperCase()}${reason.slice(1)}`
  const subject = values?.map((value) => `\`${value}\``).join(', ')
  if (effect !== 'refused') return `${subject === undefined ? '' : `${subject}: `}${idle[effect]}${more}`
  const what = subject === undefined ? 'Any value but the default is refused' : `${subject}: refused`
  return `${what}: ${reason!}${/[.!?]$/.test(reason!) ? '' : '.'}`
}
