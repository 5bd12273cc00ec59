/** Calls of the control API; does not know when the router must be started. */
import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import { words } from '../../lib/words.ts'
import { PortUnavailable } from '../router.ts'
import type { Health } from './protocol.ts'

/** Nothing listens on the control socket. */
export class RouterAbsent extends Error {}

export interface CallOptions {
  body?: unknown
  signal?: AbortSignal
  timeoutMs?: number
}

const absent: ReadonlySet<unknown> = new Set(words('ECONNREFUSED ENOENT ENOTDIR ENOTSOCK EINVAL ECONNRESET EPIPE'))

/** Resolves with the response head. Rejects with `RouterAbsent`, the signal's reason, or the error. */
export const openCall = (
  socketPath: string,
  method: string,
  path: string,
  options: CallOptions = {},
): Promise<IncomingMessage> => {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  const { body, signal, timeoutMs } = options
  const out: ClientRequest = request({ socketPath, method, path, agent: false, signal })
  if (timeoutMs !== undefined) out.setTimeout(timeoutMs, () => out.destroy(new Error('the router does not answer')))
  out.on('response', resolve)
  out.on('error', (error: NodeJS.ErrnoException) => {
    if (signal?.aborted) reject(signal.reason)
    else reject(absent.has(error.code) ? new RouterAbsent('the router is not running', { cause: error }) : error)
  })
  out.end(body === undefined ? undefined : JSON.stringify(body))
  return promise
}

const textOf = async (answer: IncomingMessage): Promise<string> => {
  let text = ''
  for await (const chunk of answer.setEncoding('utf8')) text += chunk
  return text
}

/** The complete response. Rejects like `openCall`, and with the router's message if it refuses. */
export const call = async <Answer>(
  socketPath: string,
  method: string,
  path: string,
  options?: CallOptions,
): Promise<Answer> => {
  const answer = await openCall(socketPath, method, path, options)
  const value = JSON.parse(await textOf(answer)) as Answer & { message?: string; port?: number }
  if (answer.statusCode === 200) return value
  const { message = `the router answered ${answer.statusCode}`, port } = value
  throw port === undefined ? new Error(message) : new PortUnavailable(message, port)
}

/** Null if no router is running. */
export const askHealth = async (socketPath: string): Promise<Health | null> => {
  try {
    return await call<Health>(socketPath, 'GET', '/health', { timeoutMs: 5_000 })
  } catch (error) {
    if (error instanceof RouterAbsent) return null
    throw error
  }
}

/**
 * Asks it to stop. Resolves when its port is free; the returned `finished` resolves when its last request is done or
 * has timed out.
 */
export const askStop = async (socketPath: string): Promise<{ finished: Promise<void> }> => {
  const answer = await openCall(socketPath, 'POST', '/stop', { timeoutMs: 30_000 })
  const finished = textOf(answer).then(
    () => {},
    () => {},
  )
  return { finished }
}
