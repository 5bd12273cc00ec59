import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ApiError } from '../lib/errors.ts'
import { readTimeRange, toNanoseconds, toRfc3339 } from './log-history/time-range.ts'
import { fits, type Labels, LogQueryError, parseLogQuery } from './logql.ts'

const id = '00000000-0000-4000-8000-00000000000a'
const service = `qovery_com_service_id="${id}"`
const has: Labels = {
  qovery_com_service_id: id,
  qovery_com_deployment_id: 'd1',
  level: 'error',
  pod: 'web-0',
  container: 'web',
  app: 'abc',
  namespace: 'e1',
}

/** A query, and whether it selects the line `GET /x "quoted" 500`. */
const selects: [string, boolean][] = [
  [`{${service}}`, true],
  [`{${service},level="error"}`, true],
  [`{${service},level="info"}`, false],
  [`{ ${service} , pod = "web-0", }`, true],
  [`{${service},pod=~"web-1|web-0"}`, true],
  [`{${service},pod!~"web-1|web-0"}`, false],
  [`{${service}} |= "GET"`, true],
  [`{${service}} |= "get"`, false],
  [`{${service}} |= "\\"quoted\\"" != "200"`, true],
  [`{${service}} |= \`"quoted"\``, true],
  [`{${service}} != "500"`, false],
  [`{${service}} | level="error" |= "500"`, true],
  [`{${service}} | level!="error"`, false],
  [`{${service}} | level=~"warn|info"`, false],
]

test('a query selects lines by labels and by contained text', () => {
  for (const [query, wanted] of selects)
    assert.equal(fits(parseLogQuery(query), has, 'GET /x "quoted" 500'), wanted, query)
})

const unreadable: [string, RegExp][] = [
  ['', /begin with a selector/],
  ['level="error"', /begin with a selector/],
  ['{level="error"}', /select one service/],
  [`{qovery_com_service_id=~"a|b"}`, /select one service/],
  [`{${service},${service}}`, /select one service/],
  [`{${service}`, /end with }/],
  [`{${service},host="x"}`, /Unknown label/],
  [`{${service}} |~ "a.*b"`, /Only the filters/],
  [`{${service},pod=~"(a+)+$"}`, /regular expressions are not supported/],
  [`{${service}} | json`, /Unknown label/],
  [`{${service}} | level`, /needs =, !=/],
  [`{${service}} |= unquoted`, /text in quotes/],
  [`{${service}} |= "open`, /cannot be read from character/],
  [`{${service}} |= "\\x41"`, /escape/],
  [`({app="envoy"} | level=~"error|warn")`, /cannot be read from character 1/],
  [`sum(rate({${service}}[5m]))`, /cannot be read/],
  [`{${service}}${' |= "x"'.repeat(30)}`, /at most 20 conditions/],
]

test('what is not understood is refused with a sentence, never ignored', () => {
  for (const [query, sentence] of unreadable)
    assert.throws(
      () => parseLogQuery(query),
      (error) => error instanceof LogQueryError && sentence.test(error.message),
      query,
    )
})

const now = new Date('2026-01-02T00:00:00Z')

test('times are read to the nanosecond, in the forms that clients use', () => {
  const at = (start: string) => toRfc3339(readTimeRange({ start, end: '2026-01-01T12:00:00Z' }, now).from)
  assert.equal(at('1767225600123456789'), '2026-01-01T00:00:00.123456789Z')
  assert.equal(at('1767225600123'), '2026-01-01T00:00:00.123000000Z')
  assert.equal(at('1767225600'), '2026-01-01T00:00:00.000000000Z')
  assert.equal(at('1767225600.5'), '2026-01-01T00:00:00.500000000Z')
  assert.equal(at('2026-01-01T01:00:00.25+01:00'), '2026-01-01T00:00:00.250000000Z')
  assert.equal(toNanoseconds('2026-01-01T00:00:00.123456789Z'), 1_767_225_600_123_456_789n)
  const { from, to } = readTimeRange({ since: '30m' }, now)
  assert.deepEqual(
    [toRfc3339(from), toRfc3339(to)],
    ['2026-01-01T23:30:00.001000000Z', '2026-01-02T00:00:00.001000000Z'],
  )
})

test('a time that cannot be meant is a 400', () => {
  const bad = [
    { start: 'yesterday' },
    { start: '2026-13-01T00:00:00Z' },
    { since: '1y' },
    { start: '10', end: '5' },
    { start: '1', end: '1767225600' },
    { end: '9'.repeat(20) },
  ]
  for (const times of bad)
    assert.throws(
      () => readTimeRange(times, now),
      (error) => error instanceof ApiError && error.status === 400,
      JSON.stringify(times),
    )
})
