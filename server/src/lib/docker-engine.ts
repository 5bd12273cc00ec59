/**
 * The Docker Engine API over its socket: calls and streams, each with a deadline, and errors that callers can tell
 * apart.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { type Dispatcher, Pool } from 'undici'
import { DeploymentError } from './errors.ts'

/** The engine answered with an error status; `message` is its own. */
export class EngineError extends Error {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.name = 'EngineError'
    this.status = status
  }
}

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE'
type QueryValue = string | number | boolean | undefined

export interface CallOptions {
  query?: Record<string, QueryValue>
  /** JSON; or a tar archive, as bytes or as a stream. */
  body?: unknown
  signal?: AbortSignal
  /** Default 30 s; for `stream` it ends with the answer's headers. */
  deadlineMs?: number
  headers?: Record<string, string>
}

export interface Engine {
  /** The parsed JSON answer (undefined when empty). Rejects with `EngineError` or `engine_unavailable`. */
  call<T = void>(method: Method, path: string, options?: CallOptions): Promise<T>
  /** The response's bytes as they come, without a deadline after the headers. */
  stream(method: Method, path: string, options?: CallOptions): Promise<Readable>
  close(): Promise<void>
}

const defaultDeadlineMs = 30_000

/** True for an answer of the engine with one of these statuses. */
export const isEngineError = (error: unknown, ...statuses: number[]): error is EngineError =>
  error instanceof EngineError && (statuses.length === 0 || statuses.includes(error.status))

/** Awaits a removal; succeeds if the object no longer exists or is being removed. */
export const ignoreGone = async (work: Promise<unknown>): Promise<void> => {
  try {
    await work
  } catch (error) {
    const removing = isEngineError(error, 409) && error.message.includes('already in progress')
    if (!removing && !isEngineError(error, 404)) throw error
  }
}

export const engineUnavailable = (cause: unknown): DeploymentError =>
  new DeploymentError('engine_unavailable', 'The Docker engine does not answer.', { next: 'wait', cause })

/** Whether the engine may be on this machine: a local socket or a loopback address. */
export const isLocalEngine = (dockerHost: string | undefined): boolean => {
  const host = dockerHost || process.env.DOCKER_HOST || 'unix://'
  if (host.startsWith('unix://')) return true
  const url = URL.parse(host.replace(/^tcp:/, 'http:'))
  return url?.protocol !== 'ssh:' && /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url?.hostname ?? '')
}

const poolOf = (dockerHost: string): Pool => {
  const limits = { connections: null, headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: 10_000 }
  if (dockerHost.startsWith('unix://'))
    return new Pool('http://engine', { ...limits, connect: { socketPath: dockerHost.slice('unix://'.length) } })
  const folder = process.env.DOCKER_CERT_PATH
  const secure = dockerHost.startsWith('https://') || process.env.DOCKER_TLS_VERIFY === '1'
  const origin = dockerHost.replace(/^(tcp|https?):/, secure ? 'https:' : 'http:')
  if (!secure || folder === undefined) return new Pool(origin, limits)
  const [ca, cert, key] = ['ca.pem', 'cert.pem', 'key.pem'].map((name) => readFileSync(join(folder, name)))
  return new Pool(origin, { ...limits, connect: { ca, cert, key } })
}

const messageOf = (text: string): string => {
  try {
    return String((JSON.parse(text) as { message?: string }).message ?? text)
  } catch {
    return text
  }
}

const queryOf = (query: Record<string, QueryValue> = {}): Record<string, string> =>
  Object.fromEntries(
    Object.entries(query).flatMap(([key, value]) => (value === undefined ? [] : [[key, String(value)]])),
  )

/** Bytes or a stream, of whatever stream library: anything else is sent as JSON. */
const isTar = (body: unknown): body is Uint8Array | Readable =>
  body instanceof Uint8Array || typeof (body as Readable | undefined)?.pipe === 'function'

const request = (pool: Pool, method: Method, path: string, options: CallOptions, signal: AbortSignal) => {
  const { body } = options
  const bytes = isTar(body)
  return pool.request({
    method,
    path,
    query: queryOf(options.query),
    headers: {
      ...(body === undefined ? {} : { 'content-type': bytes ? 'application/x-tar' : 'application/json' }),
      ...options.headers,
    },
    body: body === undefined ? null : bytes ? body : JSON.stringify(body),
    signal,
  })
}

const refuse = async (answer: Dispatcher.ResponseData): Promise<never> => {
  throw new EngineError(answer.statusCode, messageOf(await answer.body.text()))
}

/** Without a version in the path the engine uses its own, so that both old and new engines work. */
export const createEngine = (dockerHost?: string): Engine => {
  const pool = poolOf(dockerHost || process.env.DOCKER_HOST || 'unix:///var/run/docker.sock')

  const guarded = async <T>(options: CallOptions, work: (signal: AbortSignal, arrived: () => void) => Promise<T>) => {
    options.signal?.throwIfAborted()
    const deadline = new AbortController()
    const timer = setTimeout(
      () => deadline.abort(new Error('deadline passed')),
      options.deadlineMs ?? defaultDeadlineMs,
    )
    const signal = options.signal ? AbortSignal.any([options.signal, deadline.signal]) : deadline.signal
    try {
      return await work(signal, () => clearTimeout(timer))
    } catch (error) {
      options.signal?.throwIfAborted()
      throw error instanceof EngineError ? error : engineUnavailable(error)
    } finally {
      clearTimeout(timer)
    }
  }

  return {
    call: <T>(method: Method, path: string, options: CallOptions = {}) =>
      guarded(options, async (signal) => {
        const answer = await request(pool, method, path, options, signal)
        if (answer.statusCode >= 400) await refuse(answer)
        const text = await answer.body.text()
        const json = String(answer.headers['content-type'] ?? '').includes('json')
        return (json && text !== '' ? JSON.parse(text) : undefined) as T
      }),
    stream: (method, path, options = {}) =>
      guarded(options, async (signal) => {
        const answer = await request(pool, method, path, options, signal)
        if (answer.statusCode >= 400) await refuse(answer)
        return answer.body
      }),
    close: () => pool.destroy(),
  }
}
