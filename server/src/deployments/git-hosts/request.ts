/**
 * Sends requests to the API of a git host with a git token. Promises that a token is sent only to the address it was
 * given for, never in clear text to a public one; that an answer is bounded; and that an answer is not trusted.
 */
import type { Json } from '../../lib/foreign-text/fields.ts'
import { ForeignTextError, readLargeJson } from '../../lib/foreign-text/read-json.ts'
import { type Outbound, OutboundFailed, OutboundRefused, type OutboundResponse } from '../../lib/net/outbound.ts'
import { isPrivateHost } from '../../lib/net/private-host.ts'
import { type Headers, isRateLimited, rateLimitWaitMs, untilWhen } from '../../lib/net/rate-limit.ts'
import type { Secret } from '../../lib/secret.ts'

export interface HostToken {
  /** Without a trailing slash. */
  apiUrl: string
  text: Secret<string>
}

/** Why a request to a git host failed: a sentence that may be shown. */
export class GitHostError extends Error {
  /** `denied`: the token lacks the right; `missing`; `refused`: the host cannot do it; `unreachable`: not now. */
  readonly code: 'denied' | 'missing' | 'refused' | 'unreachable'
  /** The wait that the host asks for. */
  readonly waitMs: number

  constructor(
    code: GitHostError['code'],
    message: string,
    { waitMs = 0, cause }: { waitMs?: number; cause?: unknown } = {},
  ) {
    super(message, { cause })
    this.name = 'GitHostError'
    this.code = code
    this.waitMs = waitMs
  }
}

export interface HostRequest {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string
  body?: Json
}

interface HostAnswer {
  status: number
  /** Parsed; null without a body. */
  value: unknown
}

/** A page of requests with long texts has two megabytes. */
const maxBytes = 4 << 20
const maxWaitMs = 3_600_000

const refuse = (status: number, headers: Headers): void => {
  if (status >= 200 && status < 300) return
  if (isRateLimited(status, headers)) {
    const nowMs = Date.now()
    const message = `The git host has had too many requests with this git token and refuses more${untilWhen(headers, nowMs)} (status ${status}).`
    throw new GitHostError('unreachable', message, { waitMs: Math.min(rateLimitWaitMs(headers, nowMs), maxWaitMs) })
  }
  if (status === 401 || status === 403)
    throw new GitHostError('denied', 'The git host does not allow this with the git token.')
  if (status === 404)
    throw new GitHostError('missing', 'The repository does not exist, or the git token may not see it.')
  const code = status >= 500 || status < 400 ? 'unreachable' : 'refused'
  throw new GitHostError(code, `The git host answered with status ${status}.`)
}

const notAHost = (): GitHostError =>
  new GitHostError('refused', 'The response is not that of a git host: check the address of the git token.')

const parse = ({ body, truncated }: OutboundResponse, owner: string, signal: AbortSignal): Promise<unknown> => {
  if (truncated) throw notAHost()
  return readLargeJson(body, { mostBytes: maxBytes, owner, signal }).catch((error: unknown) => {
    throw error instanceof ForeignTextError ? notAHost() : error
  })
}

/** Rejects with a `GitHostError` unless the host succeeded. `accepts`: other statuses that are answers too. */
export const askHost = async (
  outbound: Outbound,
  { apiUrl, text }: HostToken,
  { method, path, body }: HostRequest,
  signal: AbortSignal,
  accepts: readonly number[] = [],
): Promise<HostAnswer> => {
  try {
    const url = new URL(apiUrl + path)
    if (url.protocol === 'http:' && !(await isPrivateHost(outbound, url)))
      throw new GitHostError('refused', 'A git token cannot be sent over plain http: use an https address.')
    const answer = await outbound.request({
      ...{ method, url, signal, maxResponseBytes: maxBytes },
      headers: {
        accept: 'application/json',
        authorization: `Bearer ${text.reveal()}`,
        'user-agent': 'Slipway',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    if (!accepts.includes(answer.status)) refuse(answer.status, answer.headers)
    return { status: answer.status, value: answer.body === '' ? null : await parse(answer, url.host, signal) }
  } catch (error) {
    if (error instanceof OutboundRefused)
      throw new GitHostError('refused', `The git host cannot be reached: ${error.message}.`, { cause: error })
    if (error instanceof OutboundFailed)
      throw new GitHostError('unreachable', `The git host cannot be reached: ${error.message}.`, { cause: error })
    throw error
  }
}
