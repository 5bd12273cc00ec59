/**
 * The Engine API over a local socket, TCP or SSH: calls and streams, each with a deadline, and errors that callers can
 * distinguish.
 */
import type { Socket } from 'node:net'
import type { Duplex, Readable } from 'node:stream'
import { type buildConnector, type Dispatcher, Pool } from 'undici'
import { DeploymentError } from '../errors.ts'
import type { Keep } from '../foreign-text/keep.ts'
import { ForeignTextError, readLargeJson, type TextBounds, tryJson, usualBounds } from '../foreign-text/read-json.ts'
import { pinnedConnector } from '../net/pinned-connector.ts'
import {
  defaultConnection,
  type EngineConnection,
  type SshConnection,
  type TcpConnection,
} from './engine-connection.ts'
import { createSshTunnel } from './ssh-tunnel.ts'

/** The engine answered with an error status; `message` is its own. */
export class EngineError extends Error {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.name = 'EngineError'
    this.status = status
  }
}

type Method = 'GET' | 'POST' | 'PUT' | 'DELETE'
type QueryValue = string | number | boolean | undefined

interface CallOptions {
  query?: Record<string, QueryValue>
  /** JSON; or a tar archive, as bytes or as a stream. */
  body?: unknown
  signal?: AbortSignal
  /** Default 30 s; for `stream` it ends with the answer's headers. */
  deadlineMs?: number
  headers?: Record<string, string>
  /** Which parts of a list to keep: the list may then be far longer than other answers. */
  keep?: Keep
}

export interface Engine {
  /** The parsed JSON answer (undefined when empty). Rejects with `EngineError` or `engine_unavailable`. */
  call<T = void>(method: Method, path: string, options?: CallOptions): Promise<T>
  /** The response's bytes as they come, without a deadline after the headers. */
  stream(method: Method, path: string, options?: CallOptions): Promise<Readable>
  /** A connection of raw bytes both ways, as for `attach`; without a deadline once it is open. */
  connect(path: string, options?: Pick<CallOptions, 'query' | 'signal' | 'deadlineMs'>): Promise<Duplex>
  close(): Promise<void>
}

const defaultDeadlineMs = 30_000

export const isEngineError = (error: unknown, ...statuses: number[]): error is EngineError =>
  error instanceof EngineError && (statuses.length === 0 || statuses.includes(error.status))

/** What the engine says of an object; null if it does not exist. */
export const orNull = async <Answer>(work: Promise<Answer>): Promise<Answer | null> => {
  try {
    return await work
  } catch (error) {
    if (isEngineError(error, 404)) return null
    throw error
  }
}

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

const limits = { connections: null, headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: 10_000 }

interface Transport {
  pool: Pool
  close(): void
}

const openTcp = ({ host, port, tls, pin }: TcpConnection): Transport => {
  const { ca, cert, key } = tls ?? {}
  const connect = pinnedConnector({ host, port, pin, tls: { ca, cert, key: key?.reveal() } })
  const origin = (tls === null ? 'http://' : 'https://').concat(host, ':', String(port))
  return { pool: new Pool(origin, { ...limits, connect }), close() {} }
}

const openSsh = (connection: SshConnection): Transport => {
  const tunnel = createSshTunnel(connection)
  const connect: buildConnector.connector = (_options, callback) => {
    tunnel.open().then(
      // undici asks of a socket what every Duplex has.
      (stream) => callback(null, stream as Socket),
      (error: Error) => callback(error, null),
    )
  }
  return { pool: new Pool('http://engine', { ...limits, connect }), close: tunnel.close }
}

const open = (connection: EngineConnection): Transport => {
  if (connection.kind === 'tcp') return openTcp(connection)
  if (connection.kind === 'ssh') return openSsh(connection)
  return { pool: new Pool('http://engine', { ...limits, connect: { socketPath: connection.socketPath } }), close() {} }
}

const messageOf = (text: string): string => String((tryJson(text) as { message?: unknown } | null)?.message ?? text)

const queryOf = (query: Record<string, QueryValue> = {}): Record<string, string> =>
  Object.fromEntries(
    Object.entries(query).flatMap(([key, value]) => (value === undefined ? [] : [[key, String(value)]])),
  )

/** Bytes or a stream, from any stream library: anything else is sent as JSON. */
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

/**
 * Engines of other machines are not trusted. Allows more than any list of an engine; an engine's data about itself is
 * short.
 */
const listBounds: TextBounds = { ...usualBounds, mostBytes: 64 << 20, mostValues: 4_000_000 }
const selfBounds: TextBounds = { ...usualBounds, mostBytes: 256 << 10, mostValues: 10_000 }
const mostListed = 500_000
const longestError = 64 << 10

const boundsOf = (path: string, keep: Keep | undefined): TextBounds => {
  if (keep !== undefined) return listBounds
  return path === '/version' || path === '/info' ? selfBounds : usualBounds
}

const readBytes = async (body: Readable, longest: number): Promise<Buffer> => {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > longest) throw new ForeignTextError('too_large', `is larger than ${longest} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

const refuse = async (answer: Dispatcher.ResponseData): Promise<never> => {
  throw new EngineError(answer.statusCode, messageOf((await readBytes(answer.body, longestError)).toString()))
}

/** Without a version in the path the engine answers in its own, so that old and new engines both serve. */
export const createEngine = (connection: EngineConnection = defaultConnection()): Engine => {
  const { pool, close } = open(connection)
  const owner = connection.kind === 'local' ? 'engine' : `engine ${connection.host}:${connection.port}`

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
        const bounds = boundsOf(path, options.keep)
        const bytes = await readBytes(answer.body, bounds.mostBytes)
        const isJson = String(answer.headers['content-type'] ?? '').includes('json') && bytes.length > 0
        if (!isJson) return undefined as T
        return (await readLargeJson(bytes, { ...bounds, owner, keep: options.keep, mostKept: mostListed, signal })) as T
      }),
    stream: (method, path, options = {}) =>
      guarded(options, async (signal) => {
        const answer = await request(pool, method, path, options, signal)
        if (answer.statusCode >= 400) await refuse(answer)
        return answer.body
      }),
    connect: (path, options = {}) =>
      guarded(options, async (signal) => {
        const query = new URLSearchParams(queryOf(options.query)).toString()
        const { socket } = await pool.upgrade({ path: `${path}?${query}`, method: 'POST', protocol: 'tcp', signal })
        return socket
      }),
    async close() {
      await pool.destroy()
      close()
    },
  }
}
