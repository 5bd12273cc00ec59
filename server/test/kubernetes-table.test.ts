/** The table of the meaning of fields on a Kubernetes cluster covers every field, and only says what is true. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { resourceFields } from '../src/api/operations/field-table.ts'
import { becomes, rowsOf, serviceKinds } from '../src/api/operations/kubernetes-table.ts'
import { operations } from '../src/resources/index.ts'
import { kubernetesAbilities } from '../src/runtimes/kubernetes/runtime.ts'
import { abilities } from '../src/runtimes/runtime.ts'

const acting = resourceFields(operations).filter(
  ({ docker, elsewhere, resource }) => (docker === 'acts' || elsewhere) && serviceKinds.includes(resource),
)
const fields = [...new Map(acting.map((each) => [`${each.resource} ${each.field}`, each])).values()]

test('every field and setting of a service that acts has one row, and every row has a field', () => {
  assert.ok(fields.length > 250, String(fields.length))
  const wrong = fields.filter((field) => rowsOf(field).length !== 1)
  assert.deepEqual(
    wrong.map((field) => `${field.resource} ${field.field}: ${rowsOf(field).length} rows`),
    [],
  )
  const used = new Set(fields.flatMap((field) => rowsOf(field)))
  assert.deepEqual(
    becomes.filter((row) => !used.has(row)),
    [],
  )
  assert.deepEqual(rowsOf({ resource: 'Application', field: '/novelty' }), [])
})

test('features that a Kubernetes cluster lacks are refused in the table, and its features are not', () => {
  for (const { fields: named, kubernetes, needs } of becomes) {
    const lacking = needs.filter((ability) => !kubernetesAbilities.has(ability))
    const isRefused = /\brefused\b/.test(kubernetes.replace(/Without a registry refused/, ''))
    assert.equal(isRefused, lacking.length > 0, `${named.join(' ')}: ${kubernetes}`)
  }
  const named = new Set(becomes.flatMap(({ needs }) => needs))
  assert.deepEqual(
    abilities.filter((ability) => !named.has(ability)),
    [],
    'every ability is in a row',
  )
})
