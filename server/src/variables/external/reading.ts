/** Shared by all secret managers: how they are asked, what a value may be, and how a failure is reported. */
import { tryJson } from '../../lib/foreign-text/read-json.ts'
import type { Outbound, OutboundRequest, OutboundResponse } from '../../lib/net/outbound.ts'
import { OutboundFailed, OutboundRefused } from '../../lib/net/outbound.ts'

/** As large as AWS and Google let a secret be, and as a variable of ours. */
const maxValueBytes = 64 * 1024
/** In JSON a byte may need six. */
const maxResponseBytes = 512 * 1024
const requestMs = 10_000

/** Why a value cannot be read, as the end of a sentence; it contains neither the value nor text of a manager. */
export class SecretFailed extends Error {
  /** A retry may succeed in a moment. */
  readonly temporary: boolean

  constructor(reason: string, temporary = false) {
    super(reason)
    this.temporary = temporary
  }
}

export interface ManagerPlace {
  outbound: Pick<Outbound, 'request'>
  /** The address of a host of the manager; another one in tests. */
  addressOf(host: string): string
  now(): Date
  signal: AbortSignal
}

/** Reads secrets of one access, by their names in the manager. */
export type ReadSecret = (reference: string) => Promise<string>

/** One request, on a connection of its own. Rejects with `SecretFailed` if there is no answer. */
export const askManager = async (
  { outbound, signal }: ManagerPlace,
  request: Pick<OutboundRequest, 'method' | 'url' | 'headers' | 'body'>,
): Promise<OutboundResponse> => {
  try {
    return await outbound.request({ ...request, totalTimeoutMs: requestMs, maxResponseBytes, signal })
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof OutboundRefused) throw new SecretFailed(`requests to it are not allowed: ${error.message}`)
    if (error instanceof OutboundFailed) throw new SecretFailed(error.message, true)
    throw error
  }
}

/** The fields of a JSON object; none for other texts. */
export const fieldsOf = ({ body, truncated }: OutboundResponse): Record<string, unknown> => {
  if (truncated) throw new SecretFailed('its answer is larger than a secret can be')
  const value = tryJson(body)
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}

export const isTemporary = (status: number): boolean => status === 429 || status >= 500

export const unexpected = ({ status }: OutboundResponse, word?: unknown): SecretFailed => {
  const code = typeof word === 'string' && /^[A-Za-z_]{1,80}$/.test(word) ? `${word}, ` : ''
  return new SecretFailed(`it refused the request (${code}HTTP ${status})`, isTemporary(status))
}

export const noSuchSecret = (): SecretFailed => new SecretFailed('it has no secret of this name')
export const mayNotRead = (): SecretFailed => new SecretFailed('its credentials may not read this secret')
export const badCredentials = (): SecretFailed => new SecretFailed('it does not accept the credentials of the access')

/** A value as a variable can have it. */
export const textOfSecret = (value: string | Buffer): string => {
  const bytes = typeof value === 'string' ? Buffer.from(value) : value
  if (bytes.length > maxValueBytes) throw new SecretFailed('the value is larger than 64 KiB')
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    if (!text.includes('\0')) return text
  } catch {
    // Not UTF-8.
  }
  throw new SecretFailed('the value is not a text')
}
