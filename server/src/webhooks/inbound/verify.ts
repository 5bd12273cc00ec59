/**
 * Whether a delivery of a git host was made with the secret of its webhook. Pure. The signature covers the raw bytes,
 * is checked before anything in them is read, and is compared in constant time. A host's own header takes precedence
 * over those that it copies from other hosts: a good copy does not save a bad original.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import { signHeaders } from '../sign.ts'

export type Headers = Readonly<Record<string, string | string[] | undefined>>

export type Host = 'GITHUB' | 'GITLAB' | 'BITBUCKET' | 'GITEA'

/** The parts of a delivery's headers. */
export interface Envelope {
  host: Host
  /** As the host calls it: `push`, `Push Hook`, `repo:push`. */
  event: string
  /** The host's id of this delivery; null if it has none. No signature covers it. */
  deliveryId: string | null
}

export const textOf = (headers: Headers, name: string): string | null => {
  const value = headers[name]
  return typeof value === 'string' && value !== '' ? value : null
}

/** Gitea and Forgejo copy the headers of GitHub, so they come first. */
const hosts: readonly { host: Host; event: string; ids: readonly string[] }[] = [
  { host: 'GITEA', event: 'x-forgejo-event', ids: ['x-forgejo-delivery', 'x-gitea-delivery'] },
  { host: 'GITEA', event: 'x-gitea-event', ids: ['x-gitea-delivery'] },
  { host: 'GITHUB', event: 'x-github-event', ids: ['x-github-delivery'] },
  { host: 'GITLAB', event: 'x-gitlab-event', ids: ['webhook-id', 'idempotency-key', 'x-gitlab-event-uuid'] },
  { host: 'BITBUCKET', event: 'x-event-key', ids: ['x-request-uuid'] },
]

const idForm = /^[\x21-\x7e]{1,200}$/

/** Null if the headers are those of no git host that we know. */
export const readEnvelope = (headers: Headers): Envelope | null => {
  const found = hosts.find(({ event }) => textOf(headers, event) !== null)
  if (found === undefined) return null
  const ids = found.ids.map((name) => textOf(headers, name))
  const deliveryId = ids.find((id) => id !== null && idForm.test(id)) ?? null
  return { host: found.host, event: textOf(headers, found.event)!, deliveryId }
}

/** Hashed first, so that texts of any length are compared in the same time. */
export const isSame = (a: string, b: string): boolean => {
  const [left, right] = [a, b].map((text) => createHash('sha256').update(text).digest())
  return timingSafeEqual(left!, right!)
}

const hmac = (secret: string, body: Buffer): string => createHmac('sha256', secret).update(body).digest('hex')

/** How old, or how far ahead, a signed time may be. */
const toleranceSeconds = 300

/** The Standard Webhooks scheme, which newer GitLab servers can use. */
const isSigned = (secret: string, headers: Headers, body: Buffer, nowSeconds: number): boolean => {
  const [id, at, given] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) => textOf(headers, name))
  if (id == null || at == null || given == null || !/^\d{1,12}$/.test(at)) return false
  if (Math.abs(nowSeconds - Number(at)) > toleranceSeconds) return false
  const wanted = signHeaders([secret], id, body.toString('utf8'), Number(at))['webhook-signature']!
  return given.split(' ').some((each) => isSame(each, wanted))
}

type Check = (secret: string, headers: Headers, body: Buffer, nowSeconds: number) => boolean

const hexIn =
  (...names: readonly string[]): Check =>
  (secret, headers, body) => {
    const given = names.map((name) => textOf(headers, name)).find((value) => value !== null)
    return given != null && isSame(given.replace(/^sha256=/, ''), hmac(secret, body))
  }

const checks: Record<Host, Check> = {
  GITHUB: hexIn('x-hub-signature-256'),
  GITEA: hexIn('x-forgejo-signature', 'x-gitea-signature'),
  BITBUCKET: hexIn('x-hub-signature'),
  GITLAB(secret, headers, body, nowSeconds) {
    if (textOf(headers, 'webhook-signature') !== null) return isSigned(secret, headers, body, nowSeconds)
    const token = textOf(headers, 'x-gitlab-token')
    return token !== null && isSame(token, secret)
  },
}

/** Whether one of the secrets made it. All of them are tried, so that the time does not reveal which. */
export const isGenuine = (
  { host }: Envelope,
  secrets: readonly string[],
  headers: Headers,
  body: Buffer,
  nowSeconds: number,
): boolean => secrets.map((secret) => checks[host](secret, headers, body, nowSeconds)).includes(true)

/** Digest of the body alone: ids of deliveries are not signed, so that a replay could change them. */
export const digestOf = (body: Buffer): Buffer => createHash('sha256').update(body).digest()
