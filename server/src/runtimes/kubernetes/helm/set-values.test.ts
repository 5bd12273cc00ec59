import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Pair, valuesRoom, withVariables, writeSetValues } from './set-values.ts'

const none = { set: [], setString: [], setJson: [] }
const written = (values: Partial<typeof none> | object): unknown =>
  JSON.parse(writeSetValues({ ...none, ...values }) ?? 'null')

test('single values become the tree that helm makes of them', () => {
  const cases: [Pair[], unknown][] = [
    [[], null],
    [[['a', '1']], { a: 1 }],
    [
      [
        ['a.b.c', 'x'],
        ['a.b.d', 'true'],
      ],
      { a: { b: { c: 'x', d: true } } },
    ],
    [[['a\\.b.c', 'null']], { 'a.b': { c: null } }],
    [
      [
        ['list[0].name', 'x'],
        ['list[1].name', 'y'],
      ],
      { list: [{ name: 'x' }, { name: 'y' }] },
    ],
    [[['a[0][1]', 'x']], { a: [[null, 'x']] }],
    [[['a', '{x,2,y\\,z}']], { a: ['x', 2, 'y,z'] }],
    [[['a', '{}']], { a: [] }],
    [
      [
        ['a', '012'],
        ['b', '-3'],
        ['c', '1.5'],
        ['d', ''],
      ],
      { a: '012', b: -3, c: '1.5', d: '' },
    ],
    [[['a', 'x\\,y']], { a: 'x,y' }],
    [
      [
        ['a', 'x'],
        ['a.b', 'y'],
      ],
      { a: { b: 'y' } },
    ],
    [[['constructor.prototype.x', '1']], { constructor: { prototype: { x: 1 } } }],
  ]
  for (const [set, tree] of cases) assert.deepEqual(written({ set }), tree, JSON.stringify(set))
  assert.deepEqual(
    written({
      setString: [
        ['a', '1'],
        ['b', '{true,x}'],
      ],
    }),
    { a: '1', b: ['true', 'x'] },
  )
  assert.deepEqual(written({ setJson: [['a.b', '{"c":[1]}']], set: [['a.b.c[1]', '2']] }), { a: { b: { c: [1, 2] } } })
})

test('an invalid path is refused by name, and never with its value', () => {
  const refused: [string, RegExp][] = [
    ['', /path/],
    ['[0]', /path/],
    ['a[x]', /path/],
    ['a[0', /path/],
    ['a[1001]', /above 1000/],
    ['__proto__.x', /path/],
    ['a.__proto__.x', /path/],
    ['a.'.repeat(31), /path/],
  ]
  for (const [path, reason] of refused)
    assert.throws(
      () => writeSetValues({ ...none, set: [[path, 'hidden']] }),
      (error: Error) => reason.test(error.message) && !error.message.includes('hidden'),
      path,
    )
  assert.throws(() => writeSetValues({ ...none, setJson: [['a', '{hidden']] }), /^(?!.*hidden).*"a" is not JSON/)
  assert.equal(({} as { x?: unknown }).x, undefined)
})

test('variables take the place of their names, and unknown names stay', () => {
  const variables = { A: '1', B: '$& qovery.env.A' }
  assert.equal(
    withVariables('x: slipway.env.A qovery.env.B slipway.env.C slipway.env.toString', variables),
    'x: 1 $& qovery.env.A slipway.env.C slipway.env.toString',
  )
  const dotted = { HOST: 'db', 'spring.url': 'jdbc', 'npm-token': 'word', A: '1' }
  const cases = [
    ['slipway.env.spring.url', 'jdbc'],
    ['slipway.env.spring.url.x', 'jdbc.x'],
    ['slipway.env.spring.urls', 'slipway.env.spring.urls'],
    ['slipway.env.HOST.internal:5432', 'db.internal:5432'],
    ['slipway.env.HOSTS', 'slipway.env.HOSTS'],
    ['slipway.env.npm-token-qovery.env.A-qovery.env.A', 'word-1-1'],
    ['slipway.env.none.slipway.env.A', 'slipway.env.none.1'],
  ] as const
  for (const [written, meant] of cases) assert.equal(withVariables(written, dotted), meant)
})

test('a text that names a long variable again and again is refused before it is written', () => {
  const long = { A: 'x'.repeat(65_536) }
  assert.throws(() => withVariables('slipway.env.A '.repeat(60_000), long), /larger than 1 MiB together/)
  assert.equal(withVariables('slipway.env.A '.repeat(15), long).length, 15 * 65_537)
  assert.throws(() => withVariables('y'.repeat(2 ** 20 + 1), {}), /larger than 1 MiB together/)
  const nested = `${'slipway.env.'.repeat(80_000)}A`
  assert.throws(() => withVariables(nested, { A: 'a' }), /refer to variables more than 5000 times/)
  // The room for all values of a chart.
  const room = valuesRoom()
  withVariables('slipway.env.A '.repeat(15), long, room)
  assert.throws(() => withVariables('slipway.env.A', long, room), /larger than 1 MiB/)
})
