/**
 * Every field that a request can have, with its effect: a row for each query parameter and each leaf field of a body,
 * with the values of an enum, and for each value whose effect differs from its field's. Pure.
 */
import type { TSchema } from 'typebox'
import { type Effect, type EffectMark, type Json, markOf } from './effects.ts'
import type { Operation } from './operation.ts'

export interface FieldRow {
  operation: Operation
  /** `?word` of the query, or a JSON pointer into the body in which `*` is any item or name; `…=VALUE` of an enum. */
  field: string
  effect: Effect
  reason: string | null
  /** It acts on some clusters only. */
  elsewhere: boolean
  schema: Json
  /** The values of an enum with the same effect as the field. */
  values: readonly string[]
}

interface Leaf {
  field: string
  schema: Json
  mark: EffectMark | undefined
}

/** The leaf fields of a schema; its own mark covers all of them. */
const leavesIn = (schema: Json, field: string, above: EffectMark | undefined): Leaf[] => {
  const own = markOf(schema)
  const mark = above ?? (own?.values === undefined ? own : undefined)
  const inner = [
    ...(schema.anyOf ?? []).filter(({ type }) => type !== 'null').flatMap((each) => leavesIn(each, field, mark)),
    ...Object.entries(schema.properties ?? {}).flatMap(([name, each]) => leavesIn(each, `${field}/${name}`, mark)),
    ...(schema.items?.properties === undefined && schema.items?.anyOf === undefined
      ? []
      : leavesIn(schema.items, `${field}/*`, mark)),
  ]
  const values = own?.values?.map((value) => ({ field: `${field}=${value}`, schema, mark: above ?? own })) ?? []
  const isLeaf = inner.every((leaf) => leaf.field === field || leaf.field.startsWith(`${field}=`))
  return isLeaf ? [{ field, schema, mark }, ...inner.filter((leaf) => leaf.field !== field), ...values] : inner
}

/** The values of a closed list that have no row of their own, or of a list of such values; none for any other schema. */
const valuesOf = (schema: Json): string[] => [
  ...((schema.enum as string[] | undefined) ?? []).filter((value) => markOf(schema)?.values?.includes(value) !== true),
  ...(schema.anyOf ?? []).flatMap(valuesOf),
  ...(schema.items === undefined || schema.items.properties !== undefined ? [] : valuesOf(schema.items)),
]

const rowOf = (operation: Operation, { field, schema, mark }: Leaf): FieldRow => ({
  operation,
  field,
  effect: mark?.effect ?? 'acts',
  reason: mark?.reason ?? null,
  elsewhere: mark?.where !== undefined,
  schema,
  values: field.includes('=') ? [] : [...new Set(valuesOf(schema))],
})

export const fieldsOf = (operation: Operation): FieldRow[] => {
  const words = Object.entries((operation.query?.properties ?? {}) as Record<string, Json>)
  const leaves = [
    ...words.flatMap(([name, schema]) => leavesIn(schema, `?${name}`, undefined)),
    ...(operation.body === undefined ? [] : leavesIn(operation.body as TSchema as Json, '', undefined)),
  ].filter(({ field }) => field !== '')
  // Variants of one field may share fields.
  return [...new Map(leaves.map((leaf) => [leaf.field, rowOf(operation, leaf)])).values()]
}
