/**
 * Every field of every request acts, and a test shows it; or it is refused, or marked as only recorded or discarded.
 * Protecting fields are never only recorded. A new field has to be marked or to get its case in cases/effects.ts, and
 * so has each value of a closed list. Part of `npm run check`: it only reads.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import Type from 'typebox'
import { type ResourceField, resourceFields } from '../src/api/operations/field-table.ts'
import { operation, ownOrganization } from '../src/api/operations/operation.ts'
import { Maybe, Text } from '../src/api/operations/schema.ts'
import { operations } from '../src/resources/index.ts'
import { plain, register, type Shown } from './cases/effects.ts'

const texts = new Map<string, string>()
const textOf = (file: string): string => {
  const text = texts.get(file) ?? readFileSync(new URL(`../${file}`, import.meta.url), 'utf8')
  texts.set(file, text)
  return text
}

const keyOf = (resource: string, field: string): string => `${resource} ${field}`

const shownKeys = (shown: readonly Shown[]): Set<string> =>
  new Set(
    shown.flatMap(({ resources, fields }) =>
      resources.flatMap((resource) => fields.map((field) => keyOf(resource, field))),
    ),
  )

const plainKeys = new Set(Object.entries(plain).flatMap(([name, own]) => own.map((field) => keyOf(name, field))))

/** Fields that act, if only on some clusters. */
const isToBeShown = ({ docker, elsewhere }: ResourceField): boolean => docker === 'acts' || elsewhere

/** Fields that act according to their schemas, but without a test that shows it. */
const withoutCase = (fields: readonly ResourceField[], shown: readonly Shown[]): string[] => {
  const known = shownKeys(shown)
  return fields
    .filter(isToBeShown)
    .map(({ resource, field }) => keyOf(resource, field))
    .filter((key) => !known.has(key) && !plainKeys.has(key))
}

/** Values that act like their field according to its schema, but without a test that shows it. */
const valuesWithoutCase = (fields: readonly ResourceField[], shown: readonly Shown[]): string[] => {
  const known = new Set(
    shown.flatMap(({ resources, values }) =>
      resources.flatMap((resource) =>
        Object.entries(values).flatMap(([field, list]) => list.map((value) => `${keyOf(resource, field)}=${value}`)),
      ),
    ),
  )
  return fields
    .filter((one) => isToBeShown(one) && !plainKeys.has(keyOf(one.resource, one.field)))
    .flatMap(({ resource, field, values }) => values.map((value) => [keyOf(resource, field), value] as const))
    .filter(([key, value]) => !known.has(`${key}=${value}`) && !known.has(`${key}=*`))
    .map(([key, value]) => `${key}=${value}`)
}

const all = resourceFields(operations)

test('every field that acts has a test that shows it; a new field has none, and a case that is taken away is missed', () => {
  assert.deepEqual(withoutCase(all, register), [])
  const added = operation({
    id: 'addField',
    method: 'POST',
    path: '/x',
    tag: 'Applications',
    summary: 'Add a field',
    scope: 'Write',
    area: 'projects',
    owner: ownOrganization,
    body: Type.Object({ novelty: Maybe(Text()) }),
    status: 204,
  })
  assert.deepEqual(withoutCase([...all, ...resourceFields([added])], register), ['Application /novelty'])
  assert.notDeepEqual(withoutCase(all, register.slice(1)), [])
})

test('every value of a closed list has a test that shows its effect; an added value has none', () => {
  assert.deepEqual(valuesWithoutCase(all, register), [])
  const wider = all.map((one) =>
    one.resource === 'Database' && one.field === '/type' ? { ...one, values: [...one.values, 'ORACLE'] } : one,
  )
  assert.deepEqual(valuesWithoutCase(wider, register), ['Database /type=ORACLE'])
})

test('the register names only values of the schemas, and each is in its test', () => {
  const known = new Set(
    all.flatMap(({ resource, field, values }) => values.map((value) => `${keyOf(resource, field)}=${value}`)),
  )
  const wrong = register.flatMap(({ resources, values, file }) =>
    Object.entries(values).flatMap(([field, list]) => {
      const text = textOf(file)
      return list.flatMap((value) => {
        const isShown = value === '*' ? text.includes('closedValues(') : new RegExp(`\\b${value}\\b`).test(text)
        const missing = resources.filter(
          (resource) => value !== '*' && !known.has(`${keyOf(resource, field)}=${value}`),
        )
        return [
          ...missing.map((resource) => `${keyOf(resource, field)}=${value}`),
          ...(isShown ? [] : [`${file}: ${value}`]),
        ]
      })
    }),
  )
  assert.deepEqual(wrong, [])
})

test('the register names only fields that act, and existing tests', () => {
  const acting = new Set(all.filter(isToBeShown).map(({ resource, field }) => keyOf(resource, field)))
  assert.deepEqual(
    [...shownKeys(register), ...plainKeys].filter((key) => !acting.has(key)),
    [],
  )
  const missing = register.filter(
    ({ file, test: title }) => !["'", '"', '`'].some((quote) => textOf(file).includes(`test(${quote}${title}${quote}`)),
  )
  assert.deepEqual(missing, [])
})

test('no query parameter is marked as recorded: it would have to be stored for that', () => {
  const recorded = all.filter(({ field, docker }) => field.startsWith('?') && docker === 'recorded')
  assert.deepEqual(
    recorded.map(({ resource, field }) => keyOf(resource, field)),
    [],
  )
})

/** Fields that decide who may reach, read or change something, until when, and what must be kept. */
const protects =
  /whitelist_source_range|denylist_source_range|basic_auth|security\.|force_terraform_action|expires_at|expired_at|allowed_cidrs|deny_any_access|allowed_public_access/

test('protecting fields are never only recorded', () => {
  const found = all.filter(({ field }) => protects.test(field))
  assert.ok(found.length >= 15, String(found.length))
  const idle = found.filter(({ docker, record }) => [docker, record].some((one) => one !== 'acts' && one !== 'refused'))
  assert.deepEqual(
    idle.map(({ resource, field }) => keyOf(resource, field)),
    [],
  )
})
