import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseLogQuery } from './log-query.ts'

const labels = { qovery_com_service_id: 'a1', level: 'ERROR', pod: 'web-1' }
const line = { text: 'GET /orders failed: "timeout"', labels }

const fits: [query: string, expected: boolean][] = [
  ['', true],
  ['{}', true],
  ['{qovery_com_service_id="a1"}', true],
  ['{qovery_com_service_id="b2"}', false],
  ['{qovery_com_service_id="a1",level="error"}', true],
  ['{qovery_com_service_id="a1", level="info"}', false],
  ['{pod!="web-1"}', false],
  ['{level=~"error|warn"}', true],
  ['{level!~"error|warn"}', false],
  ['{app="ingress-nginx"}', false],
  ['{absent=""}', true],
  ['{level="error"} |= "orders"', true],
  ['{level="error"} |= "Orders"', false],
  ['{level="error"} |= "orders" != "failed"', false],
  [String.raw`{level="error"} |= "\"timeout\""`, true],
  ['|= "GET"', true],
]

test('labels and texts decide which lines are wanted', () => {
  for (const [query, expected] of fits) assert.equal(parseLogQuery(query)(line), expected, query)
})

test('anything else is refused with a sentence, and no pattern of a client is run', () => {
  const bad = [
    '{level="error"',
    'level="error"',
    '{level=error}',
    '{level=~"(a+)+$"}',
    '{level="x"} |~ "a.*b"',
    '({app="ingress-nginx"} | level=~"error|warn" or (a="b"))',
    `{${'a="b",'.repeat(30)}}`,
  ]
  for (const query of bad) assert.throws(() => parseLogQuery(query), /query: write labels/, query)
})
