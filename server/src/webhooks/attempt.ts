/** One delivery to one receiver: its request, and the interpretation of the response. */

import { type Outbound, OutboundFailed, OutboundRefused } from '../lib/net/outbound.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Sealer } from '../store/keys/seal.ts'
import type { AttemptResult, ClaimedDelivery, Settlement } from './queue.ts'
import { messageId, signHeaders } from './sign.ts'

interface AttemptParts {
  sealer: Sealer
  outbound: Outbound
  clock: Clock
}

/** An attempt that was aborted because this process stops; it does not count. */
const isAborted = (error: unknown): boolean => error instanceof OutboundFailed && error.code === 'aborted'

const words: Record<string, string> = {
  DEPLOYMENT_STARTED: 'started',
  DEPLOYMENT_SUCCESSFUL: 'succeeded',
  DEPLOYMENT_SUCCEEDED: 'succeeded',
  DEPLOYMENT_FAILURE: 'failed',
  DEPLOYMENT_FAILED: 'failed',
  DEPLOYMENT_CANCELLED: 'was canceled',
}

// `&`, `<` and `>` are Slack's control characters.
const escapeSlack = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

const backupWords: Record<string, string> = {
  BACKUP_VERIFIED: 'The backup of %s is verified',
  BACKUP_UNVERIFIED: 'The backup of %s could not be verified',
  BACKUP_FAILED: 'The backup of %s failed',
  RESTORE_SUCCEEDED: 'A backup was restored into %s',
  RESTORE_FAILED: 'A restore into %s failed',
}

export const slackBody = (body: string): string => {
  const { event_type, payload } = JSON.parse(body) as { event_type: string; payload: Record<string, unknown> }
  const what = words[event_type]
  const reason = typeof payload.reason === 'string' ? `: ${payload.reason}` : ''
  const ofBackup = backupWords[event_type]?.replace('%s', () => String(payload.service_name))
  if (ofBackup !== undefined) return JSON.stringify({ text: escapeSlack(`${ofBackup}${reason}`) })
  if (what === undefined) return JSON.stringify({ text: 'This is a test of your webhook.' })
  const text = `Deployment ${payload.execution_id} of ${payload.service_name} ${what}${reason}`
  return JSON.stringify({ text: escapeSlack(text) })
}

const openSecrets = async (
  sealer: Sealer,
  { organizationId, webhookId, sealed }: ClaimedDelivery,
): Promise<string[]> => {
  const columns = ['signing_secret', 'target_secret'].filter((column) => sealed[column])
  const place = (column: string) => ({ table: 'node', row: webhookId, column })
  const opened = await Promise.all(columns.map((column) => sealer.open(organizationId, place(column), sealed[column]!)))
  return opened.map((secret) => secret.reveal()).filter((secret) => secret !== '')
}

const compose = async (parts: AttemptParts, claimed: ClaimedDelivery) => {
  const headers = { 'content-type': 'application/json', 'user-agent': 'Slipway-Webhooks/1' }
  if (claimed.spec.kind === 'SLACK') return { headers, body: slackBody(claimed.body) }
  const secrets = await openSecrets(parts.sealer, claimed)
  const seconds = Math.floor(parts.clock.now().getTime() / 1000)
  return {
    headers: { ...headers, ...signHeaders(secrets, messageId(claimed.id), claimed.body, seconds) },
    body: claimed.body,
  }
}

const storedBodyLength = 1024

interface Attempt {
  result: AttemptResult
  retryAfter: string | null
}

/** Sends once. Rejects only when aborted; every other outcome is a result. */
export const attemptDelivery = async (
  parts: AttemptParts,
  claimed: ClaimedDelivery,
  signal: AbortSignal,
): Promise<Attempt> => {
  const started = parts.clock.monotonicMs()
  const targetUrl = claimed.spec.target_url ?? ''
  const { headers, body } = await compose(parts, claimed)
  // The body is already JSON.
  const request = `{"headers":${JSON.stringify(headers)},"body":${body}}`
  const base = { targetUrl, request }
  try {
    const sent = { method: 'POST', url: targetUrl, headers, body, signal, keepAlive: true }
    const answer = await parts.outbound.request(sent)
    const responseBody = answer.body.slice(0, storedBodyLength).replaceAll('\0', '')
    const durationMs = parts.clock.monotonicMs() - started
    const result = { ...base, status: answer.status, responseBody, error: null, durationMs }
    return { result, retryAfter: answer.headers['retry-after'] ?? null }
  } catch (error) {
    if (isAborted(error)) throw error
    const known = error instanceof OutboundFailed || error instanceof OutboundRefused
    const text = known ? error.message : 'the delivery could not be sent'
    const durationMs = parts.clock.monotonicMs() - started
    return { result: { ...base, status: 0, responseBody: null, error: text, durationMs }, retryAfter: null }
  }
}

const longestWaitSeconds = 86_400

/** Seconds until a receiver accepts a retry: from a number or a date; at most a day. */
export const retryAfterSeconds = (value: string | null, now: Date): number => {
  if (value === null) return 0
  const seconds = /^\d+$/.test(value) ? Number(value) : (Date.parse(value) - now.getTime()) / 1000
  return Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0), longestWaitSeconds) : 0
}

/** The state of an event after its attempt. `random` is in [0, 1). */
export const settlementOf = (
  { result, retryAfter }: Attempt,
  attempt: number,
  scheduleSeconds: readonly number[],
  now: Date,
  random: number,
): Settlement => {
  if (result.status >= 200 && result.status < 300) return { state: 'DELIVERED' }
  const planned = scheduleSeconds[attempt]
  if (result.status === 410 || planned === undefined) return { state: 'FAILED' }
  const jittered = planned * (0.8 + 0.4 * random)
  return { state: 'PENDING', afterSeconds: Math.max(jittered, retryAfterSeconds(retryAfter, now)) }
}
