/**
 * Where a stream goes: the reader of server-sent events or of a websocket. Promises that a reader that stops reading
 * costs at most what is buffered here for it, and that an idle connection is kept open.
 */
import type { WebSocket } from 'ws'
import type { Context } from '../api/operations/operation.ts'
import { drained } from '../lib/drained.ts'

const heartbeatMs = 15_000
const maxBuffered = 256 * 1024
/** Texts that come together are written together: separate writes would cost more than everything else. */
const gatheredLength = 64 * 1024

export interface Sink {
  /** Aborted when the reader disconnects. */
  gone: AbortSignal
  /** Resolves when there is room for more. Texts sent to a disconnected reader are lost. */
  send(text: string, id?: string): Promise<void>
  /** Ends the stream; `problem` says why if it ends early. */
  end(problem?: string): void
}

export const endAway = (sink: Sink, what: 'log' | 'status' | 'cluster'): void =>
  sink.end(`The ${what} is temporarily unavailable: connect again.`)

/** The id of the last event that the client received before its connection broke. */
export const lastEventId = ({ headers }: Context): string | undefined => headers['last-event-id'] as string | undefined

/** Takes over the response and starts the events; `welcome` is sent as a comment first. */
export const eventSink = (context: Context, welcome: string): Sink => {
  const raw = context.hijack()
  const leaving = new AbortController()
  raw.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' })
  raw.write(`: ${welcome}\n\n`)
  const beat = (): void => {
    if (!raw.writableNeedDrain) raw.write(': still here\n\n')
  }
  const heartbeat = setInterval(beat, heartbeatMs)
  raw.on('close', () => {
    clearInterval(heartbeat)
    leaving.abort()
  })
  let gathered = ''
  const flush = (): boolean => {
    if (gathered === '' || leaving.signal.aborted) return true
    const text = gathered
    gathered = ''
    return raw.write(text)
  }
  return {
    gone: leaving.signal,
    async send(text, id) {
      if (leaving.signal.aborted) return
      if (gathered === '') setImmediate(flush)
      gathered += `${id === undefined ? '' : `id: ${id}\n`}data: ${text}\n\n`
      if ((gathered.length > gatheredLength && !flush()) || raw.writableNeedDrain) await drained(raw)
    },
    end(problem) {
      flush()
      if (problem !== undefined) raw.write(`event: end\ndata: ${JSON.stringify({ message: problem })}\n\n`)
      raw.end()
    },
  }
}

/** One frame per text; the library answers pings. */
export const socketSink = (socket: WebSocket): Sink => {
  const leaving = new AbortController()
  const ping = setInterval(() => socket.ping(), heartbeatMs)
  socket.on('close', () => {
    clearInterval(ping)
    leaving.abort()
  })
  return {
    gone: leaving.signal,
    async send(text) {
      if (socket.readyState !== socket.OPEN) return
      const taken = new Promise<void>((resolve) => socket.send(text, () => resolve()))
      if (socket.bufferedAmount > maxBuffered) await taken
    },
    end(problem) {
      if (problem === undefined) socket.close(1000)
      else socket.close(1011, problem)
    },
  }
}
