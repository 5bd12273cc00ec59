import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { resolveVariables, type VisibleVariable } from './resolve.ts'

let count = 0
const row = (key: string, value: string | null, more: Partial<VisibleVariable> = {}): VisibleVariable => ({
  id: `id-${key}-${more.scope ?? 'APPLICATION'}-${count++}`,
  key,
  value,
  scope: 'APPLICATION',
  isSecret: false,
  variableType: 'VALUE',
  mountPath: null,
  interpolateInFile: false,
  targetId: null,
  ...more,
})
const alias = (key: string, target: VisibleVariable, scope = 'APPLICATION'): VisibleVariable =>
  row(key, null, { scope, variableType: 'ALIAS', targetId: target.id, isSecret: target.isSecret })
const override = (target: VisibleVariable, value: string, scope = 'APPLICATION'): VisibleVariable =>
  row(target.key, value, { scope, variableType: 'OVERRIDE', targetId: target.id, isSecret: target.isSecret })
const file = (key: string, path: string, content: string, more: Partial<VisibleVariable> = {}) =>
  row(key, content, { variableType: 'FILE', mountPath: path, ...more })

const builtIn = row('SLIPWAY_HOST', 'host', { scope: 'BUILT_IN', variableType: 'BUILT_IN' })
const wide = row('URL', 'project', { scope: 'PROJECT' })
const middle = override(wide, 'environment', 'ENVIRONMENT')
const config = file('CONFIG', '/etc/app.json', '{"a":"{{ A }}"}', { scope: 'PROJECT' })
const loopA = { ...row('LOOP_A', null, { variableType: 'ALIAS' }), id: 'la', targetId: 'lb' }
const loopB = { ...row('LOOP_B', null, { variableType: 'ALIAS' }), id: 'lb', targetId: 'la' }

const cases: [string, VisibleVariable[], Record<string, string>][] = [
  ['nothing', [], {}],
  ['a value', [row('A', '1')], { A: '1' }],
  ['an empty value', [row('A', '')], { A: '' }],
  ['the service over the project', [wide, row('URL', 'own')], { URL: 'own' }],
  ['the environment over the project', [middle, wide], { URL: 'environment' }],
  ['the service over the environment', [wide, middle, override(wide, 'own')], { URL: 'own' }],
  ['any service scope over the environment', [middle, row('URL', 'job', { scope: 'JOB' })], { URL: 'job' }],
  ['every scope over built-in', [builtIn, row('SLIPWAY_HOST', 'x', { scope: 'PROJECT' })], { SLIPWAY_HOST: 'x' }],
  ['an alias of a value', [wide, alias('ALSO', wide)], { ALSO: 'project', URL: 'project' }],
  ['an alias of what is built in', [builtIn, alias('DB', builtIn)], { DB: 'host', SLIPWAY_HOST: 'host' }],
  ['an alias follows an override', [wide, middle, alias('ALSO', wide)], { ALSO: 'environment', URL: 'environment' }],
  ['an alias with the key of its target', [wide, alias('URL', wide)], { URL: 'project' }],
  ['an alias whose target is gone', [alias('ALSO', wide)], {}],
  ['aliases in a circle', [loopA, loopB], {}],
  ['an override whose target is gone', [override(wide, 'own')], { URL: 'own' }],
  ['interpolation', [row('A', '1'), row('B', 'x{{A}}y{{ A }}z')], { A: '1', B: 'x1y1z' }],
  ['interpolation through two', [row('A', '1'), row('B', '{{A}}2'), row('C', '{{B}}3')], { A: '1', B: '12', C: '123' }],
  ['interpolation of an inherited value', [wide, row('B', '{{URL}}')], { URL: 'project', B: 'project' }],
  [
    'interpolation of a narrower value',
    [wide, middle, row('B', '{{URL}}', { scope: 'PROJECT' })],
    { URL: 'environment', B: 'environment' },
  ],
  ['an unknown key', [row('B', '{{NOPE}} {{ NOPE }}')], { B: '{{NOPE}} {{ NOPE }}' }],
  [
    'keys with dots and dashes',
    [row('a.b-c', '1'), row('-x', '2'), row('B', '{{a.b-c}} {{ -x }} {{a.b}} {{a.b-c.}}')],
    { 'a.b-c': '1', '-x': '2', B: '1 2 {{a.b}} {{a.b-c.}}' },
  ],
  [
    'what is no reference',
    [row('A', '1'), row('B', '{A} {{A {{}} {{1A}} {{A-B}}')],
    { A: '1', B: '{A} {{A {{}} {{1A}} {{A-B}}' },
  ],
  [
    'replacement patterns stay as they are',
    [row('A', '$& $1 $$'), row('B', '[{{A}}]')],
    { A: '$& $1 $$', B: '[$& $1 $$]' },
  ],
  ['a reference to itself', [row('A', 'x{{A}}'), row('B', '{{A}}')], { A: 'x{{A}}', B: 'x{{A}}' }],
  ['a circle', [row('A', '1{{B}}'), row('B', '2{{A}}')], { A: '1{{B}}', B: '2{{A}}' }],
  ['beside a circle', [row('A', '{{B}}{{X}}'), row('B', '{{A}}'), row('X', 'x')], { A: '{{B}}x', B: '{{A}}', X: 'x' }],
  ['a result is not read again', [row('A', '{'), row('B', '{{A}}{A}}')], { A: '{', B: '{{A}}' }],
  ['a file holds its path', [config, row('P', '{{CONFIG}}')], { CONFIG: '/etc/app.json', P: '/etc/app.json' }],
  [
    'an alias of a file holds its path',
    [config, alias('ALSO', config)],
    { ALSO: '/etc/app.json', CONFIG: '/etc/app.json' },
  ],
  [
    'names of object parts',
    [row('constructor', '1'), row('__proto__', '2')],
    Object.fromEntries([
      ['constructor', '1'],
      ['__proto__', '2'],
    ]),
  ],
]

for (const [name, rows, env] of cases)
  test(`environment: ${name}`, () => {
    assert.deepEqual(resolveVariables(rows).env, env)
    assert.deepEqual(resolveVariables(rows.toReversed()).env, env)
  })

test('a file is written once, by the narrowest that names its path, interpolated only when asked', () => {
  const a = row('A', '1')
  const files = (rows: VisibleVariable[]) => resolveVariables(rows).files
  assert.deepEqual(files([a, config]), [{ path: '/etc/app.json', content: '{"a":"{{ A }}"}' }])
  assert.deepEqual(files([a, { ...config, interpolateInFile: true }]), [
    { path: '/etc/app.json', content: '{"a":"1"}' },
  ])
  assert.deepEqual(files([config, alias('ALSO', config)]).length, 1)
  assert.deepEqual(files([config, override(config, 'own')]), [{ path: '/etc/app.json', content: 'own' }])
  assert.deepEqual(files([config, file('OTHER', '/etc/app.json', 'own')]), [{ path: '/etc/app.json', content: 'own' }])
  assert.deepEqual(
    files([file('B', '/b', 'b'), file('A', '/a', 'a')]).map(({ path }) => path),
    ['/a', '/b'],
  )
})

test('secrets are listed as written and as interpolated, and what an alias shows is secret too', () => {
  const secret = row('S', 'pa{{A}}', { isSecret: true, scope: 'PROJECT' })
  const rows = [row('A', '1'), secret, alias('T', { ...secret, isSecret: false }), row('U', 'x{{S}}')]
  assert.deepEqual(resolveVariables(rows).secretValues, ['pa1', 'pa{{A}}'])
  const key = file('K', '/key', 'private', { isSecret: true })
  assert.deepEqual(resolveVariables([key]).secretValues, ['private'])
  assert.deepEqual(resolveVariables([row('E', '', { isSecret: true })]).secretValues, [])
})

test('origins name the row that decides', () => {
  assert.deepEqual(resolveVariables([wide, middle]).origins, { URL: { scope: 'ENVIRONMENT', variableId: middle.id } })
  const also = alias('ALSO', wide)
  assert.equal(resolveVariables([wide, also]).origins.ALSO!.variableId, also.id)
})

test('references that multiply end in bounded memory', () => {
  const deep = Array.from({ length: 60 }, (_, index) => row(`K${index}`, `{{K${index + 1}}}{{K${index + 1}}}`))
  const { env } = resolveVariables([...deep, row('K60', 'x'.repeat(1000))])
  const size = Object.values(env).reduce((sum, value) => sum + value.length, 0)
  assert.ok(size < 6 << 20, `${size}`)
})

test('a chain of 5000 references settles', () => {
  const chain = Array.from({ length: 5000 }, (_, index) => row(`K${index}`, `{{K${index + 1}}}`))
  assert.equal(resolveVariables([...chain, row('K5000', 'end')]).env.K0, 'end')
})

const keys = fc.constantFrom('A', 'B', 'C', 'D')
const arbitraryRows = fc
  .array(
    fc.record({
      key: keys,
      value: fc.oneof(
        fc.constant(null),
        fc.string(),
        fc
          .array(
            fc.oneof(
              keys.map((key) => `{{${key}}}`),
              fc.string({ maxLength: 3 }),
            ),
            { maxLength: 4 },
          )
          .map((parts) => parts.join('')),
      ),
      scope: fc.constantFrom('BUILT_IN', 'PROJECT', 'ENVIRONMENT', 'APPLICATION', 'toString'),
      isSecret: fc.boolean(),
      variableType: fc.constantFrom('VALUE', 'ALIAS', 'OVERRIDE', 'FILE', 'BUILT_IN'),
      mountPath: fc.constantFrom(null, null, '/a', '/b'),
      interpolateInFile: fc.boolean(),
      target: fc.nat(9),
    }),
    { maxLength: 10 },
  )
  .map((parts) => parts.map(({ target, ...part }, index) => ({ ...part, id: `id${index}`, targetId: `id${target}` })))

test('whatever the rows say, resolving ends, throws nothing and does not depend on their order', () => {
  fc.assert(
    fc.property(arbitraryRows, fc.infiniteStream(fc.nat()), (rows, order) => {
      const shuffled = rows.map((one) => [order.next().value, one] as const).sort(([a], [b]) => a - b)
      const result = resolveVariables(rows)
      assert.deepEqual(resolveVariables(shuffled.map(([, one]) => one)), result)
      assert.deepEqual(Object.keys(result.env), Object.keys(result.origins))
      for (const text of Object.values(result.env)) assert.equal(typeof text, 'string')
    }),
    { numRuns: 2000 },
  )
})

test('without references every value is the one of the narrowest row', () => {
  fc.assert(
    fc.property(arbitraryRows, (rows) => {
      const plain = rows.map((one) => ({ ...one, variableType: 'VALUE', mountPath: null, value: `${one.id}` }))
      const { env, origins } = resolveVariables(plain)
      for (const [key, { variableId }] of Object.entries(origins)) assert.equal(env[key], variableId)
    }),
  )
})
