import assert from 'node:assert/strict'
import { test } from 'node:test'
import Type from 'typebox'
import { longestParsed } from '../../../test/support/longest-parsed.ts'
import type { ApiError, FieldError } from '../../lib/errors.ts'
import { List, Maybe, Nullable, Text, Whole } from './schema.ts'
import { check, mostValuesOf, parseJson, readBody } from './validate.ts'

const probe = Type.Object({ port: Whole(1), path: Maybe(Nullable(Text(3))) })
const schema = Type.Object({ type: Maybe(Nullable(Type.Object({ http: Maybe(Nullable(probe)) }))) })

const refused = (value: unknown): FieldError[] => {
  try {
    check(schema, value)
  } catch (error) {
    return (error as ApiError).details!
  }
  return []
}

test('an error inside an object that may be null is reported alone; the object need not be null', () => {
  const cases: [unknown, FieldError[]][] = [
    [{ type: null }, []],
    [{ type: { http: { port: 0 } } }, [{ field: '/type/http/port', message: 'must be at least 1' }]],
    [{ type: { http: {} } }, [{ field: '/type/http/port', message: 'is required' }]],
    [{ type: { http: { port: 1, path: 2 } } }, [{ field: '/type/http/path', message: 'must be of type string' }]],
    [{ type: { http: 'x' } }, [{ field: '/type/http', message: 'must be of type object' }]],
    [{ type: 5 }, [{ field: '/type', message: 'must be of type object' }]],
  ]
  for (const [value, details] of cases) assert.deepEqual(refused(value), details)
})

const detailsOf = (work: () => unknown): FieldError[] => {
  try {
    work()
  } catch (error) {
    return (error as ApiError).details!
  }
  throw new Error('nothing was refused')
}

/** Counts how often it is accessed. */
const watched = (value: object): { value: object; looks: () => number } => {
  let looks = 0
  const look = <T>(result: T): T => {
    looks += 1
    return result
  }
  const proxy = new Proxy(value, {
    get: (target, name, receiver) => look(Reflect.get(target, name, receiver)),
    has: (target, name) => look(Reflect.has(target, name)),
    ownKeys: (target) => look(Reflect.ownKeys(target)),
    getOwnPropertyDescriptor: (target, name) => look(Reflect.getOwnPropertyDescriptor(target, name)),
  })
  return { value: proxy, looks: () => looks }
}

const item = Type.Object({ id: Whole(1), name: Maybe(Text(3)) })
const listed = Type.Object({ few: Maybe(List(item, 20)), many: Maybe(List(item, 10_000)) })

test('a body with more values than its schema has room for is refused before it is parsed', (t) => {
  const small = Type.Object({ few: Maybe(List(item, 20)) })
  const longest = longestParsed(t)
  for (const [schema, most] of [
    [small, 10_000],
    [listed, 30_063],
  ] as const) {
    assert.equal(mostValuesOf(schema), most)
    for (const text of [`{"few":[${'{},'.repeat(most)}{}]}`, `{"x":[${'1,'.repeat(most)}1]}`])
      assert.deepEqual(
        detailsOf(() => parseJson(text, mostValuesOf(schema))),
        [{ field: '', message: `must have at most ${most} values` }],
      )
  }
  assert.equal(longest(), 0)
  assert.deepEqual(parseJson(`{"x":[${'1,'.repeat(9000)}1]}`), { x: Array(9001).fill(1) })
})

test('of a list that is too long only its length is looked at', () => {
  const one = watched({})
  const body = { few: Array(21).fill(one.value) }
  assert.deepEqual(
    detailsOf(() => readBody(listed, body, true)),
    [{ field: '/few', message: 'must have at most 20 items' }],
  )
  // The first item may be judged before the length is.
  assert.ok(one.looks() < 5, String(one.looks()))
})

test('the errors of a long list are those of its first wrong item only', () => {
  const after = watched({ id: 0 })
  const many = [{ id: 1 }, { id: 0, name: 'long' }, ...Array(5000).fill(after.value)]
  assert.deepEqual(
    detailsOf(() => check(listed, { many })),
    [
      { field: '/many/1/id', message: 'must be at least 1' },
      { field: '/many/1/name', message: 'must have at most 3 characters' },
    ],
  )
  // The length of each list inside is compared with its maximum.
  assert.ok(after.looks() <= 3 * 5000, String(after.looks()))
})
