/**
 * Bodies as existing clients write them: their forms send numbers and booleans as text, and a JSON value as text
 * (`x-json-text`); and clients that change a record send it as they read it, even where requests have another form
 * (`x-as-read`: by name of a field, its path in records). Pure. A text becomes the number or the boolean that its
 * schema wants only if it is exactly how that is written; never where the schema also allows a text. The result is
 * validated, stored and answered like a correctly sent body.
 */

import type { TSchema } from 'typebox'
import { isObject } from '../../lib/foreign-text/fields.ts'
import { fits, isTooLong, type Json } from './schema.ts'

/** Neither `1e3` nor `007`, `+1`, `1.50`, ` 1` or a number that would lose precision. */
const decimalForm = /^-?\d{1,16}(\.\d{1,16})?$/

const fromText = ({ type }: Json, text: string): unknown => {
  if (type === 'boolean') return text === 'true' || text === 'false' ? text === 'true' : text
  if ((type !== 'integer' && type !== 'number') || !decimalForm.test(text)) return text
  const number = Number(text)
  return String(number) === text ? number : text
}

/** The same array if nothing changes. */
const eachOf = (items: Json, values: readonly unknown[]): readonly unknown[] => {
  const read = values.map((value) => lenient(items, value))
  return read.some((value, index) => value !== values[index]) ? read : values
}

/** The same object if nothing changes; only declared fields are looked at. */
const fieldsOf = (properties: Record<string, Json>, value: Record<string, unknown>): Record<string, unknown> => {
  let read = value
  for (const name of Object.keys(properties)) {
    if (!Object.hasOwn(value, name)) continue
    const inner = lenient(properties[name]!, value[name])
    if (inner === value[name]) continue
    if (read === value) read = { ...value }
    read[name] = inner
  }
  return read
}

const under = (value: unknown, path: readonly string[]): unknown =>
  path.reduce((inner, name) => (isObject(inner) && Object.hasOwn(inner, name) ? inner[name] : undefined), value)

/** A field that was sent in the form of requests wins over all that were read. */
const asSent = (paths: Record<string, string[]>, value: Record<string, unknown>): Record<string, unknown> => {
  const names = Object.keys(paths)
  if (names.some((name) => isObject(value[name]))) return value
  const found = names.flatMap((name) => {
    const read = under(value, paths[name]!)
    return isObject(read) ? [[name, read] as const] : []
  })
  return found.length === 0 ? value : { ...value, ...Object.fromEntries(found) }
}

/** Records show the object that a reference names. */
const referred = (value: unknown): unknown => (isObject(value) && typeof value.id === 'string' ? value.id : value)

const objectOf = (json: Json, value: Record<string, unknown>): Record<string, unknown> =>
  fieldsOf(json.properties!, json['x-as-read'] === undefined ? value : asSent(json['x-as-read'], value))

const oneOf = (variants: readonly Json[], value: unknown): unknown => {
  const variant = variants.find((each) => fits(each, value))
  if (variant !== undefined) return lenient(variant, value)
  for (const each of variants) {
    const read = lenient(each, value)
    if (read !== value) return read
  }
  return value
}

/** `value` with its texts converted to the types that the schema wants. */
export const lenient = (schema: TSchema, value: unknown): unknown => {
  const json = schema as Json
  if (json.anyOf !== undefined) return oneOf(json.anyOf, value)
  if (typeof value === 'string') return fromText(json, value)
  if (json['x-json-text'] === true && value !== null && value !== undefined) return JSON.stringify(value)
  if (typeof json['x-ref'] === 'string') return referred(value)
  if (Array.isArray(value))
    return json.items === undefined || isTooLong(json, value) ? value : eachOf(json.items, value)
  if (isObject(value)) return json.properties === undefined ? value : objectOf(json, value)
  return value
}
