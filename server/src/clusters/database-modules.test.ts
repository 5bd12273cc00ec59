import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { test } from 'node:test'
import { databaseModuleOf, parseDatabaseModules } from './database-modules.ts'

const good = { source: '/modules/pg', outputs: { host: 'h', password: 'p' } }
const parse = (value: unknown) => parseDatabaseModules(JSON.stringify(value))

test('a file names modules by provider and type, and its errors are reported', () => {
  const modules = parse({ AWS: { POSTGRESQL: good }, ON_PREMISE: { REDIS: { ...good, engine: 'tofu' } } })
  assert.ok(typeof modules !== 'string')
  const found = databaseModuleOf(modules, 'AWS', 'POSTGRESQL')!
  assert.deepEqual([found.engine, found.versions, found.instanceTypes, found.timeoutMinutes], ['terraform', [], [], 60])
  for (const [provider, type] of [
    ['AWS', 'REDIS'],
    ['GCP', 'POSTGRESQL'],
    ['constructor', 'name'],
    ['AWS', 'constructor'],
  ] as const)
    assert.equal(databaseModuleOf(modules, provider, type), null)
  assert.equal(databaseModuleOf(undefined, 'AWS', 'POSTGRESQL'), null)
  const wrong: [unknown, RegExp][] = [
    [[], /an object/],
    [{ OTHER: {} }, /"OTHER" is none of them/],
    [{ AWS: good }, /"source" of AWS is none of them/],
    [{ AWS: { POSTGRESQL: 1 } }, /must be an object/],
    [{ AWS: { POSTGRESQL: { ...good, outputs: { host: 'h' } } } }, /needs as "outputs"/],
    [{ AWS: { POSTGRESQL: { ...good, outputs: { ...good.outputs, other: 'x' } } } }, /needs as "outputs"/],
    [{ AWS: { POSTGRESQL: { ...good, versions: ['16', '16'] } } }, /needs as "versions"/],
    [{ AWS: { POSTGRESQL: { ...good, versions: ['16; rm'] } } }, /needs as "versions"/],
    [{ AWS: { POSTGRESQL: { ...good, instance_types: ['a b'] } } }, /needs as "instance_types"/],
    [{ AWS: { POSTGRESQL: { ...good, source: './here' } } }, /needs as "source"/],
    [{ AWS: { POSTGRESQL: { ...good, more: 1 } } }, /unknown field "more"/],
  ]
  for (const [value, why] of wrong) assert.match(String(parse(value)), why, JSON.stringify(value))
})

test('the example names modules that are there, with the variables and outputs that they have', () => {
  const examples = new URL('../../../examples/database-modules/', import.meta.url).pathname
  const modules = parseDatabaseModules(readFileSync(join(examples, 'database-modules.json'), 'utf8'))
  assert.ok(typeof modules !== 'string', String(modules))
  for (const { source, inputs, outputs } of Object.values(modules).flatMap((types) => Object.values(types))) {
    const file = join(examples, basename(source), 'main.tf')
    assert.ok(existsSync(file), file)
    const text = readFileSync(file, 'utf8')
    const named = (block: string) => [...text.matchAll(new RegExp(`^${block} "(\\w+)"`, 'gm'))].map(([, name]) => name!)
    assert.deepEqual(Object.keys(inputs).sort(), named('variable').sort())
    assert.deepEqual(Object.values(outputs).sort(), named('output').sort())
    assert.match(text, /output "password" \{[^}]*sensitive = true/)
  }
})
