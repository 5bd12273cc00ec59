/**
 * A long response, read as it arrives. Promises that no more than `maxBytes` are passed on, and that a sender that
 * stalls or trickles ends it: only the time spent waiting for the sender counts, never that of a slow reader.
 */
import { Readable } from 'node:stream'
import type { Client } from 'undici'
import { explainFailure, OutboundFailed, type Progress } from './outbound-errors.ts'

export interface StreamLimits {
  /** The stream fails if more than this arrives. */
  maxBytes: number
  /** How long to wait for the sender until `leastBytes` have arrived. Default 30000. */
  silenceMs?: number
  /** Default 512 Ki. */
  leastBytes?: number
}

export interface OutboundStream {
  status: number
  /** Lower-case names; several values of one name are joined by `, `. */
  headers: Record<string, string>
  /** Destroy it unless it is read to its end. */
  body: Readable
}

export const joinHeaders = (headers: Record<string, string | string[] | undefined>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(', ') : (value ?? '')]),
  )

/** `end` closes the connection, however the reading ends. */
async function* measured(
  source: Readable,
  limits: StreamLimits,
  progress: Progress,
  end: () => void,
): AsyncGenerator<Buffer> {
  const { maxBytes, silenceMs = 30_000, leastBytes = 512 << 10 } = limits
  let total = 0
  let waitedMs = 0
  let fresh = 0
  try {
    let since = performance.now()
    for await (const chunk of source as AsyncIterable<Buffer>) {
      waitedMs += performance.now() - since
      total += chunk.length
      fresh += chunk.length
      if (total > maxBytes) throw new OutboundFailed('too_large', 'more was sent than announced')
      if (fresh >= leastBytes) fresh = waitedMs = 0
      if (waitedMs > silenceMs) throw new OutboundFailed('timeout', 'the sender is too slow', undefined, 'body')
      yield chunk
      since = performance.now()
    }
  } catch (error) {
    throw explainFailure(error, progress)
  } finally {
    end()
  }
}

/** Takes over the client: it is closed with the stream. */
export const openStream = async (
  client: Client,
  request: {
    method: string
    url: URL
    headers?: Record<string, string>
    body?: Buffer | Readable
    signal?: AbortSignal
  },
  limits: StreamLimits,
  progress: Progress,
): Promise<OutboundStream> => {
  const end = () => void client.destroy().catch(() => {})
  try {
    const { statusCode, headers, body } = await client.request({
      method: request.method as 'GET',
      path: request.url.pathname + request.url.search,
      headers: request.headers,
      body: request.body ?? null,
      signal: request.signal,
    })
    progress.phase = 'body'
    // An error of the source reaches the reader of the generator; unread, it must not end the process.
    body.on('error', () => {})
    const stream = Readable.from(measured(body, limits, progress, end), {
      objectMode: false,
      highWaterMark: 64 << 10,
    })
    stream.once('close', end)
    return { status: statusCode, headers: joinHeaders(headers), body: stream }
  } catch (error) {
    end()
    throw explainFailure(error, progress)
  }
}
