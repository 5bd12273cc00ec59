import assert from 'node:assert/strict'
import { test } from 'node:test'
import { block, createLabels, quoted, reference } from './hcl.ts'

test('a text never becomes a template or leaves its quotes', () => {
  assert.equal(quoted('a "b" ${c} %{if} \\ \n'), '"a \\"b\\" $${c} %%{if} \\\\ \\n"')
  assert.equal(quoted('\b\f\\b'), '"\\u0008\\u000c\\\\b"')
})

test('blocks hold nested values and references, without what is not set', () => {
  const text = block('resource "a" "b"', {
    id: reference('a.b.id'),
    none: null,
    list: [1, 'two', { three: true }],
    empty: [],
    object: { nothing: undefined },
    'odd key': 1,
  })
  assert.equal(
    text,
    'resource "a" "b" {\n  id = a.b.id\n  list = [\n    1,\n    "two",\n    {\n      three = true\n    },\n  ]\n  empty = []\n  object = {}\n  "odd key" = 1\n}\n',
  )
})

test('labels are words that stand once each', () => {
  const label = createLabels()
  assert.deepEqual(['My App!', 'my_app', 'my app', '1st', '€'].map(label), [
    'my_app',
    'my_app_2',
    'my_app_3',
    '_1st',
    '_',
  ])
})
