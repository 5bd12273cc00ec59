import assert from 'node:assert/strict'
import { test } from 'node:test'
import Type, { type TSchema } from 'typebox'
import { lenient } from './lenient.ts'
import { Anything, Flag, List, Maybe, Nullable, OneOf, Open, Ref, Text, Whole } from './schema.ts'

const number = Type.Number({ minimum: 0, maximum: 10 })
const jsonText = Object.assign({}, Text(), { 'x-json-text': true }) as TSchema

const reference = Ref('helm_repository')
const source = Type.Object(
  { git: Maybe(Nullable(Open())), chart: Maybe(Nullable(Type.Object({ repository: Maybe(Nullable(reference)) }))) },
  { 'x-as-read': { git: ['from', 'git'], chart: ['repository'] } },
)

const read: [schema: TSchema, sent: unknown, expected: unknown][] = [
  [Whole(0), '8080', 8080],
  [Whole(0), '0', 0],
  [Whole(0), '-3', -3],
  [Whole(0), '99', 99],
  [number, '1.5', 1.5],
  [number, '10', 10],
  [Flag(), 'true', true],
  [Flag(), 'false', false],
  [Nullable(Whole(0)), '5', 5],
  [Nullable(Nullable(Whole(0))), '5', 5],
  [Nullable(Flag()), 'true', true],
  [List(Whole(0)), ['1', 2], [1, 2]],
  [Type.Object({ a: Maybe(Type.Object({ b: Nullable(List(Flag())) })) }), { a: { b: ['true'] } }, { a: { b: [true] } }],
  [jsonText, { a: [1] }, '{"a":[1]}'],
  [jsonText, [], '[]'],
  [jsonText, 503, '503'],
  [Nullable(jsonText), false, 'false'],
  [reference, { id: 'x', name: 'y' }, 'x'],
  [source, { from: { git: { url: 'u' } } }, { from: { git: { url: 'u' } }, git: { url: 'u' } }],
  [
    source,
    { repository: { repository: { id: 'x' } } },
    { repository: { repository: { id: 'x' } }, chart: { repository: 'x' } },
  ],
]

const kept: [schema: TSchema, sent: unknown][] = [
  ...[
    '08',
    '+8',
    '8.0',
    '1e3',
    '0x10',
    ' 8',
    '8 ',
    '',
    '-0',
    '-',
    '.5',
    '٣',
    '9007199254740993',
    'Infinity',
    'NaN',
  ].flatMap((text): [TSchema, unknown][] => [
    [Whole(0), text],
    [number, text],
  ]),
  ...['True', '1', 'yes', 'on', ''].map((text): [TSchema, unknown] => [Flag(), text]),
  [Text(), '8080'],
  [OneOf(['1', '2']), '1'],
  [Type.Union([Whole(0), Text()]), '8080'],
  [Type.Union([Text(), Flag(), Open(), Type.Null()]), 'true'],
  [Anything(), '8080'],
  [Open(), { a: '8080' }],
  [Text(), 8080],
  [Text(), { a: 1 }],
  [jsonText, '{"a":1}'],
  [reference, { id: 1 }],
  [source, { git: { url: 'u' }, repository: { repository: { id: 'x' } } }],
  [source, { from: { git: 'u' }, repository: null }],
  [jsonText, null],
  [Whole(0), ['1']],
  [Nullable(Whole(0)), null],
]

test('a text becomes the number or boolean that is wanted, and a value the text', () => {
  for (const [schema, sent, expected] of read) assert.deepEqual(lenient(schema, sent), expected, JSON.stringify(sent))
})

test('whatever is not exactly that stays as it was sent', () => {
  for (const [schema, sent] of kept) assert.equal(lenient(schema, sent), sent, JSON.stringify(sent))
})

test('fields that are not declared are left alone, and what was sent is not changed', () => {
  const schema = Type.Object({ cpu: Whole(0) })
  const sent = JSON.parse('{"cpu":"5","__proto__":{"cpu":"6"},"memory":"7"}')
  const found = lenient(schema, sent) as Record<string, unknown>
  assert.deepEqual(Object.entries(found), [
    ['cpu', 5],
    ['__proto__', { cpu: '6' }],
    ['memory', '7'],
  ])
  assert.equal(sent.cpu, '5')
  assert.equal(Object.getPrototypeOf(found), Object.prototype)
})
