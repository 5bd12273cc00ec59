/**
 * The header `Slipway-Not-Applied`: JSON pointers to values in this request that this server does not act on, because
 * they are only recorded, discarded or unknown; `?name` for a query parameter. Never a value; bounded, however much
 * was sent.
 */
import { isDeepStrictEqual } from 'node:util'
import Type from 'typebox'
import { type Path, unknownIn, valueAt, withoutEffectIn } from './effects.ts'
import type { Operation } from './operation.ts'

export const notAppliedHeader = 'slipway-not-applied'

const maxNames = 20
const maxLength = 1000
/** Longer names are cut; no name of ours is longer. */
const maxName = 100
const more = '...'

/** Values that were sent and have no effect. */
export interface NotApplied {
  query: string[]
  idle: Path[]
  /** With the sent value: a client that sends back what it read requested nothing new. */
  unknown: { path: Path; value: unknown }[]
}

const first = <T>(all: Iterable<T>): T[] => {
  const found: T[] = []
  for (const each of all) {
    if (found.length > maxNames) break
    found.push(each)
  }
  return found
}

/** Fields of a record that every write changes: sending them back requests nothing. */
const stamps: ReadonlySet<string> = new Set(['updated_at', 'last_updated_by'])

const noFields = Type.Object({})

const unknownWords = (operation: Operation, query: Record<string, unknown>): string[] => {
  const known = operation.query?.properties ?? {}
  return Object.keys(query).filter((name) => !Object.hasOwn(known, name) && name !== operation.owner.param)
}

const idleWords = ({ query: schema }: Operation, read: Record<string, unknown>): string[] =>
  schema === undefined ? [] : first(withoutEffectIn(schema, read)).map(([name]) => name!)

/** `sent` is the body as it came, `read` the declared part of it; both null without a body. */
export const notApplied = (
  operation: Operation,
  query: { sent: Record<string, unknown>; read: Record<string, unknown> },
  body: { sent: unknown; read: unknown } | null,
): NotApplied => {
  const schema = operation.body ?? noFields
  return {
    query: [...unknownWords(operation, query.sent), ...idleWords(operation, query.read)],
    idle: body === null ? [] : first(withoutEffectIn(schema, body.read)),
    unknown:
      body === null
        ? []
        : first(unknownIn(schema, body.sent))
            .filter((path) => !stamps.has(path.at(-1)!))
            .map((path) => ({ path, value: valueAt(body.sent, path) })),
  }
}

const encodeName = (name: string): string =>
  encodeURIComponent(name.slice(0, maxName).toWellFormed().replaceAll('~', '~0').replaceAll('/', '~1'))

const encodePath = (path: Path): string => path.map((name) => `/${encodeName(name)}`).join('')

/** The header's value for an answer; null if everything that was sent acts. `answer` is read only if it is needed. */
export const headerOf = ({ query, idle, unknown }: NotApplied, answer: () => unknown): string | null => {
  if (query.length + idle.length + unknown.length === 0) return null
  const record = unknown.length === 0 ? undefined : answer()
  const ignored = unknown.filter(({ path, value }) => !isDeepStrictEqual(valueAt(record, path), value))
  const names = [
    ...idle.map(encodePath),
    ...ignored.map(({ path }) => encodePath(path)),
    ...query.map((name) => `?${encodeName(name)}`),
  ]
  if (names.length === 0) return null
  const shown: string[] = []
  let length = more.length
  for (const name of names) {
    length += name.length + 2
    if (shown.length === maxNames || length > maxLength) return [...shown, more].join(', ')
    shown.push(name)
  }
  return shown.join(', ')
}
