/**
 * The API of a Kubernetes cluster: requests and answers in JSON, lists in pages, objects made by server-side apply,
 * streams (watches, logs), and commands in pods.
 *
 * Promises: every request ends by its deadline, whatever the other side does; no answer takes more memory than its
 * limit; a connection goes to the address that was checked, under TLS; no redirect is followed; credentials are sent
 * nowhere else. A stream ends with its reader, and buffers no more bytes than its reader takes. Does not know the
 * product's use of a cluster.
 */
import type { Readable } from 'node:stream'
import { type Dispatcher, Pool } from 'undici'
import { ForeignTextError, readLargeJson } from '../foreign-text/read-json.ts'
import { type Pin, pinnedConnector } from '../net/pinned-connector.ts'
import { type Clock, systemClock } from '../time/clock.ts'
import { type Executed, execute } from './exec.ts'
import type { KubernetesAccess } from './kubeconfig.ts'
import { KubernetesError, refusedBy, TooLongError, unanswered } from './kubernetes-errors.ts'

export interface AskOptions {
  query?: Record<string, string | number | boolean>
  signal?: AbortSignal | undefined
  /** From the first byte sent to the last one read, retries included. Default 10 s. */
  deadlineMs?: number
}

/** Which object of this name to remove, and how. */
export interface RemoveOptions extends AskOptions {
  /** Only the object with this uid: another one that has its name by now is kept. */
  uid?: string
  /** Whether dependents are removed before the object or after it. Default: after it. */
  propagation?: 'Foreground' | 'Background'
  /** For pods: between SIGTERM and SIGKILL. */
  graceSeconds?: number
}

interface Listed<T> {
  items: T[]
  resourceVersion: string
}

/**
 * Each request may be repeated: it either changes nothing or states the desired result. All reject with
 * `KubernetesError`.
 */
export interface KubernetesApi {
  get<T>(path: string, options?: AskOptions): Promise<T>
  /** Asks the cluster to review `body`. */
  review<T>(path: string, body: object, options?: AskOptions): Promise<T>
  /** Makes an object in a collection: a `KubernetesError` with status 409 if its name is taken. */
  create<T>(path: string, body: object, options?: AskOptions): Promise<T>
  /** The first `most` of a collection. */
  list<T>(path: string, most: number, options?: AskOptions): Promise<T[]>
  /** The same, and where a watch continues from. */
  read<T>(path: string, most: number, options?: AskOptions): Promise<Listed<T>>
  /**
   * Server-side apply: the object gets what the manifest says and is created if it does not exist; fields that
   * `manager` set before and no longer sets are removed. Fields of other managers are kept, unless the manifest sets
   * them.
   */
  apply<T>(path: string, manifest: object, manager: string, options?: AskOptions): Promise<T>
  /** Changes these fields alone (JSON merge patch). */
  merge<T>(path: string, patch: object, options?: AskOptions): Promise<T>
  /** Returns whether it existed. It may exist for a while longer: it ends first. */
  remove(path: string, options?: RemoveOptions): Promise<boolean>
  /** `deadlineMs` is for the head of the answer alone. Ends with `signal`. */
  stream(path: string, options?: AskOptions): Promise<Readable>
  /**
   * Runs a command in a container and resolves when it has ended. Rejects if it writes more than `maxBytes`. `path` is that
   * of the pod's `exec`.
   */
  exec(path: string, command: ExecCommand, options?: AskOptions): Promise<Executed>
  close(): Promise<void>
}

export interface ExecCommand {
  container: string
  words: readonly string[]
  maxBytes: number
}

const defaultDeadlineMs = 10_000
const longestAnswer = 4 << 20
const mostValues = 300_000
const pageSize = 100
const triesMost = 3
const longestWaitMs = 5000
const connections = 8
/** Each stream uses its own connection for as long as it is read. */
const streamsMost = 256

const readBytes = async (body: AsyncIterable<Buffer>): Promise<Buffer> => {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    size += chunk.length
    if (size > longestAnswer) throw new TooLongError()
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** Undefined for what is not JSON, or has more values than an answer of this size needs. */
const parse = (bytes: Buffer, owner: string): Promise<unknown> =>
  readLargeJson(bytes, { mostBytes: longestAnswer, mostValues, owner }).catch((error: unknown) => {
    if (error instanceof ForeignTextError) return undefined
    throw error
  })

const readAnswer = async ({ statusCode, body }: Dispatcher.ResponseData, owner: string): Promise<unknown> => {
  const answer = await parse(await readBytes(body), owner)
  if (statusCode < 200 || statusCode > 299) throw refusedBy(statusCode, answer)
  if (typeof answer === 'object' && answer !== null) return answer
  throw new KubernetesError(0, 'The server at this address is not the API server of a Kubernetes cluster.')
}

/** A pause that the answer asks for, in whole seconds; at least one, lest a zero make a tight loop. */
const waitMsIn = (headers: Dispatcher.ResponseData['headers']): number => {
  const seconds = Number(headers['retry-after'] ?? 1)
  return Math.min(Math.max(Number.isFinite(seconds) ? seconds : 1, 1) * 1000, longestWaitMs)
}

type Method = 'GET' | 'POST' | 'PATCH' | 'DELETE'

interface Sent {
  method: Method
  path: string
  body?: object
  type?: string
}

const plainJson = 'application/json'

interface Page<T> {
  metadata?: { continue?: unknown; resourceVersion?: unknown }
  items?: T[]
}

const deletion = ({ uid, propagation = 'Background', graceSeconds }: RemoveOptions): object => ({
  apiVersion: 'v1',
  kind: 'DeleteOptions',
  propagationPolicy: propagation,
  ...(uid === undefined ? {} : { preconditions: { uid } }),
  ...(graceSeconds === undefined ? {} : { gracePeriodSeconds: graceSeconds }),
})

const createSender = (access: KubernetesAccess, pin: Pin) => {
  const { host, port, serverName, ca, cert, key, token } = access
  const connect = pinnedConnector({ host, port, pin, serverName, tls: { ca, cert, key: key?.reveal() } })
  const open = (most: number) =>
    new Pool(`https://${host}:${port}`, {
      ...{ connections: most, headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: 10_000 },
      connect,
    })
  const [pool, streams] = [open(connections), open(streamsMost)]
  const send = (
    { method, path, body, type }: Sent,
    query: AskOptions['query'],
    signal: AbortSignal,
    isStream = false,
  ) =>
    (isStream ? streams : pool).request({
      method,
      path: access.path + path,
      query,
      headers: {
        accept: plainJson,
        ...(token === undefined ? {} : { authorization: `Bearer ${token.reveal()}` }),
        ...(body === undefined ? {} : { 'content-type': type ?? plainJson }),
      },
      body: body === undefined ? null : JSON.stringify(body),
      signal,
    })
  const run = (path: string, { container, words, maxBytes }: ExecCommand, signal: AbortSignal): Promise<Executed> => {
    const query = new URLSearchParams({ container, stdout: 'true' })
    for (const word of words) query.append('command', word)
    const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token.reveal()}` }
    return execute({ url: `wss://${host}:${port}${access.path}${path}?${query}`, headers, connect }, maxBytes, signal)
  }
  return { send, run, close: () => Promise.all([pool.destroy(), streams.destroy()]).then(() => {}) }
}

type Send = ReturnType<typeof createSender>['send']

/** Aborts after this time, unless it is disposed of before. */
const limitTime = (clock: Pick<Clock, 'sleep'>, deadlineMs: number) => {
  const [late, ended] = [new AbortController(), new AbortController()]
  clock.sleep(deadlineMs, ended.signal).then(
    () => late.abort(new DOMException('no answer', 'TimeoutError')),
    () => {},
  )
  return { signal: late.signal, [Symbol.dispose]: () => ended.abort() }
}

/** The answer's head, after pauses requested by the cluster. */
const sendPatiently = async (
  send: () => ReturnType<Send>,
  clock: Pick<Clock, 'sleep'>,
  signal: AbortSignal,
): Promise<Dispatcher.ResponseData> => {
  for (let left = triesMost; ; left -= 1) {
    const answer = await send()
    if (answer.statusCode !== 429 || left === 1) return answer
    await answer.body.dump({ limit: 65_536, signal })
    await clock.sleep(waitMsIn(answer.headers), signal)
  }
}

const createStream =
  (send: Send, clock: Pick<Clock, 'sleep'>, owner: string): KubernetesApi['stream'] =>
  async (path, { query, signal: outer, deadlineMs = defaultDeadlineMs } = {}) => {
    using late = limitTime(clock, deadlineMs)
    const signal = outer === undefined ? late.signal : AbortSignal.any([outer, late.signal])
    try {
      const answer = await sendPatiently(() => send({ method: 'GET', path }, query, signal, true), clock, signal)
      if (answer.statusCode !== 200) await readAnswer(answer, owner)
      return answer.body
    } catch (error) {
      outer?.throwIfAborted()
      throw error instanceof KubernetesError ? error : unanswered(late.signal.aborted ? late.signal.reason : error)
    }
  }

export const createKubernetesApi = (
  access: KubernetesAccess,
  pin: Pin,
  clock: Pick<Clock, 'sleep'> = systemClock,
): KubernetesApi => {
  const { send, run, close } = createSender(access, pin)
  const owner = `cluster ${access.host}:${access.port}`
  const within = async <T>(options: AskOptions, work: (signal: AbortSignal) => Promise<T>): Promise<T> => {
    using late = limitTime(clock, options.deadlineMs ?? defaultDeadlineMs)
    const signal = options.signal === undefined ? late.signal : AbortSignal.any([options.signal, late.signal])
    try {
      return await work(signal)
    } catch (error) {
      options.signal?.throwIfAborted()
      throw error instanceof KubernetesError ? error : unanswered(late.signal.aborted ? late.signal.reason : error)
    }
  }
  const ask = <T>(sent: Sent, options: AskOptions = {}): Promise<T> =>
    within(
      options,
      async (signal) =>
        (await readAnswer(await sendPatiently(() => send(sent, options.query, signal), clock, signal), owner)) as T,
    )

  /** Pages of large objects are shorter. */
  const readPage = async <T>(
    path: string,
    options: AskOptions,
    limit: number,
  ): Promise<Page<T> & { limit: number }> => {
    try {
      const query = { ...options.query, limit }
      return { ...(await ask<Page<T>>({ method: 'GET', path }, { ...options, query })), limit }
    } catch (error) {
      if (!(error instanceof TooLongError) || limit === 1) throw error
      return readPage(path, options, Math.ceil(limit / 5))
    }
  }

  const readPages = async <T>(path: string, most: number, options: AskOptions): Promise<Listed<T>> => {
    let items: T[] = []
    let resourceVersion = ''
    let next: string | undefined
    let size = pageSize
    // A cluster may send fewer items at once than requested, but not one after the other.
    let left = 2 * Math.ceil(most / pageSize) * pageSize
    do {
      const query = { ...options.query, ...(next === undefined ? {} : { continue: next }) }
      const answer = await readPage<T>(path, { ...options, query }, Math.min(size, most - items.length))
      const { limit } = answer
      size = Math.min(size, limit)
      left -= limit
      const page = Array.isArray(answer.items) ? answer.items.slice(0, limit) : []
      items = items.concat(page)
      resourceVersion = String(answer.metadata?.resourceVersion ?? '')
      const more = page.length === 0 ? undefined : answer.metadata?.continue
      next = typeof more === 'string' && more !== '' ? more : undefined
    } while (next !== undefined && items.length < most && left > 0)
    return { items, resourceVersion }
  }
  // A page's place in the list is forgotten after some minutes: it is read anew, once.
  const read = <T>(path: string, most: number, options: AskOptions = {}): Promise<Listed<T>> =>
    readPages<T>(path, most, options).catch((error: unknown) => {
      if (error instanceof KubernetesError && error.status === 410) return readPages<T>(path, most, options)
      throw error
    })
  return {
    get: (path, options) => ask({ method: 'GET', path }, options),
    review: (path, body, options) => ask({ method: 'POST', path, body }, options),
    create: (path, body, options) => ask({ method: 'POST', path, body }, options),
    read,
    list: async <T>(path: string, most: number, options?: AskOptions) => (await read<T>(path, most, options)).items,
    apply: (path, body, manager, options = {}) => {
      const query = { ...options.query, fieldManager: manager, force: true }
      return ask({ method: 'PATCH', path, body, type: 'application/apply-patch+yaml' }, { ...options, query })
    },
    merge: (path, body, options) => ask({ method: 'PATCH', path, body, type: 'application/merge-patch+json' }, options),
    remove: (path, options = {}) =>
      ask({ method: 'DELETE', path, body: deletion(options) }, options).then(
        () => true,
        (error: unknown) => {
          // 409: another object has its name by now.
          if (error instanceof KubernetesError && (error.status === 404 || (error.status === 409 && options.uid)))
            return false
          throw error
        },
      ),
    stream: createStream(send, clock, owner),
    exec: (path, command, options = {}) => within(options, (signal) => run(path, command, signal)),
    close,
  }
}
