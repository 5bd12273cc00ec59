import assert from 'node:assert/strict'
import { test } from 'node:test'
import Type from 'typebox'
import type { ApiError, FieldError } from '../../lib/errors.ts'
import { Maybe, Nullable, Text, Whole } from './schema.ts'
import { check } from './validate.ts'

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

test('what is wrong in an object that may be null is told alone; the object need not be null for it', () => {
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
