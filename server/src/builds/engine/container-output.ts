/** The output of a container that is about to start, both streams as one text, not stored by the engine. */
import { StringDecoder } from 'node:string_decoder'
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises'
import type { Engine } from '../../lib/docker/docker-engine.ts'

const headerBytes = 8
const freeBytes = 4 * 2 ** 20
const bytesPerMs = 10_000
const shortestPauseMs = 5

/**
 * Returns how long to wait (ms) after so many more bytes of one output: after the first four megabytes it is read at 10
 * MB/s. No container limit applies to the engine's and our own work on output: a step that prints without end would
 * slow the API.
 */
export const createPace = () => {
  let free = freeBytes
  let owedMs = 0
  return (bytes: number): number => {
    owedMs += Math.max(0, bytes - free) / bytesPerMs
    free = Math.max(0, free - bytes)
    const ms = owedMs < shortestPauseMs ? 0 : owedMs
    owedMs -= ms
    return ms
  }
}

/** Splits the stream of an attached container into frames, whatever chunks they come in. */
export const createFrames = () => {
  const decoders = [new StringDecoder('utf8'), new StringDecoder('utf8')]
  const header = Buffer.alloc(headerBytes)
  let held = 0
  let left = 0
  return (chunk: Buffer): string => {
    let text = ''
    let at = 0
    while (at < chunk.length) {
      if (left === 0) {
        const count = chunk.copy(header, held, at, at + headerBytes - held)
        held += count
        at += count
        if (held < headerBytes) break
        left = header.readUInt32BE(4)
        held = 0
        continue
      }
      const end = Math.min(chunk.length, at + left)
      text += decoders[header[0] === 2 ? 1 : 0]!.write(chunk.subarray(at, end))
      left -= end - at
      at = end
    }
    return text
  }
}

/** Starts the container once its output is attached; ends with it, or when the reader leaves. */
export async function* readOutput(engine: Engine, id: string, signal: AbortSignal): AsyncGenerator<string> {
  const query = { stream: true, stdout: true, stderr: true }
  const stream = await engine.stream('POST', `/containers/${id}/attach`, { query, signal })
  // A reader that leaves early closes it, which is not a failure.
  stream.on('error', () => {})
  try {
    await engine.call('POST', `/containers/${id}/start`, { signal, deadlineMs: 120_000 })
    const read = createFrames()
    const pauseAfter = createPace()
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      const text = read(chunk)
      if (text !== '') yield text
      const ms = pauseAfter(chunk.length)
      // Other work of this process takes a turn: a step can print faster than we read.
      await (ms === 0 ? nextTurn() : pause(ms, undefined, { signal }))
    }
  } finally {
    stream.destroy()
  }
}
