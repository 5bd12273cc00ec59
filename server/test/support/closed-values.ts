/** The values of closed lists as the schemas have them, for tests that go through all of them. */
import assert from 'node:assert/strict'
import { fieldsOf } from '../../src/api/operations/fields.ts'
import { operations } from '../../src/resources/index.ts'

/** The values of a field (`/mode`, `?scope`) of an operation that act as the field does. */
export const closedValues = (operationId: string, field: string): readonly string[] => {
  const operation = operations.find(({ id }) => id === operationId)
  const values = operation === undefined ? [] : (fieldsOf(operation).find((row) => row.field === field)?.values ?? [])
  assert.ok(values.length > 0, `${operationId} ${field} has no closed list`)
  return values
}
