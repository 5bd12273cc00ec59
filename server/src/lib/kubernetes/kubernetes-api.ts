/**
 * The API of a Kubernetes cluster: requests and answers in JSON, lists in pages.
 *
 * Promises: every request ends by its deadline, whatever the other side does; no answer takes more memory than its limit;
 * a connection goes to the address that was checked, under TLS; no redirect is followed; credentials go nowhere else.
 * Refuses to know: what the product makes of a cluster.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type Dispatcher, Pool } from 'undici'
import { type Pin, pinnedConnector } from '../net/pinned-connector.ts'
import type { KubernetesAccess } from './kubeconfig.ts'
import { KubernetesError, refusedBy, unanswered } from './kubernetes-errors.ts'

export interface AskOptions {
  query?: Record<string, string | number>
  signal?: AbortSignal
  /** From the first byte sent to the last one read, retries included. Default 10 s. */
  deadlineMs?: number
}

/** What is asked may be asked twice: reads, and reviews, which change nothing. All reject with `KubernetesError`. */
export interface KubernetesApi {
  get<T>(path: string, options?: AskOptions): Promise<T>
  /** Asks the cluster to judge what `body` says. */
  review<T>(path: string, body: object, options?: AskOptions): Promise<T>
  /** The first `most` of a collection. */
  list<T>(path: string, most: number, options?: AskOptions): Promise<T[]>
  close(): Promise<void>
}

const defaultDeadlineMs = 10_000
const longestAnswer = 4 << 20
const pageSize = 100
/** Tries of one request that gets a 429. */
const triesMost = 3
const longestWaitMs = 5000
const connections = 8

const readText = async (body: AsyncIterable<Buffer>): Promise<string> => {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    size += chunk.length
    if (size > longestAnswer)
      throw new KubernetesError(0, 'The API server of the cluster sends answers that are too long.')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const readAnswer = async ({ statusCode, body }: Dispatcher.ResponseData): Promise<unknown> => {
  const answer = parse(await readText(body))
  if (statusCode < 200 || statusCode > 299) throw refusedBy(statusCode, answer)
  if (typeof answer === 'object' && answer !== null) return answer
  throw new KubernetesError(0, 'What answers at this address is not the API server of a Kubernetes cluster.')
}

/** A pause that the answer asks for, in whole seconds; at least one, lest a zero make a tight loop. */
const waitMsIn = (headers: Dispatcher.ResponseData['headers']): number => {
  const seconds = Number(headers['retry-after'] ?? 1)
  return Math.min(Math.max(Number.isFinite(seconds) ? seconds : 1, 1) * 1000, longestWaitMs)
}

interface Page<T> {
  metadata?: { continue?: unknown }
  items?: T[]
}

export const createKubernetesApi = (access: KubernetesAccess, pin: Pin): KubernetesApi => {
  const { host, port, serverName, ca, cert, key, token } = access
  const connect = pinnedConnector({ host, port, pin, serverName, tls: { ca, cert, key: key?.reveal() } })
  const pool = new Pool(`https://${host}:${port}`, {
    ...{ connections, headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: 10_000 },
    connect,
  })
  const send = (
    method: 'GET' | 'POST',
    path: string,
    query: AskOptions['query'],
    body: object | null,
    signal: AbortSignal,
  ) =>
    pool.request({
      method,
      path: access.path + path,
      query,
      headers: {
        accept: 'application/json',
        ...(token === undefined ? {} : { authorization: `Bearer ${token.reveal()}` }),
        ...(body === null ? {} : { 'content-type': 'application/json' }),
      },
      body: body === null ? null : JSON.stringify(body),
      signal,
    })
  const ask = async <T>(method: 'GET' | 'POST', path: string, body: object | null, options: AskOptions): Promise<T> => {
    const late = AbortSignal.timeout(options.deadlineMs ?? defaultDeadlineMs)
    const signal = options.signal === undefined ? late : AbortSignal.any([options.signal, late])
    try {
      for (let left = triesMost; ; left -= 1) {
        const answer = await send(method, path, options.query, body, signal)
        if (answer.statusCode !== 429 || left === 1) return (await readAnswer(answer)) as T
        await answer.body.dump({ limit: 65_536, signal })
        await delay(waitMsIn(answer.headers), undefined, { signal })
      }
    } catch (error) {
      options.signal?.throwIfAborted()
      throw error instanceof KubernetesError ? error : unanswered(late.aborted ? late.reason : error)
    }
  }
  const get = <T>(path: string, options: AskOptions = {}) => ask<T>('GET', path, null, options)

  const readPages = async <T>(path: string, most: number, options: AskOptions): Promise<T[]> => {
    const found: T[] = []
    let next: string | undefined
    // A cluster may send fewer at once than it is asked for, but not one after the other.
    let left = 2 * Math.ceil(most / pageSize)
    do {
      left -= 1
      const query = {
        ...options.query,
        limit: Math.min(pageSize, most - found.length),
        ...(next === undefined ? {} : { continue: next }),
      }
      const { items, metadata }: Page<T> = await get<Page<T>>(path, { ...options, query })
      const page = Array.isArray(items) ? items.slice(0, query.limit) : []
      found.push(...page)
      const more = page.length === 0 ? undefined : metadata?.continue
      next = typeof more === 'string' && more !== '' ? more : undefined
    } while (next !== undefined && found.length < most && left > 0)
    return found
  }
  return {
    get,
    review: (path, body, options = {}) => ask('POST', path, body, options),
    // A page's place in the list is forgotten after some minutes: it is read anew, once.
    list: <T>(path: string, most: number, options: AskOptions = {}) =>
      readPages<T>(path, most, options).catch((error: unknown) => {
        if (error instanceof KubernetesError && error.status === 410) return readPages<T>(path, most, options)
        throw error
      }),
    close: () => pool.destroy(),
  }
}
