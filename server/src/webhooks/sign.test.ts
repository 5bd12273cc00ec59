import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Webhook } from 'standardwebhooks'
import { retryAfterSeconds, settlementOf, slackBody } from './attempt.ts'
import { createSigningSecret, messageId, signHeaders } from './sign.ts'

const body = '{"event_type":"DEPLOYMENT_STARTED"}'
const now = () => Math.floor(Date.now() / 1000)

test("the public library verifies with the webhook's secret and with the user's own", () => {
  const [own, coded, raw] = [createSigningSecret(), createSigningSecret(), 'a secret, as it is']
  const headers = signHeaders([own, coded, raw], 'msg_1', body, now())
  for (const verifier of [new Webhook(own), new Webhook(coded), new Webhook(raw, { format: 'raw' })])
    assert.deepEqual(verifier.verify(body, headers), JSON.parse(body))
  assert.throws(() => new Webhook(createSigningSecret()).verify(body, headers))
  assert.throws(() => new Webhook(own).verify(`${body} `, headers))
  assert.throws(() => new Webhook(own).verify(body, { ...headers, 'webhook-id': 'msg_2' }))
  assert.throws(() => new Webhook(own).verify(body, signHeaders([own], 'msg_1', body, now() - 3600)))
})

test('a message id is made from the row alone', () => {
  assert.equal(messageId('1a2b-3c'), 'msg_1a2b3c')
})

const at = new Date('2026-01-01T00:00:00Z')
const waits: [string | null, number][] = [
  [null, 0],
  ['0', 0],
  ['120', 120],
  ['999999', 86_400],
  ['-5', 0],
  ['soon', 0],
  ['Thu, 01 Jan 2026 00:01:00 GMT', 60],
  ['Wed, 31 Dec 2025 00:00:00 GMT', 0],
]

test('Retry-After is respected as seconds or date, up to a day', () => {
  for (const [value, seconds] of waits) assert.equal(retryAfterSeconds(value, at), seconds, String(value))
})

const settled = (status: number, attempt: number, random = 0.5, retryAfter: string | null = null) =>
  settlementOf(
    { result: { status, targetUrl: '', request: '{}', responseBody: null, error: null, durationMs: 1 }, retryAfter },
    attempt,
    [0, 10, 100],
    at,
    random,
  )

test('only 2xx is success; the schedule is followed with jitter and ends', () => {
  for (const status of [200, 201, 204, 299]) assert.deepEqual(settled(status, 1), { state: 'DELIVERED' })
  for (const status of [0, 100, 301, 302, 308, 400, 404, 429, 500])
    assert.deepEqual(settled(status, 1), { state: 'PENDING', afterSeconds: 10 }, String(status))
  assert.deepEqual(settled(500, 1, 0), { state: 'PENDING', afterSeconds: 8 })
  assert.deepEqual(settled(500, 2, 0.999999), { state: 'PENDING', afterSeconds: 100 * (0.8 + 0.4 * 0.999999) })
  assert.deepEqual(settled(500, 3), { state: 'FAILED' })
  assert.deepEqual(settled(410, 1), { state: 'FAILED' })
  assert.deepEqual(settled(503, 1, 0.5, '3600'), { state: 'PENDING', afterSeconds: 3600 })
  assert.deepEqual(settled(503, 1, 0.5, '1'), { state: 'PENDING', afterSeconds: 10 })
})

test('a Slack message is one escaped sentence', () => {
  const payload = { service_name: '<api>', execution_id: 'e-1', reason: 'a & b' }
  const { text } = JSON.parse(slackBody(JSON.stringify({ event_type: 'DEPLOYMENT_FAILED', payload })))
  assert.equal(text, 'Deployment e-1 of &lt;api&gt; failed: a &amp; b')
})
