/** The public API's own table of operations: each of them is served here, by its name, its path and its success code. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { describe } from '../src/api/openapi.ts'
import { operations } from '../src/resources/index.ts'
import type { Json } from './api.ts'

/** Operations that are deliberately not here, with the reason. */
const leftOut: Record<string, string> = {}

/** Operations that answer with another code than the table says, with the reason. */
const otherCode: Record<string, string> = {}

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

/** What keeps a row from being served; null when it is. */
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
  const problems = table
    .filter(({ operationId }) => leftOut[operationId] === undefined && otherCode[operationId] === undefined)
    .flatMap((row) => {
      const problem = problemOf(row)
      return problem === null ? [] : [`${row.method} ${row.path} (${row.operationId}, ${row.success}) ${problem}`]
    })
  assert.deepEqual(problems, [], `${problems.length} of ${table.length}`)
})

test('what is said to be left out, or to answer otherwise, is so', () => {
  const rows = new Map(table.map((row) => [row.operationId, row]))
  for (const id of Object.keys(leftOut)) assert.equal(served.get(form(rows.get(id)!)), undefined, id)
  for (const id of Object.keys(otherCode)) assert.match(problemOf(rows.get(id)!) ?? '', /^answers /, id)
})
