/** Signatures of deliveries by the Standard Webhooks scheme (https://www.standardwebhooks.com). Pure. */
import { createHmac, randomBytes } from 'node:crypto'

/** A new signing secret, in the form that receivers' libraries accept. */
export const createSigningSecret = (): string => `whsec_${randomBytes(32).toString('base64')}`

/** `whsec_` + base64 means those bytes; any other text means its own bytes (`{ format: 'raw' }` in libraries). */
const signingKey = (secret: string): Buffer => {
  const encoded = /^whsec_([A-Za-z0-9+/]+=*)$/.exec(secret)?.[1]
  return encoded === undefined ? Buffer.from(secret, 'utf8') : Buffer.from(encoded, 'base64')
}

/** The same for every attempt of one event to one receiver, so that receivers can detect duplicates. */
export const messageId = (outboxId: string): string => `msg_${outboxId.replaceAll('-', '')}`

const signature = (key: Buffer, signed: string): string =>
  `v1,${createHmac('sha256', key).update(signed).digest('base64')}`

/** The three headers. One signature per secret, separated by spaces: a receiver verifies with whichever it has. */
export const signHeaders = (
  secrets: readonly string[],
  id: string,
  body: string,
  timestampSeconds: number,
): Record<string, string> => {
  const signed = `${id}.${timestampSeconds}.${body}`
  return {
    'webhook-id': id,
    'webhook-timestamp': String(timestampSeconds),
    'webhook-signature': secrets.map((secret) => signature(signingKey(secret), signed)).join(' '),
  }
}
