/**
 * The public API's own table of operations: each of them is served here, with its name, its path and its success code.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { describe } from '../src/api/operations/openapi.ts'
import { operations } from '../src/resources/index.ts'
import type { Json } from './support/api.ts'

interface Row {
  method: string
  path: string
  operationId: string
  success: string
}

const [head, ...lines] = readFileSync(new URL('./data/operations.tsv', import.meta.url), 'utf8')
  .trim()
  .split('\n')
const table = lines.map((line): Row => {
  const [method, path, operationId, success] = line.split('\t') as [string, string, string, string]
  return { method, path, operationId, success }
})

const form = ({ method, path }: { method: string; path: string }): string =>
  `${method} ${path.replaceAll(/\{\w+\}/g, '{}')}`

const served = new Map(operations.map((operation) => [form(operation), operation]))
const document = describe(operations) as Json

/** Why a row is not served; null if it is. */
const problemOf = (row: Row): string | null => {
  const operation = served.get(form(row))
  if (operation === undefined) return 'is not served'
  if (operation.id !== row.operationId) return `is called ${operation.id}`
  const { responses } = document.paths[operation.path][row.method.toLowerCase()]
  return row.success.split(',').every((code) => code in responses)
    ? null
    : `answers ${Object.keys(responses).filter((code) => code < '300')}`
}

test('every operation of the public API is served with its method, path, name and success code', () => {
  assert.equal(head, 'method\tpath\toperationId\tsuccess')
  assert.equal(table.length, 400)
  const problems = table.flatMap((row) => {
    const problem = problemOf(row)
    return problem === null ? [] : [`${row.method} ${row.path} (${row.operationId}, ${row.success}) ${problem}`]
  })
  assert.deepEqual(problems, [], `${problems.length} of ${table.length}`)
})

test('a row that is not served, has another name or another code is a problem', () => {
  const [row] = table
  assert.equal(problemOf(row!), null)
  assert.equal(problemOf({ ...row!, path: '/nowhere' }), 'is not served')
  assert.match(problemOf({ ...row!, operationId: 'other' })!, /^is called /)
  assert.match(problemOf({ ...row!, success: '299' })!, /^answers /)
})
